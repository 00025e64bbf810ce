// The command line of the tool: verbs, options, help. The work is in one file per verb.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <iostream>

#include "chosen_device.h"
#include "terminal.h"
#include "tilewright/device.h"
#include "verbs.h"

namespace tilewright::tool {
namespace {

constexpr int kUsageError = 2;

using Action = std::function<int()>;

// A verb with its options bound to a fresh option object.
template <class Options>
std::pair<CLI::App*, std::shared_ptr<Options>> verb(CLI::App& app, Action& action, const char* name,
                                                    const char* summary, int (*work)(const Options&),
                                                    const char* examples) {
  CLI::App* sub = app.add_subcommand(name, summary);
  auto options = std::make_shared<Options>();
  sub->callback([&action, options, work] { action = [options, work] { return work(*options); }; });
  sub->footer(std::string("Examples:\n") + examples);
  return {sub, options};
}

template <class Options>
void add_device(CLI::App* verb, const std::shared_ptr<Options>& options) {
  verb->add_option("--device", options->device, kDeviceHelp)->type_name("DEVICE");
}

void add_verbs(CLI::App& app, Action& action) {
  {
    auto [v, o] = verb<DoctorOptions>(
        app, action, "doctor", "What this machine has, which engines that enables, how to get the rest", doctor,
        "  tilewright doctor\n"
        "  tilewright doctor --verbose              where cuDNN and the like were looked for\n"
        "  tilewright doctor --json | jq .engines\n");
    v->add_flag("--json", o->json, "Print JSON instead of tables");
    v->add_flag("--verbose", o->verbose, "Every place where a library was looked for, also of those that are found");
  }
  {
    auto [v, o] = verb<TourOptions>(app, action, "tour",
                                    "Eight problems on real data, each checked against the exact reference", tour,
                                    "  tilewright tour                 all eight sections\n"
                                    "  tilewright tour --quick         the same with small sizes, in seconds\n"
                                    "  tilewright tour 4 5             matmul and attention only\n\n"
                                    "Each section is a program of its own in examples/.\n");
    v->add_flag("--quick", o->quick, "Small sizes");
    v->add_option("sections", o->sections, "Sections to run, 1 to 8 (default: all)")->check(CLI::Range(1, 8));
    add_device(v, o);
  }
  {
    auto [v, o] = verb<RunOptions>(
        app, action, "run", "Run one plan of a graph on random or given inputs", run,
        "  tilewright run examples/graphs/matmul_gelu.json\n"
        "  tilewright run g.json --check --engine cpu.fused\n"
        "  tilewright run g.json --device cpu\n"
        "  tilewright run g.json --in X=x.npy --in W=w.npy --out Y=y.npy\n\n"
        "Random inputs suit the ops that read them: variances are positive, sequence lengths fit. BFLOAT16 travels in\n"
        ".npy files as raw u2, FP8 as raw u1. Without --engine or --plan, the best plan of the ranking runs.\n");
    v->add_option("graph", o->graph, "Graph file (- for standard input); see docs/graph-file.md")->required();
    v->add_option("--in", o->inputs, "NAME=FILE.npy: contents of an input; may be repeated")
        ->type_name("NAME=FILE")
        ->allow_extra_args(false);
    v->add_option("--out", o->outputs, "NAME=FILE.npy: where to write an output; may be repeated")
        ->type_name("NAME=FILE")
        ->allow_extra_args(false);
    auto* engine = v->add_option("--engine", o->engine, "The best plan whose name contains this");
    v->add_option("--plan", o->plan, "The plan with this index, as `tilewright plans` lists them")->excludes(engine);
    v->add_flag("--check", o->check, "Compare the outputs with the exact reference (exit code 1 when one is wrong)");
    v->add_option("--repeat", o->repeat, "Timed runs (default: what fits into a third of a second)")
        ->check(CLI::PositiveNumber);
    v->add_option("--seed", o->seed, "Seed of the random inputs")->capture_default_str();
    v->add_flag("--integers", o->integers, "Small integers instead of random numbers");
    add_device(v, o);
  }
  {
    auto [v, o] = verb<TuneOptions>(
        app, action, "tune", "Build, check and time every plan of a graph", tune,
        "  tilewright tune g.json\n"
        "  tilewright tune g.json --engine cpu --seconds 2\n"
        "  tilewright tune g.json --json tuned.json\n\n"
        "Time is the median after a warm-up, on a GPU by its events and on memory that rotates past its cache; spread "
        "is\n"
        "(max - min) / median. \"of limit\" is the share of what copies and a large matmul reach here. Error is the "
        "largest difference from the\n"
        "double-precision reference, and \"of bound\" the largest share of what rounding could explain (100 % at "
        "most).\n");
    v->add_option("graph", o->graph, "Graph file (- for standard input)")->required();
    v->add_option("--engine", o->engine, "Only plans whose name contains this");
    v->add_option("--seconds", o->seconds, "Time spent on each plan")
        ->capture_default_str()
        ->check(CLI::NonNegativeNumber);
    v->add_option("--json", o->json, "Also write the results to this file (-: only that, to standard output)");
    v->add_option("--seed", o->seed, "Seed of the random inputs")->capture_default_str();
    v->add_flag("!--no-check", o->check, "Do not compare with the reference");
    add_device(v, o);
  }
  {
    auto [v, o] = verb<ExplainOptions>(app, action, "explain",
                                       "The graph, and for each engine: yes, or every reason why not", explain,
                                       "  tilewright explain g.json\n"
                                       "  tilewright explain g.json --device h200\n"
                                       "  tilewright explain g.json --json | jq '.engines[].regions'\n"
                                       "  tilewright explain g.json --source --device sm_80    its GPU kernels\n");
    v->add_option("graph", o->graph, "Graph file (- for standard input)")->required();
    v->add_flag("--json", o->json, "Print JSON instead of text");
    auto* source =
        v->add_flag("--source", o->source, "Print the CUDA C++ that our kernels are compiled from, and only that");
    v->add_option("--plan", o->plan, "With --source: of the plan with this index (default: the first that has any)")
        ->needs(source);
    add_device(v, o);
  }
  {
    auto [v, o] = verb<ExplainOptions>(app, action, "plans", "The plan list of a graph", plans,
                                       "  tilewright plans g.json\n"
                                       "  tilewright plans g.json --device h200     as on an H200, without one\n"
                                       "  tilewright run g.json --plan 2\n");
    v->add_option("graph", o->graph, "Graph file (- for standard input)")->required();
    v->add_flag("--json", o->json, "Print JSON instead of a table");
    add_device(v, o);
  }
  {
    auto [v, o] = verb<CompileOptions>(
        app, action, "compile", "Graphs to plan files, ahead of time: for a GPU that need not be here", compile,
        "  tilewright compile g.json --target sm_90a -o plan.tw     machine code for an H100 or H200\n"
        "  tilewright compile *.json --target compute_75 -o plans/  PTX: any GPU from 7.5 on, assembled there by its "
        "driver\n"
        "  tilewright run plan.tw --check                           where that GPU is; Graph::deserialize in a "
        "program\n\n"
        "A target is an architecture (sm_75 ... sm_120a, compute_NN for PTX), a profile (h200), any text that\n"
        "`tilewright plans` prints, or native. Machine code of sm_80 runs on 8.0, 8.6 and 8.9, that of sm_90a and "
        "later on its\n"
        "own capability alone. Compiling needs NVRTC; what is compiled needs only the GPU's driver.\n");
    v->add_option("graphs", o->graphs, "Graph files; see docs/graph-file.md")->required();
    v->add_option("--target", o->target, "What to compile for; native: the device that --device auto would take")
        ->type_name("TARGET")
        ->capture_default_str();
    v->add_option("-o,--output", o->output, "Plan file; a folder, which gets NAME.tw, where there are several graphs")
        ->required();
    v->add_option(
        "--engine", o->engine,
        "The best plan whose name contains this (default: of engine cuda on a GPU, whose plans carry their machine "
        "code; the best on a CPU)");
  }
  {
    auto [v, o] = verb<ShowOptions>(app, action, "show",
                                    "A picture of a graph: SVG, with the regions that one kernel computes", show,
                                    "  tilewright show g.json                    writes g.svg\n"
                                    "  tilewright show g.json -o - | rsvg-convert -o g.png\n");
    v->add_option("graph", o->graph, "Graph file (- for standard input)")->required();
    v->add_option("-o,--output", o->output, "SVG file (-: standard output; default: the graph's name with .svg)");
    v->add_option("--engine", o->engine, "Regions of the first plan whose name contains this (default: the best plan)");
    add_device(v, o);
  }
  {
    auto [v, o] =
        verb<CheckOptions>(app, action, "check", "All plans against the exact reference, on guarded memory", check,
                           "  tilewright check examples/graphs/*.json\n"
                           "  tilewright check g.json --plan 1 --fill integers --seed 7 --seeds 1\n\n"
                           "Outputs start as NaN, gaps between elements and bands around every buffer hold patterns, "
                           "inputs have NaN in their\n"
                           "gaps. Integer fills demand exact results. A failure prints the line that repeats it.\n");
    v->add_option("graphs", o->graphs, "Graph files")->required();
    v->add_option("--engine", o->engine, "Only plans whose name contains this");
    v->add_option("--plan", o->plan, "Only the plan with this index");
    v->add_option("--fill", o->fill, "random, integers or both")
        ->check(CLI::IsMember({"random", "integers", "both"}))
        ->capture_default_str();
    v->add_option("--seed", o->seed, "First seed")->capture_default_str();
    v->add_option("--seeds", o->seeds, "Number of seeds")->capture_default_str()->check(CLI::Range(1, 1000000));
    v->add_flag("-q,--quiet", o->quiet, "Print failures only");
    add_device(v, o);
  }
  {
    auto [v, o] = verb<OpsOptions>(app, action, "ops", "The ops of graph files: ports and attributes", ops,
                                   "  tilewright ops\n"
                                   "  tilewright ops conv_fprop\n");
    v->add_option("op", o->op, "Tell all of this op");
  }
  {
    auto [v, o] = verb<ImportOptions>(app, action, "import",
                                      "Turn a graph that a cuDNN Frontend log shows into a graph file", import_log,
                                      "  CUDNN_FRONTEND_LOG_INFO=1 CUDNN_FRONTEND_LOG_FILE=fe.log ./program\n"
                                      "  tilewright import fe.log -o g.json        the last graph of the log\n"
                                      "  tilewright import fe.log --all | head     every graph, one JSON array\n"
                                      "  tilewright import pasted.json | tilewright run -\n\n"
                                      "Also takes a whole file that is the JSON of one graph, as pasted in bug "
                                      "reports. Says what was changed or lost.\n");
    v->add_option("log", o->log, "Log or JSON file (- for standard input)")->required();
    v->add_option("-o,--output", o->output, "Graph file (-: standard output)")->capture_default_str();
    auto* all = v->add_flag("--all", o->all, "All graphs, as a JSON array");
    v->add_option("--index", o->index, "The graph with this position in the log, from 0 (default: the last)")
        ->excludes(all);
  }
}

int main_of_tool(int argc, char** argv) {
  CLI::App app{
      "Tilewright runs graphs of deep-learning operations, written in the vocabulary of cuDNN Frontend, on this\n"
      "machine: `tilewright doctor` says what it has, `tilewright tour` shows eight problems at work."};
  app.name("tilewright");
  app.footer(
      "Start with `tilewright tour`, then `tilewright tune examples/graphs/conv_bias_relu.json`.\n"
      "`tilewright VERB --help` has examples of each verb. Exit codes: 0 right, 1 something is wrong, 2 usage.");
  app.set_version_flag("--version", std::string("tilewright ") + version_string());
  app.require_subcommand(1);
  Action action;
  add_verbs(app, action);
  if (argc < 2) {
    std::cerr << app.help();
    return kUsageError;
  }
  const auto verbs = app.get_subcommands([](CLI::App*) { return true; });
  const bool known = std::any_of(verbs.begin(), verbs.end(), [&](auto* v) { return v->get_name() == argv[1]; });
  if (argv[1][0] != '-' && !known) {
    std::cerr << "tilewright: there is no verb \"" << argv[1] << "\"; the verbs are";
    for (const CLI::App* v : verbs) std::cerr << (v == verbs.front() ? " " : ", ") << v->get_name();
    std::cerr << '\n';
    return kUsageError;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e, std::cout, std::cerr);
    return code == 0 ? 0 : kUsageError;
  }
  try {
    const int code = action();
    std::cout.flush();
    if (!std::cout) fail("cannot write to standard output");
    return code;
  } catch (const Failure& failure) {
    std::cout.flush();
    std::cerr << "tilewright: " << failure.message << '\n';
    return failure.exit_code;
  } catch (const std::exception& e) {  // out of memory, or a bug
    std::cout.flush();
    std::cerr << "tilewright: " << e.what() << '\n';
    return 1;
  }
}

}  // namespace
}  // namespace tilewright::tool

int main(int argc, char** argv) { return tilewright::tool::main_of_tool(argc, argv); }
