// Graphs as cuDNN Frontend logs or serializes them, in today's and in older spellings, turned into graph files.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace tilewright::tool {

using nlohmann::ordered_json;

// Every JSON object of a graph ("context" and "nodes") in the text: whole files, one-line log entries with or without
// a prefix, pretty-printed ones in the middle of prose.
std::vector<ordered_json> find_graphs(const std::string& text);

struct Imported {
  ordered_json graph;              // in the form of our graph files
  std::vector<std::string> notes;  // what was renamed, completed or lost
};
// UNSUPPORTED_GRAPH_FORMAT when a field has a type that it never has.
Result<Imported> convert_graph(const ordered_json& logged);

// JSON with short objects and arrays on one line.
std::string pretty(const ordered_json& json, size_t width = 118);

}  // namespace tilewright::tool
