// tilewright show: a graph as SVG. Ops are boxes with their ports, tensors stand between them, what one kernel computes
// has one colour.
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "ir/op_def.h"
#include "layout.h"
#include "session.h"
#include "svg.h"
#include "table.h"
#include "terminal.h"
#include "verbs.h"

namespace tilewright::tool {

namespace {

// Pixels. A monospace font is 0.6 em wide; a little more keeps other fonts inside as well.
constexpr double kFont = 12, kSmall = 10, kChar = 0.62, kLine = 15, kPad = 8;
constexpr double kMargin = 24;

constexpr const char* kPalette[] = {"#cfe3f7", "#fbe0c4", "#d3efd0", "#ecd5f2",
                                    "#fbf0b8", "#f9d3d6", "#cdeeea", "#e3ddd0"};
constexpr const char* kStroke[] = {"#4a86c5", "#d08a3c", "#58a551", "#9c62b0",
                                   "#b89d1f", "#c45b65", "#3d9d93", "#8b8068"};

double text_width(const std::string& text, double font) { return double(display_width(text)) * kChar * font; }

std::string escape(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += uint8_t(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

// Long names are cut in the middle.
std::string short_name(const std::string& name) {
  constexpr size_t kMost = 34;
  return name.size() <= kMost ? name : name.substr(0, 16) + ".." + name.substr(name.size() - 16);
}

struct Port {
  std::string name;
  ir::TensorId tensor;
  double offset = 0;  // from the middle of the box
};

struct Box {
  bool is_node;
  int id;                          // node or tensor
  std::vector<std::string> lines;  // the first is bold in a node
  std::vector<Port> in, out;
};

std::vector<Port> named_ports(const std::vector<ir::Port>& declared, const std::vector<ir::TensorId>& tensors) {
  std::vector<Port> ports;
  for (size_t p = 0; p < tensors.size(); ++p) {
    if (tensors[p] == ir::kNone) continue;
    std::string name = declared[std::min(p, declared.size() - 1)].name;
    if (declared[std::min(p, declared.size() - 1)].kind == ir::PortKind::Variadic) name = std::to_string(p);
    ports.push_back({name, tensors[p]});
  }
  return ports;
}

// Places ports side by side; the width that they take. One port alone sits in the middle and needs no name.
double spread_ports(std::vector<Port>& ports) {
  if (ports.size() < 2) return 0;
  double width = 0;
  for (const Port& p : ports) width += text_width(p.name, kSmall) + kPad;
  double x = -width / 2;
  for (Port& p : ports) {
    const double w = text_width(p.name, kSmall) + kPad;
    p.offset = x + w / 2;
    x += w;
  }
  return width;
}

class Picture {
 public:
  Picture(const ir::Graph& graph, const std::vector<RegionInfo>& regions, const std::string& plan)
      : graph_(graph), regions_(regions), plan_(plan) {
    make_boxes();
    make_edges();
    size_ = lay_out(vertices_, edges_);
  }

  std::string svg() {
    std::string body = draw_regions() + draw_edges() + draw_boxes();
    double width = size_.width, bottom = size_.height + kMargin;
    const std::string legend = draw_legend(bottom, width);
    const std::string title = short_name(graph_.name);
    width = std::max(width, text_width(title, kFont + 3));
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
        "{1:.0f}\" "
        "font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\">\n"
        "<defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" "
        "orient=\"auto\"><path d=\"M0,0 L8,4 L0,8 z\" fill=\"#666\"/></marker></defs>\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        "<text x=\"{2}\" y=\"{3}\" font-size=\"{4}\" font-weight=\"bold\">{5}</text>\n"
        "<g transform=\"translate({2},{6})\">\n{7}{8}</g>\n</svg>\n",
        width + 2 * kMargin, bottom + kTitle + 2 * kMargin, kMargin, kMargin + 10, kFont + 3, escape(title),
        kMargin + kTitle, body, legend);
  }

 private:
  static constexpr double kTitle = 30;

  void make_boxes() {
    const ir::Links links = ir::links(graph_);
    std::vector<int> rank(graph_.nodes.size(), 1);
    std::vector<int> tensor_rank(graph_.tensors.size(), -1);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      for (ir::TensorId t : graph_.nodes[n].in)
        if (t != ir::kNone && links.producer[size_t(t)] >= 0)
          rank[n] = std::max(rank[n], rank[size_t(links.producer[size_t(t)])] + 2);
      for (ir::TensorId t : graph_.nodes[n].out)
        if (t != ir::kNone) tensor_rank[size_t(t)] = rank[n] + 1;
    }
    for (size_t t = 0; t < graph_.tensors.size(); ++t)  // inputs: right above their first reader
      for (ir::NodeId n : links.consumers[t])
        if (links.producer[t] < 0)
          tensor_rank[t] = tensor_rank[t] < 0 ? rank[size_t(n)] - 1 : std::min(tensor_rank[t], rank[size_t(n)] - 1);

    tensor_box_.assign(graph_.tensors.size(), -1);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const ir::Node& node = graph_.nodes[n];
      Box box{true,
              int(n),
              {node.op->name},
              named_ports(node.op->inputs, node.in),
              named_ports(node.op->outputs, node.out)};
      for (const char* key : {"mode", "resample_mode", "forward_phase", "distribution"})
        if (node.has_attr(key)) box.lines[0] += " " + node.attr<std::string>(key);
      if (!node.name.empty()) box.lines.push_back(short_name(node.name));
      double width = std::max(spread_ports(box.in), spread_ports(box.out));
      double height = 2 * kPad + kLine * double(box.lines.size());
      if (box.in.size() > 1) height += kSmall + 2;
      if (box.out.size() > 1) height += kSmall + 2;
      for (const std::string& line : box.lines) width = std::max(width, text_width(line, kFont));
      // Every region of the node has a stripe on the left.
      vertices_.push_back({width + 2 * kPad + 10, height, rank[n], 0, 0});
      boxes_.push_back(std::move(box));
    }
    for (size_t t = 0; t < graph_.tensors.size(); ++t) {
      if (tensor_rank[t] < 0) continue;
      const ir::Tensor& tensor = graph_.tensors[t];
      Box box{false, int(t), {}, {}, {}};
      if (tensor.value)
        box.lines.push_back(fmt::format("{} = {:.6g}", short_name(tensor.name), ir::scalar_value(*tensor.value)));
      else box.lines.push_back(short_name(tensor.name));
      box.lines.push_back(to_string(tensor.type) + " " + to_text(tensor.dim));
      if (tensor.role != ir::Role::Virtual && !row_major(tensor))
        box.lines.push_back("stride " + to_text(tensor.stride));
      double width = 0;
      for (const std::string& line : box.lines) width = std::max(width, text_width(line, kSmall));
      tensor_box_[t] = int(boxes_.size());
      vertices_.push_back({width + 2 * kPad, (kLine - 2) * double(box.lines.size()) + kPad, tensor_rank[t], 0, 0});
      boxes_.push_back(std::move(box));
    }
    regions_of_.resize(graph_.nodes.size());
    for (size_t r = 0; r < regions_.size(); ++r)
      for (ir::NodeId n : regions_[r].nodes) regions_of_[size_t(n)].push_back(int(r));
  }

  void make_edges() {
    for (size_t b = 0; b < graph_.nodes.size(); ++b) {
      for (const Port& p : boxes_[b].in) edges_.push_back({tensor_box_[size_t(p.tensor)], int(b), 0, p.offset, {}});
      for (const Port& p : boxes_[b].out) edges_.push_back({int(b), tensor_box_[size_t(p.tensor)], p.offset, 0, {}});
    }
  }

  // The boxes of a region: its nodes, and the tensors that are made and read only inside it.
  std::vector<int> members(size_t region) const {
    std::vector<int> boxes;
    const ir::Links links = ir::links(graph_);
    const auto inside = [&](ir::NodeId n) {
      const auto& nodes = regions_[region].nodes;
      return std::find(nodes.begin(), nodes.end(), n) != nodes.end();
    };
    for (ir::NodeId n : regions_[region].nodes)
      if (std::find(boxes.begin(), boxes.end(), n) == boxes.end()) boxes.push_back(n);
    for (size_t t = 0; t < graph_.tensors.size(); ++t) {
      if (tensor_box_[t] < 0 || links.producer[t] < 0) continue;
      if (links.consumers[t].empty() && graph_.tensors[t].role == ir::Role::Output) continue;
      if (inside(links.producer[t]) && std::all_of(links.consumers[t].begin(), links.consumers[t].end(), inside))
        boxes.push_back(tensor_box_[t]);
    }
    return boxes;
  }

  // A rounded box around the region where nothing else lies in it; else a shape that follows its boxes and edges.
  std::string draw_regions() const {
    std::string out;
    for (size_t r = 0; r < regions_.size(); ++r) {
      const std::vector<int> inside = members(r);
      if (inside.empty()) continue;
      constexpr double kAround = 9;
      double x0 = 1e300, y0 = 1e300, x1 = -1e300, y1 = -1e300;
      for (int b : inside) {
        const LayoutVertex& v = vertices_[size_t(b)];
        x0 = std::min(x0, v.x - kAround), y0 = std::min(y0, v.y - kAround);
        x1 = std::max(x1, v.x + v.width + kAround), y1 = std::max(y1, v.y + v.height + kAround);
      }
      bool alone = true;
      for (size_t b = 0; b < vertices_.size(); ++b) {
        const LayoutVertex& v = vertices_[b];
        if (std::find(inside.begin(), inside.end(), int(b)) == inside.end() && v.x < x1 && v.x + v.width > x0 &&
            v.y < y1 && v.y + v.height > y0)
          alone = false;
      }
      const char *fill = kPalette[r % std::size(kPalette)], *stroke = kStroke[r % std::size(kStroke)];
      if (alone) {
        out += fmt::format(
            "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"12\" fill=\"{}\" "
            "stroke=\"{}\"/>\n",
            x0, y0, x1 - x0, y1 - y0, fill, stroke);
        continue;
      }
      for (int b : inside) {
        const LayoutVertex& v = vertices_[size_t(b)];
        out +=
            fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"12\" fill=\"{}\"/>\n",
                        v.x - kAround, v.y - kAround, v.width + 2 * kAround, v.height + 2 * kAround, fill);
      }
      for (const LayoutEdge& e : edges_)
        if (std::find(inside.begin(), inside.end(), e.from) != inside.end() &&
            std::find(inside.begin(), inside.end(), e.to) != inside.end())
          out += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"22\"/>\n", path(e), fill);
    }
    return out;
  }

  static std::string path(const LayoutEdge& e) {
    std::string d = fmt::format("M{:.1f},{:.1f}", e.path[0].x, e.path[0].y);
    for (size_t i = 1; i < e.path.size(); ++i) {
      const Point a = e.path[i - 1], b = e.path[i];
      const double middle = (a.y + b.y) / 2;
      d += fmt::format(" C{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}", a.x, middle, b.x, middle, b.x, b.y);
    }
    return d;
  }

  std::string draw_edges() const {
    std::string out;
    for (const LayoutEdge& e : edges_)
      out += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"#666\"{}/>\n", path(e),
                         boxes_[size_t(e.to)].is_node ? " marker-end=\"url(#arrow)\"" : "");
    return out;
  }

  static std::string text(double x, double y, double font, const std::string& text, const char* more) {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" text-anchor=\"middle\"{}>{}</text>\n", x, y,
                       font, more, escape(text));
  }

  std::string draw_boxes() const {
    std::string out;
    for (size_t b = 0; b < boxes_.size(); ++b) {
      const Box& box = boxes_[b];
      const LayoutVertex& v = vertices_[b];
      const double middle = v.x + v.width / 2;
      if (box.is_node) {
        out += fmt::format(
            "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"4\" fill=\"white\" "
            "stroke=\"#333\"/>\n",
            v.x, v.y, v.width, v.height);
        const auto& regions = regions_of_[size_t(box.id)];
        for (size_t i = 0; i < regions.size(); ++i)
          out += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"5\" height=\"{:.1f}\" fill=\"{}\"/>\n", v.x + 1,
                             v.y + 1 + double(i) * (v.height - 2) / double(regions.size()),
                             (v.height - 2) / double(regions.size()), kStroke[size_t(regions[i]) % std::size(kStroke)]);
        double y = v.y + kPad + kFont;
        if (box.in.size() > 1) {
          for (const Port& p : box.in)
            out += text(middle + p.offset, v.y + kSmall + 1, kSmall, p.name, " fill=\"#777\"");
          y += kSmall + 2;
        }
        for (size_t i = 0; i < box.lines.size(); ++i, y += kLine)
          out += text(middle, y, kFont, box.lines[i], i == 0 ? " font-weight=\"bold\"" : "");
        if (box.out.size() > 1)
          for (const Port& p : box.out)
            out += text(middle + p.offset, v.y + v.height - 3, kSmall, p.name, " fill=\"#777\"");
        continue;
      }
      const ir::Role role = graph_.tensor(box.id).role;
      const char* style = role == ir::Role::Virtual
                              ? "fill=\"white\" fill-opacity=\"0.75\" stroke=\"#bbb\" stroke-dasharray=\"3 2\""
                          : role == ir::Role::Output ? "fill=\"#e9f5e9\" stroke=\"#3c8d40\" stroke-width=\"1.5\""
                                                     : "fill=\"#eef1f5\" stroke=\"#8894a5\"";
      out += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"9\" {}/>\n", v.x, v.y,
                         v.width, v.height, style);
      for (size_t i = 0; i < box.lines.size(); ++i)
        out += text(middle, v.y + kPad / 2 + (kLine - 2) * double(i) + kSmall, kSmall, box.lines[i],
                    i == 0 && role != ir::Role::Virtual ? " font-weight=\"bold\"" : "");
    }
    return out;
  }

  std::string draw_legend(double& y, double& width) const {
    std::string out;
    const auto line = [&](const std::string& swatch, const std::string& label) {
      out +=
          fmt::format("<g transform=\"translate(0,{:.1f})\">{}<text x=\"26\" y=\"11\" font-size=\"{}\">{}</text></g>\n",
                      y, swatch, kFont, escape(label));
      width = std::max(width, 26 + text_width(label, kFont));
      y += kLine + 4;
    };
    const auto swatch = [](const std::string& style) {
      return fmt::format("<rect width=\"18\" height=\"13\" rx=\"4\" {}/>", style);
    };
    line(swatch("fill=\"#eef1f5\" stroke=\"#8894a5\""), "input");
    line(swatch("fill=\"#e9f5e9\" stroke=\"#3c8d40\" stroke-width=\"1.5\""), "output");
    line(swatch("fill=\"white\" stroke=\"#bbb\" stroke-dasharray=\"3 2\""), "virtual: exists only inside the graph");
    if (regions_.empty()) return out;
    y += 6;
    line("", fmt::format("{}: one colour is one kernel", plan_));
    for (size_t r = 0; r < regions_.size(); ++r)
      line(swatch(fmt::format("fill=\"{}\" stroke=\"{}\"", kPalette[r % std::size(kPalette)],
                              kStroke[r % std::size(kStroke)])),
           fmt::format("{}. {}", r + 1, regions_[r].name));
    return out;
  }

  const ir::Graph& graph_;
  const std::vector<RegionInfo>& regions_;
  const std::string plan_;
  std::vector<Box> boxes_;  // nodes in their order, then tensors
  std::vector<LayoutVertex> vertices_;
  std::vector<LayoutEdge> edges_;
  std::vector<int> tensor_box_;               // by tensor id; -1: nothing reads or makes it
  std::vector<std::vector<int>> regions_of_;  // by node
  LayoutSize size_;
};

}  // namespace

std::string svg_of(const ir::Graph& graph, const std::vector<RegionInfo>& regions, const std::string& plan) {
  return Picture(graph, regions, plan).svg();
}

int show(const ShowOptions& options) {
  const ChosenDevice device(options.device);
  const Session session(options.graph, device);
  std::vector<RegionInfo> regions;
  std::string name;
  for (const PlanInfo& plan : select_plans(session.plans(), options.engine)) {
    regions = session.regions(plan.index);
    name = plan.name;
    if (!regions.empty() || !options.engine.empty()) break;
  }
  if (name.empty()) fail("no plan of \"{}\" has \"{}\" in its name", options.graph, options.engine);
  std::string file = options.output;
  if (file.empty())
    file =
        options.graph == "-" ? "-" : std::filesystem::path(options.graph).filename().replace_extension(".svg").string();
  write_text(file, svg_of(session.ir(), regions, name));
  if (file != "-") std::cerr << "wrote " << file << '\n';
  return 0;
}

}  // namespace tilewright::tool
