#include "contest.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "base/thread_pool.h"
#include "engines/onednn/lower.h"
#include "frontend/builder.h"
#include "ops/reference.h"

namespace tilewright::bench {
namespace {

double status_bytes(const char* key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.rfind(key, 0) == 0) return std::stod(line.substr(std::strlen(key) + 1)) * 1024;
  return 0;
}

// Copies with stores that go around the cache.
void stream_copy(char* to, const char* from, size_t bytes) {
#if defined(__SSE2__)
  for (size_t i = 0; i + 64 <= bytes; i += 64)
    for (size_t k = 0; k < 64; k += 16)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i + k),
                       _mm_load_si128(reinterpret_cast<const __m128i*>(from + i + k)));
  _mm_sfence();
#else
  std::memcpy(to, from, bytes);
#endif
}

// Our plans, ranked. The slow reference engine is not among them.
Status add_plans(GraphPtr graph, const std::shared_ptr<Tensors>& tensors, std::vector<Contestant>& list) {
  TW_RETURN_IF_BAD(graph->build({HeurMode_t::A}, BuildPlanPolicy_t::ALL));
  const std::shared_ptr<const ir::Graph> ir = graph->impl().frozen.graph;
  int64_t most = 0;
  for (const PlanInfo& p : graph->plans())
    if (p.state == PlanState::Built) most = std::max(most, p.workspace_bytes);
  auto packs = std::make_shared<std::vector<std::unordered_map<int64_t, void*>>>();
  for (int s = 0; s < tensors->sets(); ++s) packs->push_back(tensors->pack(*ir, s));
  for (const PlanInfo& p : graph->plans()) {
    if (p.state != PlanState::Built) continue;
    std::shared_ptr<char> workspace = allocate_pages(size_t(p.workspace_bytes) + 64);
    Contestant c;
    c.name = p.name, c.engine = p.engine, c.rank = p.index, c.workspace_bytes = p.workspace_bytes;
    c.graph = ir, c.tensors = tensors;
    c.run = [graph, packs, workspace, index = p.index](int set) {
      return graph->execute_plan_at_index(Handle{}, (*packs)[size_t(set)], workspace.get(), index);
    };
    list.push_back(std::move(c));
  }
  return {};
}

Result<std::shared_ptr<const ir::Graph>> frozen(GraphPtr graph) {
  TW_RETURN_IF_BAD(graph->validate());
  TW_RETURN_IF_BAD(graph->build_operation_graph());
  return graph->impl().frozen.graph;
}

// oneDNN's fastest way to run a graph: with the layout of weights as it is, or as the library likes it best.
Result<Contestant> make_onednn(GraphPtr graph, const std::shared_ptr<Tensors>& tensors, bool separate) {
  if (!onednn::lookup().problem.empty()) return not_supported("{}", onednn::lookup().problem);
  TW_ASSIGN_OR_RETURN(const std::shared_ptr<const ir::Graph> ir, frozen(graph));
  tensors->add(*ir);
  tensors->spread();
  std::vector<Contestant> ways;
  std::string why;
  for (const bool any_weights : {false, true}) {
    onednn::Program program = onednn::lower(*ir, {!separate, any_weights, true, thread_count()});
    if (!program.reasons.empty()) {
      why = describe(*ir, program.reasons[0]);
      continue;
    }
    Contestant c;
    c.name = "onednn";
    for (const onednn::Launch& launch : program.launches)
      c.name += fmt::format(" {}[{}]", launch.name, launch.implementation);
    std::shared_ptr<Executable> executable = onednn::make_executable(*ir, std::move(program), thread_count());
    if (!executable) continue;
    std::shared_ptr<char> workspace = allocate_pages(size_t(executable->workspace_bytes()) + 64);
    std::vector<Bindings> bindings;
    for (int s = 0; s < tensors->sets(); ++s) bindings.push_back(tensors->bindings(*ir, s));
    c.workspace_bytes = executable->workspace_bytes();
    c.graph = ir, c.tensors = tensors, c.exact_bounds = false;
    c.run = [executable, bindings, workspace](int set) {
      return executable->run(bindings[size_t(set)], workspace.get(), {});
    };
    ways.push_back(std::move(c));
  }
  if (ways.empty()) return not_supported("{}", why);
  if (ways.size() == 1) return ways[0];
  for (int round = 0; round < 6; ++round)
    for (Contestant& c : ways) {
      const auto start = std::chrono::steady_clock::now();
      TW_RETURN_IF_BAD(c.run(round % tensors->sets()));
      c.ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    }
  Contestant& best = median(ways[0].ms) <= median(ways[1].ms) ? ways[0] : ways[1];
  best.ms.clear();
  return best;
}

// Copying half of so many bytes to the other half.
Contestant make_copy(double bytes) {
  static constexpr size_t chunk = 1 << 20;
  const size_t half = size_t(bytes / 2) / 4096 * 4096;
  const int sets = Tensors::sets_for(double(half) * 2);
  std::vector<std::shared_ptr<char>> memory;
  for (int s = 0; s < 2 * sets; ++s) {
    memory.push_back(allocate_pages(half));
    std::memset(memory.back().get(), s, half);
  }
  Contestant c;
  c.name = "copy";
  // The better of the two kinds of stores, found when it first runs.
  auto copy = [memory, half, sets](int set, bool streaming) {
    char* to = memory[size_t(set % sets) * 2].get();
    const char* from = memory[size_t(set % sets) * 2 + 1].get();
    parallel_for(int64_t((half + chunk - 1) / chunk), [&](int64_t i) {
      const size_t at = size_t(i) * chunk, bytes = std::min(chunk, half - at);
      if (streaming) stream_copy(to + at, from + at, bytes);
      else std::memcpy(to + at, from + at, bytes);
    });
  };
  std::vector<double> ms[2];
  for (int round = 0; round < 5; ++round)
    for (int streaming : {0, 1}) {
      const auto start = std::chrono::steady_clock::now();
      copy(round, streaming);
      ms[streaming].push_back(
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    }
  c.run = [copy, streaming = median(ms[1]) < median(ms[0])](int set) {
    copy(set, streaming);
    return Status{};
  };
  return c;
}

std::shared_ptr<Tensors> make_tensors(const Row& row, DataType_t type, const ir::Graph& ir) {
  auto tensors = std::make_shared<Tensors>(Tensors::sets_for(bytes_of(ir)), row.fill);
  if (row.inputs_from) {
    std::vector<Contestant> makers;
    GraphPtr graph = row.inputs_from(type);
    auto from = frozen(graph);
    TW_CHECK(from);
    tensors->add(**from);
    const Status built = add_plans(graph, tensors, makers);
    TW_CHECK(built.is_good() && makers[0].run(0).is_good());
  }
  tensors->add(ir);
  tensors->spread();
  return tensors;
}

}  // namespace

Result<Contest> make_contest(const Row& row) {
  Contest contest;
  GraphPtr graph = row.make(row.type);
  TW_ASSIGN_OR_RETURN(const std::shared_ptr<const ir::Graph> ir, frozen(graph));
  const std::shared_ptr<Tensors> tensors = make_tensors(row, row.type, *ir);
  TW_RETURN_IF_BAD(add_plans(graph, tensors, contest.ours));
  for (const Against against : row.peers) {
    Contestant peer;
    if (against == Against::Copy) {
      peer = make_copy(bytes_of(*ir));
    } else if (against == Against::OwnFloat) {
      GraphPtr wide = row.make(DataType_t::FLOAT);
      TW_ASSIGN_OR_RETURN(const std::shared_ptr<const ir::Graph> wide_ir, frozen(wide));
      std::vector<Contestant> plans;
      TW_RETURN_IF_BAD(add_plans(wide, make_tensors(row, DataType_t::FLOAT, *wide_ir), plans));
      for (Contestant& c : plans)
        if (c.engine == "cpu.fused" && !peer.run) peer = c;
      peer.name = "own FLOAT";
    } else {
      auto found = make_onednn((row.peer_graph ? row.peer_graph : row.make)(row.type), tensors,
                               against == Against::OneDnnSeparate);
      if (found) peer = std::move(*found);
      else contest.missing = found.status().err_msg;
    }
    contest.peers.push_back(std::move(peer));
  }
  return contest;
}

Status check(const Row& row, Contestant& c) {
  if (!c.graph) return {};
  c.tensors->poison(*c.graph);
  TW_RETURN_IF_BAD(c.run(0));
  for (const uint64_t seed : {1, 2}) {
    const Sample sample = row.sample(c.graph->io_type, seed);
    TW_ASSIGN_OR_RETURN(const std::shared_ptr<const ir::Graph> part, frozen(sample.graph));
    Bindings inputs(part->tensors.size(), nullptr), outputs = inputs;
    for (size_t id = 0; id < part->tensors.size(); ++id) {
      const ir::Tensor& t = part->tensors[id];
      char* memory = static_cast<char*>(c.tensors->at(memory_name(t), 0));
      if (!t.bound_by_caller() || !memory) continue;
      auto at = sample.offsets.find(t.name);
      if (at != sample.offsets.end()) memory += at->second * element_bits(t.storage_type()) / 8;
      (t.role == ir::Role::Output ? outputs : inputs)[id] = memory;
    }
    TW_ASSIGN_OR_RETURN(const std::vector<RefTensor> values, evaluate_reference(*part, inputs));
    for (size_t id = 0; id < part->tensors.size(); ++id) {
      const ir::Tensor& t = part->tensors[id];
      // What the contestant's graph does not make is not judged.
      const bool made = std::any_of(c.graph->tensors.begin(), c.graph->tensors.end(), [&](const ir::Tensor& o) {
        return o.role == ir::Role::Output && o.name == t.name;
      });
      if (!outputs[id] || !made) continue;
      const Comparison result = compare(values[id], outputs[id]);
      double largest = 0;
      for (const Bounded& v : values[id].values) largest = std::max(largest, std::fabs(v.v));
      const double allowed = largest * (t.type == DataType_t::FLOAT ? 1e-4 : 2e-2);
      if (c.exact_bounds ? !result.ok() : !(result.worst_error <= allowed))
        return error(error_code_t::GRAPH_EXECUTION_FAILED, "{}: \"{}\": {}, worst error {:.2e}", c.name, t.name,
                     result.text(), result.worst_error);
    }
  }
  return {};
}

int64_t peak_extra_bytes(Contestant& c) {
  const double before = status_bytes("VmRSS:");
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts anew
  if (c.run(0).is_bad()) return 0;
  return std::max(c.workspace_bytes, int64_t(status_bytes("VmHWM:") - before));
}

}  // namespace tilewright::bench
