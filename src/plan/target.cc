#include "plan/target.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "base/thread_pool.h"
#include "device/cuda/compiler.h"
#include "plan/gpu_profiles.h"

namespace tilewright {

CpuInfo cpu_info() {
  CpuInfo info;
  std::ifstream in("/proc/cpuinfo");
  std::string line;
  int processors = 0;
  while (std::getline(in, line)) {
    const size_t colon = line.find(": ");
    if (line.rfind("processor", 0) == 0) ++processors;
    if (colon == line.npos) continue;
    if (info.model.empty() && line.rfind("model name", 0) == 0) info.model = line.substr(colon + 2);
    if (info.features.empty() && (line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0)) {
      std::istringstream words(line.substr(colon + 2));
      static const char* const kInteresting[] = {"sse4_2",      "avx",      "f16c",     "fma",         "avx2",
                                                 "avx512f",     "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16",
                                                 "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8",    "asimd",
                                                 "asimdhp",     "bf16",     "sve"};
      for (std::string word; words >> word;)
        if (std::find(std::begin(kInteresting), std::end(kInteresting), word) != std::end(kInteresting))
          info.features.push_back(word);
    }
  }
  info.processors = std::max(processors, 1);
  return info;
}

std::string Target::text() const {
  if (is_gpu())
    return fmt::format("cuda:{},sms={},smem={},l2={}", arch, gpu->sms, gpu->shared_bytes >> 10, gpu->l2_bytes >> 20);
  return fmt::format("{}:{},threads={}", device, arch, threads);
}

std::string Target::hardware() const {
  static const std::string cpu = cpu_info().model;
  return is_gpu() ? fmt::format("{}, driver {}", gpu->name, gpu->driver) : cpu;
}

Target Target::of_gpu(cuda::GpuProperties properties, int ordinal) {
  Target t;
  t.device = "cuda";
  t.arch = fmt::format("{}_{}", properties.ptx ? "compute" : "sm", properties.arch);
  t.gpu = std::make_shared<cuda::GpuProperties>(std::move(properties));
  t.ordinal = ordinal;
  return t;
}

std::string Target::code() const { return gpu->ptx ? arch : cuda::native_arch(gpu->arch); }

Result<Target> Target::of_gpu(int ordinal, int ptx) {
  TW_ASSIGN_OR_RETURN(cuda::GpuProperties properties, cuda::gpu_properties(ordinal));
  if (ptx > 0) {
    TW_ASSIGN_OR_RETURN(properties, properties.as_ptx_of(ptx));
  }
  return of_gpu(std::move(properties), ordinal);
}

namespace {

constexpr const char* kExpected =
    "expected cpu:ARCH[,threads=N]; cuda, cuda:N or cuda:N,compute_NN, a GPU of this machine; h200; or sm_NN or "
    "compute_NN, a GPU of that architecture, with [,sms=N][,smem=KiB][,l2=MiB]";

// A whole number of at most 8 digits; -1: it is none.
int number(const std::string& text) {
  return !text.empty() && text.size() < 9 && text.find_first_not_of("0123456789") == text.npos ? std::stoi(text) : -1;
}

std::vector<std::string> parts_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> parts;
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

Result<Target> parse_cpu(const std::string& text, const std::string& rest) {
  Target t;
  for (const std::string& part : parts_of(rest)) {
    if (t.arch.empty()) {
      if (part != "avx512" && part != "avx2" && part != "baseline")
        return invalid("target \"{}\": \"{}\" is no CPU architecture; expected avx512, avx2 or baseline", text, part);
      t.arch = part;
    } else if (part.rfind("threads=", 0) == 0 && number(part.substr(8)) > 0 && part.size() < 13) {
      t.threads = number(part.substr(8));
    } else {
      return invalid("target \"{}\": \"{}\" is not understood; expected threads=N", text, part);
    }
  }
  if (t.arch.empty()) return invalid("target \"{}\": the CPU architecture is missing", text);
  return t;
}

// "sm_90", "sm_90a", "compute_75": 90, 90, 75; -1: neither.
int arch_of(const std::string& text) {
  for (const std::string prefix : {"sm_", "compute_"}) {
    if (text.rfind(prefix, 0) != 0) continue;
    const bool suffix = prefix == "sm_" && text.back() == 'a';
    const int arch = number(text.substr(prefix.size(), text.size() - prefix.size() - (suffix ? 1 : 0)));
    return arch >= (suffix ? 90 : 75) && arch <= 999 ? arch : -1;
  }
  return -1;
}

// "", "1", "1,compute_75": a GPU of this machine.
Result<Target> parse_ordinal(const std::string& text, const std::vector<std::string>& parts) {
  const int ptx = parts.size() > 1 ? arch_of(parts[1]) : 0;
  if (parts.size() > 2 || ptx < 0 || (ptx > 0 && parts[1][0] == 's'))
    return invalid("target \"{}\": \"{}\" is not understood; {}", text, parts.back(), kExpected);
  return Target::of_gpu(parts.empty() ? 0 : number(parts[0]), ptx);
}

// What is not said of a GPU is as in the first profile.
Result<Target> parse_gpu(const std::string& text, const std::string& rest) {
  const std::vector<std::string> parts = parts_of(rest);
  if (parts.empty() || number(parts[0]) >= 0) return parse_ordinal(text, parts);
  auto j = nlohmann::json::parse(kGpuProfiles[0].json);
  const int arch = arch_of(parts[0]);
  if (arch < 0) return invalid("target \"{}\": \"{}\" is no GPU architecture; {}", text, parts[0], kExpected);
  if (j["deviceVer"] != arch * 10) j["deviceName"] = "GPU";
  j["deviceVer"] = arch * 10;
  j["maxSharedMemoryPerBlockOptin"] = cuda::most_shared_bytes(arch);
  for (size_t i = 1; i < parts.size(); ++i) {
    const size_t equals = parts[i].find('=');
    const std::string key = parts[i].substr(0, equals);
    const int64_t value = equals == parts[i].npos ? -1 : number(parts[i].substr(equals + 1));
    if (value <= 0 || (key != "sms" && key != "smem" && key != "l2"))
      return invalid("target \"{}\": \"{}\" is not understood; {}", text, parts[i], kExpected);
    if (key == "sms") j["multiProcessorCount"] = value;
    if (key == "smem") j["maxSharedMemoryPerBlockOptin"] = value << 10;
    if (key == "l2") j["l2CacheSize"] = value << 20;
  }
  TW_ASSIGN_OR_RETURN(cuda::GpuProperties properties, cuda::GpuProperties::from_json(j.dump()));
  if (parts[0][0] == 'c') {
    TW_ASSIGN_OR_RETURN(properties, properties.as_ptx_of(arch));
  }
  return Target::of_gpu(std::move(properties));
}

}  // namespace

Result<Target> Target::parse(const std::string& text) {
  for (const GpuProfile& profile : kGpuProfiles)
    if (text == profile.name) {
      TW_ASSIGN_OR_RETURN(cuda::GpuProperties properties, cuda::GpuProperties::from_json(profile.json));
      return of_gpu(std::move(properties));
    }
  const size_t colon = text.find(':');
  const std::string device = text.substr(0, colon), rest = colon == text.npos ? "" : text.substr(colon + 1);
  if (device == "cuda") return parse_gpu(text, rest);
  if (text.rfind("sm_", 0) == 0 || text.rfind("compute_", 0) == 0) return parse_gpu(text, text);
  if (device == "cpu" && colon != text.npos) return parse_cpu(text, rest);
  return invalid("target \"{}\": device \"{}\" is not known; {}", text, device, kExpected);
}

Target Target::this_machine() {
  static const std::string arch = [] {
    const std::vector<std::string> f = cpu_info().features;
    auto has = [&](const char* name) { return std::find(f.begin(), f.end(), name) != f.end(); };
    return has("avx512f") && has("avx512bw") && has("avx512vl") ? "avx512"
           : has("avx2") && has("fma")                          ? "avx2"
                                                                : "baseline";
  }();
  Target t;
  t.arch = arch;
  t.threads = thread_count();
  return t;
}

}  // namespace tilewright
