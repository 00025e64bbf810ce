// tilewright import: a graph of a log as a graph file.
#include <iostream>

#include "import_log.h"
#include "terminal.h"
#include "tilewright/graph.h"
#include "verbs.h"

namespace tilewright::tool {

int import_log(const ImportOptions& options) {
  const std::vector<ordered_json> found = find_graphs(read_text(options.log));
  if (found.empty())
    fail("\"{}\" holds no graph. A log has one line with \"context\" per graph when CUDNN_FRONTEND_LOG_INFO=1 is set",
         options.log);
  if (options.index >= int64_t(found.size()))
    fail("\"{}\" holds {} graphs; there is no index {}", options.log, found.size(), options.index);
  const size_t first = options.all ? 0 : options.index >= 0 ? size_t(options.index) : found.size() - 1;
  const size_t last = options.all ? found.size() : first + 1;

  ordered_json out = ordered_json::array();
  for (size_t i = first; i < last; ++i) {
    Result<Imported> imported = convert_graph(found[i]);
    if (!imported) fail("\"{}\", graph {}: {}", options.log, i, imported.status().get_message());
    std::cerr << fmt::format("graph {} of {}\n", i, found.size());
    for (const std::string& note : imported->notes) std::cerr << "  note: " << note << '\n';
    // Whether it loads here is worth knowing now.
    graph::Graph graph;
    Status status = graph.deserialize(Json::parse(imported->graph.dump()));
    if (status.is_good()) status = graph.validate();
    std::cerr << (status.is_good() ? "  valid\n" : fmt::format("  not valid here: {}\n", status.get_message()));
    out.push_back(std::move(imported->graph));
  }
  write_text(options.output, pretty(options.all ? out : out[0]));
  return 0;
}

}  // namespace tilewright::tool
