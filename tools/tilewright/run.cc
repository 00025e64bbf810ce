// tilewright run: one plan on random or given inputs.
#include <cmath>
#include <iostream>

#include "ir/op_def.h"
#include "npy.h"
#include "session.h"
#include "table.h"
#include "terminal.h"
#include "verbs.h"

namespace tilewright::tool {

namespace {

struct Binding {
  ir::TensorId tensor;
  std::string file;
};

// NAME=FILE for a tensor of the graph, by name or by uid, with one of the roles.
Binding parse_binding(const ir::Graph& graph, const std::string& text, bool output) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    throw Failure{fmt::format("\"{}\": expected NAME=FILE.npy", text), 2};
  const std::string name = text.substr(0, equals);
  std::string known;
  for (size_t id = 0; id < graph.tensors.size(); ++id) {
    const ir::Tensor& t = graph.tensors[id];
    if (!t.bound_by_caller() || (t.role == ir::Role::Output) != output) continue;
    if (t.name == name || std::to_string(t.uid) == name) return {ir::TensorId(id), text.substr(equals + 1)};
    known += (known.empty() ? "" : ", ") + t.name;
  }
  fail("the graph has no {} \"{}\"; it has {}", output ? "output" : "input", name, known.empty() ? "none" : known);
}

struct Summary {
  double min = INFINITY, max = -INFINITY, sum = 0;
  int64_t count = 0, not_finite = 0;
};
Summary summarise(const ir::Tensor& t, const void* memory) {
  Summary s;
  for (int64_t i = 0, n = volume(t.dim); i < n; ++i) {
    const double x = load_element(memory, t.storage_type(), offset_of_linear(i, t.view()));
    if (!std::isfinite(x)) {
      ++s.not_finite;
      continue;
    }
    s.min = std::min(s.min, x), s.max = std::max(s.max, x), s.sum += x, ++s.count;
  }
  return s;
}

}  // namespace

int run(const RunOptions& options) {
  const ChosenDevice device(options.device);
  device.must_run();
  Session session(options.graph, device);
  const ir::Graph& graph = session.ir();
  std::vector<Binding> inputs, outputs;
  for (const std::string& text : options.inputs) inputs.push_back(parse_binding(graph, text, false));
  for (const std::string& text : options.outputs) outputs.push_back(parse_binding(graph, text, true));

  int64_t index = options.plan;
  if (index < 0) index = session.build_best(options.engine);
  else must(session.build(index), fmt::format("plan {}", index));
  const PlanInfo plan = session.info(index);

  Harness harness(session.judge(index), {options.seed, options.integers ? Fill::Integers : Fill::Random});
  std::vector<std::string> notes;
  for (const Binding& b : inputs) {
    auto array = read_npy(b.file);
    if (!array) fail("{}", array.status().get_message());
    std::string note;
    must(npy_to_tensor(*array, graph.tensor(b.tensor), harness.memory(b.tensor), note), fmt::format("\"{}\"", b.file));
    if (!note.empty()) notes.push_back(fmt::format("{}: {}", b.file, note));
  }
  harness.inputs_changed();
  must(session.run_once(harness, index), fmt::format("plan {} {}", index, plan.name));
  const Status memory = harness.check_memory();

  std::cout << bold("graph  ") << graph.name << " (" << options.graph << ")\n" << ir::describe(graph);
  std::cout << bold("device ") << device.text() << '\n';
  std::cout << bold("plan   ")
            << fmt::format("{} {}, {} kernel{}, workspace {}\n", index, plan.name, plan.kernel_count,
                           plan.kernel_count == 1 ? "" : "s", human_bytes(double(plan.workspace_bytes)));
  // Results are looked at before timing runs the plan again.
  Table table;
  table.column("output").column("type").column("dims").column("min", Table::Right).column("mean", Table::Right);
  table.column("max", Table::Right).column("not finite", Table::Right);
  std::vector<Harness::Output> compared;
  if (options.check) {
    table.column("max error", Table::Right).column("of bound", Table::Right).column("");
    auto result = harness.compare_outputs();
    if (!result) fail("the reference: {}", result.status().get_message());
    compared = std::move(*result);
  }
  bool ok = memory.is_good();
  std::vector<std::string> wrong;
  if (!ok) wrong.push_back(memory.get_message());
  for (size_t id = 0, at = 0; id < graph.tensors.size(); ++id) {
    const ir::Tensor& t = graph.tensors[id];
    if (t.role != ir::Role::Output) continue;
    const Summary s = summarise(t, harness.memory(ir::TensorId(id)));
    std::vector<std::string> row{t.name,
                                 type_name(t),
                                 shape_text(t),
                                 s.count ? fmt::format("{:.4g}", s.min) : "-",
                                 s.count ? fmt::format("{:.4g}", s.sum / double(s.count)) : "-",
                                 s.count ? fmt::format("{:.4g}", s.max) : "-",
                                 human_count(s.not_finite)};
    if (options.check) {
      const Harness::Output& out = compared[at++];
      row.push_back(fmt::format("{:.2e}", out.comparison.worst_error));
      row.push_back(fmt::format("{:.0f} %", 100 * out.comparison.worst_ratio));
      row.push_back(yes_no(out.ok()));
      if (!out.ok()) {
        ok = false;
        wrong.push_back(
            fmt::format("\"{}\": {}", t.name, out.comparison.ok() ? out.inexact_text : out.comparison.text()));
      }
    }
    table.row(std::move(row));
  }
  for (const Binding& b : outputs) {
    std::string note;
    auto bytes = tensor_to_npy(graph.tensor(b.tensor), harness.memory(b.tensor), note);
    if (!bytes) fail("{}", bytes.status().get_message());
    write_text(b.file, *bytes);
    notes.push_back(fmt::format("wrote {}{}", b.file, note.empty() ? "" : ": " + note));
  }

  const Timing timing = session.time(harness, index, options.repeat, 0.33);
  const ir::Cost cost = ir::cost(graph);
  const double seconds = timing.median_ms / 1e3;
  std::cout << bold("time   ")
            << fmt::format("{} median of {} runs ({} to {})\n", human_time(timing.median_ms), timing.runs,
                           human_time(timing.min_ms), human_time(timing.max_ms));
  std::cout << bold("rate   ")
            << fmt::format("{}, {}\n", human_rate(cost.flops / seconds, "FLOP/s"),
                           human_rate(cost.bytes / seconds, "B/s"));
  std::cout << bold("inputs ")
            << (options.integers ? fmt::format("small integers, seed {}", options.seed)
                                 : fmt::format("random, seed {}", options.seed))
            << (inputs.empty() ? "" : fmt::format("; {} from files", inputs.size())) << "\n\n"
            << table.text();
  for (const std::string& note : notes) std::cout << faint("note: " + note) << '\n';
  for (const std::string& text : wrong) std::cerr << red("wrong: ") << text << '\n';
  return ok ? 0 : 1;
}

}  // namespace tilewright::tool
