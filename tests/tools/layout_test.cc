#include "layout.h"

#include <gtest/gtest.h>

#include <random>

#include "table.h"

namespace tilewright::tool {
namespace {

// Random graphs, ranked: no two boxes may touch, every edge must run downwards from box to box.
TEST(Layout, BoxesNeverOverlap) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    std::vector<LayoutVertex> vertices;
    std::vector<LayoutEdge> edges;
    const int count = 2 + int(random() % 40);
    for (int i = 0; i < count; ++i)
      vertices.push_back({10.0 + double(random() % 200), 10.0 + double(random() % 60), int(random() % 8), 0, 0});
    for (int i = 0; i < count; ++i)
      for (int j = 0; j < count; ++j)
        if (vertices[size_t(i)].rank < vertices[size_t(j)].rank && random() % 8 == 0) edges.push_back({i, j, 0, 3, {}});
    const LayoutSize size = lay_out(vertices, edges);
    for (size_t i = 0; i < vertices.size(); ++i) {
      const LayoutVertex& a = vertices[i];
      EXPECT_GE(a.x, -1e-6);
      EXPECT_LE(a.x + a.width, size.width + 1e-6);
      EXPECT_LE(a.y + a.height, size.height + 1e-6);
      for (size_t j = 0; j < i; ++j) {
        const LayoutVertex& b = vertices[j];
        const bool apart =
            a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y;
        EXPECT_TRUE(apart) << "seed " << seed << ": boxes " << i << " and " << j;
      }
    }
    for (const LayoutEdge& e : edges) {
      ASSERT_GE(e.path.size(), 2u);
      for (size_t i = 1; i < e.path.size(); ++i) EXPECT_GE(e.path[i].y, e.path[i - 1].y) << "seed " << seed;
      const LayoutVertex& to = vertices[size_t(e.to)];
      EXPECT_NEAR(e.path.back().x, to.x + to.width / 2 + 3, 1e-6);
      EXPECT_NEAR(e.path.back().y, to.y, 1e-6);
    }
  }
}

TEST(Layout, AChainIsStraight) {
  std::vector<LayoutVertex> vertices = {{80, 20, 0, 0, 0}, {40, 20, 1, 0, 0}, {120, 20, 2, 0, 0}};
  std::vector<LayoutEdge> edges = {{0, 1, 0, 0, {}}, {1, 2, 0, 0, {}}};
  lay_out(vertices, edges);
  EXPECT_NEAR(vertices[0].x + 40, vertices[1].x + 20, 1e-6);
  EXPECT_NEAR(vertices[1].x + 20, vertices[2].x + 60, 1e-6);
}

TEST(Layout, TakesAnEmptyGraph) {
  std::vector<LayoutVertex> vertices;
  std::vector<LayoutEdge> edges;
  EXPECT_EQ(lay_out(vertices, edges).height, 0);
}

TEST(Table, AlignsColumnsAndTrimsTheEnd) {
  Table table;
  table.column("name").column("n", Table::Right).column("note");
  table.row({"a", "1"}).row({"long name", "1234", "x"});
  EXPECT_EQ(table.text(1),
            " name          n  note\n"
            " a             1\n"
            " long name  1234  x\n");
}

TEST(Table, CountsCharactersNotBytesAndNoColours) {
  EXPECT_EQ(display_width("\xc3\xa9t\xc3\xa9"), 3u);
  EXPECT_EQ(display_width("\033[32mok\033[0m"), 2u);
}

}  // namespace
}  // namespace tilewright::tool
