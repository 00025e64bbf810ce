// What the tool prints with: colours (on a terminal only), a progress bar, numbers for people, and failure.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "base/result.h"

namespace tilewright::tool {

// Colours when standard output is a terminal and NO_COLOR is not set; else the text itself.
std::string bold(const std::string& text);
std::string green(const std::string& text);
std::string yellow(const std::string& text);
std::string red(const std::string& text);
std::string faint(const std::string& text);
inline std::string yes_no(bool ok) { return ok ? green("ok") : red("WRONG"); }

// "12.3 ms", "850 us", "4.5 GFLOP/s", "1.5 MiB", "1,234,567".
std::string human_time(double ms);
std::string human_rate(double per_second, const char* unit);
std::string human_bytes(double bytes);
std::string human_count(int64_t n);

// A bar on standard error, when that is a terminal.
class Progress {
 public:
  Progress(std::string title, int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void at(int64_t done, const std::string& what);

 private:
  std::string title_;
  int64_t total_;
  bool shown_ = false;
};

// What ends a verb early: main() prints the message on standard error and exits with the code.
struct Failure {
  std::string message;
  int exit_code = 1;
};
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw Failure{fmt::format(text, std::forward<Args>(args)...)};
}
inline void must(const Status& status, const std::string& doing) {
  if (status.is_bad()) fail("{}: {} ({})", doing, status.get_message(), status.get_code());
}

// The whole file ("-": standard input).
std::string read_text(const std::string& path);
void write_text(const std::string& path, const std::string& text);

}  // namespace tilewright::tool
