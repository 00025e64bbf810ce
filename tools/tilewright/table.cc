#include "table.h"

#include <algorithm>

#include "terminal.h"

namespace tilewright::tool {

size_t display_width(const std::string& text) {
  size_t width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\033') {  // a colour code: up to its 'm'
      while (i < text.size() && text[i] != 'm') ++i;
      continue;
    }
    if ((text[i] & 0xc0) != 0x80) ++width;  // not the continuation of a character
  }
  return width;
}

std::string Table::text(size_t indent) const {
  std::vector<size_t> width;
  for (const Column& c : columns_) width.push_back(display_width(c.title));
  for (const auto& row : rows_)
    for (size_t i = 0; i < row.size() && i < width.size(); ++i) width[i] = std::max(width[i], display_width(row[i]));

  std::string out;
  const auto line = [&](const auto& cell_at, bool title) {
    std::string text(indent, ' ');
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string cell = cell_at(i);
      const std::string pad(width[i] - display_width(cell), ' ');
      if (columns_[i].align == Right) text += pad;
      text += title ? bold(cell) : cell;
      if (columns_[i].align == Left) text += pad;
      if (i + 1 < columns_.size()) text += "  ";
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + '\n';
  };
  const bool titled = std::any_of(columns_.begin(), columns_.end(), [](const Column& c) { return !c.title.empty(); });
  if (titled) line([&](size_t i) { return columns_[i].title; }, true);
  for (const auto& row : rows_) line([&](size_t i) { return i < row.size() ? row[i] : std::string(); }, false);
  return out;
}

}  // namespace tilewright::tool
