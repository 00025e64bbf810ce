#include "terminal.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

namespace tilewright::tool {

namespace {

std::string coloured(const char* code, const std::string& text) {
  static const bool on = isatty(STDOUT_FILENO) && !std::getenv("NO_COLOR");
  return on && !text.empty() ? fmt::format("\033[{}m{}\033[0m", code, text) : text;
}

// Three significant digits, without an exponent.
std::string three_digits(double x) {
  const double a = std::fabs(x);
  return a == 0      ? "0"
         : a < 9.995 ? fmt::format("{:.2f}", x)
         : a < 99.95 ? fmt::format("{:.1f}", x)
                     : fmt::format("{:.0f}", x);
}

}  // namespace

std::string bold(const std::string& text) { return coloured("1", text); }
std::string green(const std::string& text) { return coloured("32", text); }
std::string yellow(const std::string& text) { return coloured("33", text); }
std::string red(const std::string& text) { return coloured("1;31", text); }
std::string faint(const std::string& text) { return coloured("2", text); }

std::string human_time(double ms) {
  if (ms >= 999.5) return three_digits(ms / 1e3) + " s";
  if (ms >= 0.9995) return three_digits(ms) + " ms";
  return three_digits(ms * 1e3) + " us";
}

std::string human_rate(double per_second, const char* unit) {
  const char* prefix[] = {"", "k", "M", "G", "T", "P"};
  size_t i = 0;
  while (per_second >= 999.5 && i + 1 < std::size(prefix)) per_second /= 1e3, ++i;
  return fmt::format("{} {}{}", three_digits(per_second), prefix[i], unit);
}

std::string human_bytes(double bytes) {
  if (bytes < 1024) return fmt::format("{:.0f} B", bytes);
  const char* unit[] = {"KiB", "MiB", "GiB", "TiB"};
  size_t i = 0;
  for (bytes /= 1024; bytes >= 1024 && i + 1 < std::size(unit); ++i) bytes /= 1024;
  return fmt::format("{} {}", three_digits(bytes), unit[i]);
}

std::string human_count(int64_t n) {
  std::string digits = std::to_string(n);
  for (int at = int(digits.size()) - 3; at > (n < 0); at -= 3) digits.insert(size_t(at), ",");
  return digits;
}

Progress::Progress(std::string title, int64_t total)
    : title_(std::move(title)), total_(total), shown_(isatty(STDERR_FILENO)) {}

void Progress::at(int64_t done, const std::string& what) {
  if (!shown_) return;
  constexpr int64_t kWidth = 24;
  const int64_t full = total_ > 0 ? kWidth * done / total_ : kWidth;
  const std::string bar = std::string(size_t(full), '#') + std::string(size_t(kWidth - full), '.');
  const std::string text = fmt::format("{} [{}] {}/{} {}", title_, bar, done, total_, what);
  std::fprintf(stderr, "\r\033[K%.110s", text.c_str());
  std::fflush(stderr);
}

Progress::~Progress() {
  if (shown_) std::fprintf(stderr, "\r\033[K");
}

std::string read_text(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("cannot read \"{}\": {}", path, std::strerror(errno));
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad()) fail("cannot read \"{}\": {}", path, std::strerror(errno));
  return text.str();
}

void write_text(const std::string& path, const std::string& text) {
  if (path == "-") {
    std::cout << text;
    return;
  }
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) fail("cannot write \"{}\": {}", path, std::strerror(errno));
}

}  // namespace tilewright::tool
