#include "engines/cudnn/config.h"

#include <algorithm>
#include <charconv>

namespace tilewright::cudnn {
namespace {

// The number that `text` starts with, which is then taken off.
bool take_number(std::string_view& text, int64_t& value) {
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (bad != std::errc()) return false;
  text.remove_prefix(size_t(end - text.data()));
  return true;
}

bool take(std::string_view& text, std::string_view what) {
  if (text.substr(0, what.size()) != what) return false;
  text.remove_prefix(what.size());
  return true;
}

}  // namespace

std::string Config::joined(const char* first, const char* later) const {
  std::string s = fmt::format("eng{}", engine);
  for (size_t i = 0; i < knobs.size(); ++i)
    s += fmt::format("{}k{}={}", i == 0 ? first : later, knobs[i].first, knobs[i].second);
  return s;
}

std::string Config::plan_name() const {
  const std::string s = joined("[", ",");
  return knobs.empty() ? s : s + "]";
}

Result<Config> Config::parse(const std::string& text) {
  Config c;
  std::string_view rest = text;
  bool good = take(rest, "eng") && take_number(rest, c.engine) && c.engine >= 0;
  while (good && !rest.empty()) {
    int64_t type = 0, value = 0;
    good = take(rest, ",k") && take_number(rest, type) && type >= 0 && type < 1000 && take(rest, "=") &&
           take_number(rest, value);
    c.knobs.emplace_back(int(type), value);
  }
  if (!good) return invalid("cudnn: configuration \"{}\" is not known; expected eng41,k2=0,...", text);
  return c;
}

const std::vector<KnownBad>& known_bad() {
  static const std::vector<KnownBad> list = {
#define TW_KNOWN_BAD(op, config, from, to, reason) {op, config, from, to, reason},
#include "engines/cudnn/known_bad.def"
#undef TW_KNOWN_BAD
  };
  return list;
}

const KnownBad* find_known_bad(const std::vector<KnownBad>& list, const Config& config,
                               const std::vector<std::string>& ops, int64_t version) {
  for (const KnownBad& bad : list) {
    const Result<Config> pattern = Config::parse(bad.config);
    TW_CHECK(pattern);
    const auto has = [&](const auto& knob) {
      return std::find(config.knobs.begin(), config.knobs.end(), knob) != config.knobs.end();
    };
    const bool op_there = !*bad.op || std::find(ops.begin(), ops.end(), bad.op) != ops.end();
    if (op_there && pattern->engine == config.engine && version >= bad.from && version < bad.to &&
        std::all_of(pattern->knobs.begin(), pattern->knobs.end(), has))
      return &bad;
  }
  return nullptr;
}

}  // namespace tilewright::cudnn
