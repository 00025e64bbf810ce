#include "layout.h"

#include <algorithm>
#include <cstdint>

namespace tilewright::tool {

namespace {

constexpr double kGapX = 22, kGapY = 34;  // between boxes, in pixels
constexpr double kBend = 12;              // width that a passing edge takes within a rank
constexpr int kOrderSweeps = 12, kPlaceSweeps = 24;

// A box, or the place where a long edge passes a rank.
struct Item {
  double width, height;
  int rank;
  double middle = 0;  // x
  int vertex;         // -1: an edge passing
};

struct Link {  // between neighbouring ranks
  int up, down;
  double up_offset, down_offset;
};

class Layout {
 public:
  Layout(std::vector<LayoutVertex>& vertices, std::vector<LayoutEdge>& edges) : vertices_(vertices), edges_(edges) {
    for (size_t v = 0; v < vertices.size(); ++v)
      items_.push_back({vertices[v].width, vertices[v].height, vertices[v].rank, 0, int(v)});
    for (LayoutEdge& e : edges) {
      std::vector<int> chain{e.from};
      for (int r = vertices[size_t(e.from)].rank + 1; r < vertices[size_t(e.to)].rank; ++r) {
        chain.push_back(int(items_.size()));
        items_.push_back({kBend, 0, r, 0, -1});
      }
      chain.push_back(e.to);
      for (size_t i = 0; i + 1 < chain.size(); ++i)
        links_.push_back({chain[i], chain[i + 1], i == 0 ? e.from_offset : 0, i + 2 == chain.size() ? e.to_offset : 0});
      chains_.push_back(std::move(chain));
    }
    above_.resize(items_.size());
    below_.resize(items_.size());
    for (size_t l = 0; l < links_.size(); ++l)
      above_[size_t(links_[l].down)].push_back(int(l)), below_[size_t(links_[l].up)].push_back(int(l));
    for (size_t i = 0; i < items_.size(); ++i) {
      if (ranks_.size() <= size_t(items_[i].rank)) ranks_.resize(size_t(items_[i].rank) + 1);
      ranks_[size_t(items_[i].rank)].push_back(int(i));
    }
  }

  LayoutSize run() {
    order();
    place();
    return write_out();
  }

 private:
  // Where the neighbours on one side would have the item: the mean over its links. False without any.
  bool wish(int item, bool from_above, double& x) const {
    double sum = 0;
    const auto& links = from_above ? above_[size_t(item)] : below_[size_t(item)];
    for (int l : links) {
      const Link& k = links_[size_t(l)];
      sum += from_above ? items_[size_t(k.up)].middle + k.up_offset - k.down_offset
                        : items_[size_t(k.down)].middle + k.down_offset - k.up_offset;
    }
    if (links.empty()) return false;
    x = sum / double(links.size());
    return true;
  }

  void pack(const std::vector<int>& rank) {  // side by side, from 0 on
    double x = 0;
    for (int i : rank) {
      Item& item = items_[size_t(i)];
      item.middle = x + item.width / 2;
      x += item.width + kGapX;
    }
  }

  int64_t crossings() const {
    int64_t count = 0;
    for (size_t a = 0; a < links_.size(); ++a)
      for (size_t b = a + 1; b < links_.size(); ++b) {
        const Link &p = links_[a], &q = links_[b];
        if (items_[size_t(p.up)].rank != items_[size_t(q.up)].rank) continue;
        const double up = items_[size_t(p.up)].middle + p.up_offset - items_[size_t(q.up)].middle - q.up_offset;
        const double down =
            items_[size_t(p.down)].middle + p.down_offset - items_[size_t(q.down)].middle - q.down_offset;
        count += up * down < 0;
      }
    return count;
  }

  // Barycentre sweeps, down and up; the best order seen is kept.
  void order() {
    for (const auto& rank : ranks_) pack(rank);
    const bool count = links_.size() < 2000;  // counting is quadratic
    auto best = ranks_;
    int64_t least = count ? crossings() : 0;
    for (int sweep = 0; sweep < kOrderSweeps; ++sweep) {
      const bool down = sweep % 2 == 0;
      for (size_t n = 0; n < ranks_.size(); ++n) {
        auto& rank = ranks_[down ? n : ranks_.size() - 1 - n];
        std::vector<double> key(items_.size());
        for (int i : rank)
          if (!wish(i, down, key[size_t(i)])) key[size_t(i)] = items_[size_t(i)].middle;
        std::stable_sort(rank.begin(), rank.end(), [&](int a, int b) { return key[size_t(a)] < key[size_t(b)]; });
        pack(rank);
      }
      const int64_t now = count ? crossings() : -sweep;
      if (now < least) least = now, best = ranks_;
    }
    ranks_ = best;
    for (const auto& rank : ranks_) pack(rank);
  }

  // Moves every item towards its neighbours, keeping order and gaps: the mean of the tightest packing from the left
  // and of that from the right.
  void place() {
    for (int sweep = 0; sweep < kPlaceSweeps; ++sweep) {
      const bool down = sweep % 2 == 0;
      for (size_t n = 0; n < ranks_.size(); ++n) {
        const auto& rank = ranks_[down ? n : ranks_.size() - 1 - n];
        if (rank.empty()) continue;
        std::vector<double> want(rank.size()), left(rank.size()), right(rank.size());
        for (size_t i = 0; i < rank.size(); ++i) {
          double above = 0, below = 0;
          const bool a = wish(rank[i], true, above), b = wish(rank[i], false, below);
          // The last sweeps look both ways.
          const bool both = sweep + 4 >= kPlaceSweeps;
          want[i] = a && b && both         ? (above + below) / 2
                    : (down ? a : !b && a) ? above
                    : b                    ? below
                                           : items_[size_t(rank[i])].middle;
        }
        const auto least = [&](size_t i) {  // distance of the middles of i - 1 and i
          return (items_[size_t(rank[i - 1])].width + items_[size_t(rank[i])].width) / 2 + kGapX;
        };
        left = right = want;
        for (size_t i = 1; i < rank.size(); ++i) left[i] = std::max(left[i], left[i - 1] + least(i));
        for (size_t i = rank.size() - 1; i-- > 0;) right[i] = std::min(right[i], right[i + 1] - least(i + 1));
        for (size_t i = 0; i < rank.size(); ++i) items_[size_t(rank[i])].middle = (left[i] + right[i]) / 2;
      }
    }
  }

  LayoutSize write_out() {
    double least = 0, most = 0, y = 0;
    bool first = true;
    for (const Item& item : items_) {
      const double l = item.middle - item.width / 2, r = item.middle + item.width / 2;
      least = first ? l : std::min(least, l);
      most = first ? r : std::max(most, r);
      first = false;
    }
    std::vector<double> centre(ranks_.size()), height(ranks_.size());
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (int i : ranks_[r]) height[r] = std::max(height[r], items_[size_t(i)].height);
      centre[r] = y + height[r] / 2;
      y += height[r] + kGapY;
    }
    for (const Item& item : items_) {
      if (item.vertex < 0) continue;
      LayoutVertex& v = vertices_[size_t(item.vertex)];
      v.x = item.middle - item.width / 2 - least;
      v.y = centre[size_t(item.rank)] - item.height / 2;
    }
    for (size_t e = 0; e < edges_.size(); ++e) {
      LayoutEdge& edge = edges_[e];
      edge.path.clear();
      for (int i : chains_[e]) {
        const Item& item = items_[size_t(i)];
        const double x = item.middle - least, middle = centre[size_t(item.rank)];
        if (i == edge.from) {
          edge.path.push_back({x + edge.from_offset, middle + item.height / 2});
        } else if (i == edge.to) {
          edge.path.push_back({x + edge.to_offset, middle - item.height / 2});
        } else {  // straight down past the boxes of this rank
          edge.path.push_back({x, middle - height[size_t(item.rank)] / 2});
          edge.path.push_back({x, middle + height[size_t(item.rank)] / 2});
        }
      }
    }
    return {most - least, std::max(0., y - kGapY)};
  }

  std::vector<LayoutVertex>& vertices_;
  std::vector<LayoutEdge>& edges_;
  std::vector<Item> items_;
  std::vector<Link> links_;
  std::vector<std::vector<int>> chains_;         // items along each edge
  std::vector<std::vector<int>> above_, below_;  // links by item
  std::vector<std::vector<int>> ranks_;
};

}  // namespace

LayoutSize lay_out(std::vector<LayoutVertex>& vertices, std::vector<LayoutEdge>& edges) {
  return Layout(vertices, edges).run();
}

}  // namespace tilewright::tool
