// A text table: columns as wide as their widest cell, titles above.
#pragma once

#include <string>
#include <vector>

namespace tilewright::tool {

// Columns on a terminal that the text takes: UTF-8 characters, without colour codes.
size_t display_width(const std::string& text);

class Table {
 public:
  enum Align { Left, Right };

  Table& column(std::string title, Align align = Left) {
    columns_.push_back({std::move(title), align});
    return *this;
  }
  // Missing cells at the end are blank.
  Table& row(std::vector<std::string> cells) {
    rows_.push_back(std::move(cells));
    return *this;
  }
  size_t rows() const { return rows_.size(); }
  std::string text(size_t indent = 0) const;

 private:
  struct Column {
    std::string title;
    Align align;
  };
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace tilewright::tool
