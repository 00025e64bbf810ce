// A small layered layout of a directed acyclic graph, top to bottom: ranks, an order within each that crosses few
// edges, coordinates without overlaps, and paths that pass between the boxes.
#pragma once

#include <vector>

namespace tilewright::tool {

struct LayoutVertex {
  double width = 0, height = 0;  // in
  int rank = 0;                  // in: 0 at the top; every edge must go downwards
  double x = 0, y = 0;           // out: left and top
};

struct Point {
  double x, y;
};

struct LayoutEdge {
  int from = 0, to = 0;
  double from_offset = 0, to_offset = 0;  // from the middle of the lower and of the upper side
  std::vector<Point> path;                // out: first and last on the boxes, one more per rank passed
};

struct LayoutSize {
  double width = 0, height = 0;
};

LayoutSize lay_out(std::vector<LayoutVertex>& vertices, std::vector<LayoutEdge>& edges);

}  // namespace tilewright::tool
