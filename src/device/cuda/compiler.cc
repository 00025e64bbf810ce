#include "device/cuda/compiler.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

#include "base/environment.h"
#include "base/hash.h"
#include "device/cuda/nvrtc.h"

namespace tilewright::cuda {
namespace {

namespace fs = std::filesystem;
using Kernel = std::shared_ptr<const CompiledKernel>;

std::vector<std::string> options_for(const std::string& arch) {
  std::vector<std::string> options = {"--gpu-architecture=" + arch, "--std=c++17", "-default-device", "-w",
                                      "--ptxas-options=-v"};
  if (std::stoi(nvrtc_lookup().version) >= 12) options.push_back("--minimal");
  return options;
}

// All that the result depends on, as one text: the key is compared whole, so that no two kernels are taken for another.
std::string key_of(const KernelSource& source, const std::string& arch) {
  std::string key = fmt::format("NVRTC {} {}\n", nvrtc_lookup().version, fmt::join(options_for(arch), " "));
  for (size_t i = 0; i < source.header_count; ++i)
    key += fmt::format("// {}\n{}\n", source.headers[i].name, source.headers[i].text);
  return key + source.text;
}

// "Used 32 registers": 32.
int64_t number_before(const std::string& log, const char* words) {
  const size_t end = log.find(fmt::format(" {}", words));
  if (end == log.npos) return 0;
  size_t begin = end;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(log[begin - 1]))) --begin;
  return begin < end ? std::stoll(log.substr(begin, end - begin)) : 0;
}

void read_log(CompiledKernel& k) {
  k.registers = int(number_before(k.log, "registers"));
  k.spill_bytes = number_before(k.log, "bytes spill stores");
  k.stack_bytes = number_before(k.log, "bytes stack frame");
  k.shared_bytes = number_before(k.log, "bytes smem");
}

// The first lines that tell of errors.
std::string first_errors(const std::string& log) {
  std::string text;
  int lines = 0;
  size_t at = 0;
  while (at < log.size() && lines < 6) {
    const size_t end = std::min(log.find('\n', at), log.size());
    const std::string line = log.substr(at, end - at);
    if (line.find("error") != line.npos) text += "\n  " + line, ++lines;
    at = end + 1;
  }
  return text.empty() ? "\n  " + log.substr(0, 300) : text;
}

class Program {
 public:
  Program(const KernelSource& source) {
    std::vector<const char*> names, texts;
    for (size_t i = 0; i < source.header_count; ++i)
      names.push_back(source.headers[i].name), texts.push_back(source.headers[i].text);
    created_ = nvrtc().create_program(&program_, source.text.c_str(), "kernel.cu", int(names.size()), texts.data(),
                                      names.data());
  }
  ~Program() {
    if (created_ == 0) nvrtc().destroy_program(&program_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Result<Kernel> compile(const std::string& arch) {
    if (created_ != 0) return failed(created_, "");
    const std::vector<std::string> options = options_for(arch);
    std::vector<const char*> texts;
    for (const std::string& option : options) texts.push_back(option.c_str());
    const NvrtcResult result = nvrtc().compile_program(program_, int(texts.size()), texts.data());
    auto kernel = std::make_shared<CompiledKernel>();
    log_ = kernel->log = text(nvrtc().get_program_log_size, nvrtc().get_program_log);
    if (result != 0) return failed(result, kernel->log);
    const bool ptx = arch.rfind("compute_", 0) == 0;
    const std::string image =
        ptx ? text(nvrtc().get_ptx_size, nvrtc().get_ptx) : text(nvrtc().get_cubin_size, nvrtc().get_cubin);
    kernel->image.assign(image.begin(), image.end());
    if (ptx) kernel->image.push_back(0);  // the driver reads PTX as a C string
    read_log(*kernel);
    return Kernel(std::move(kernel));
  }
  const std::string& log() const { return log_; }

 private:
  static Status failed(NvrtcResult result, const std::string& log) {
    return error(error_code_t::NVRTC_COMPILATION_FAILED, "NVRTC {}: {}{}", nvrtc_lookup().version,
                 nvrtc().get_error_string(result), log.empty() ? "" : first_errors(log));
  }
  // What a pair of functions gives: a size, and that many bytes.
  std::string text(NvrtcResult (*size_of)(NvrtcProgram, size_t*), NvrtcResult (*read)(NvrtcProgram, char*)) {
    size_t size = 0;
    if (size_of(program_, &size) != 0) return {};
    std::string bytes(size, '\0');
    if (read(program_, bytes.data()) != 0) return {};
    while (!bytes.empty() && bytes.back() == 0 && size_of != nvrtc().get_cubin_size) bytes.pop_back();
    return bytes;
  }

  NvrtcProgram program_ = nullptr;
  NvrtcResult created_;
  std::string log_;
};

// --- on disk: magic, sizes of key, log and image, checksum of the three, the three -----------------------------------

constexpr char kMagic[8] = {'T', 'W', 'K', 'E', 'R', 'N', '0', '1'};
struct FileHeader {
  char magic[8];
  uint64_t key, log, image, checksum;
};
constexpr const char* kSuffix = ".kernel";  // also of names that are not final yet
constexpr int64_t kMostBytes = int64_t{256} << 20;

std::string path_of(const std::string& folder, const std::string& key) {
  return fmt::format("{}/{:016x}{:016x}{}", folder, hash_text(key), hash_text(key, 1), kSuffix);
}

Kernel read_file(const std::string& path, const std::string& key) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  FileHeader h;
  if (bytes.size() < sizeof h) return nullptr;
  std::memcpy(&h, bytes.data(), sizeof h);
  const uint64_t size = bytes.size() - sizeof h;
  if (std::memcmp(h.magic, kMagic, sizeof kMagic) != 0 || h.key > size || h.log > size - h.key ||
      h.image != size - h.key - h.log || h.checksum != hash_bytes(bytes.data() + sizeof h, size))
    return nullptr;
  const char* data = bytes.data() + sizeof h;
  if (std::string_view(data, h.key) != key) return nullptr;
  auto kernel = std::make_shared<CompiledKernel>();
  kernel->log.assign(data + h.key, h.log);
  kernel->image.assign(data + h.key + h.log, data + size);
  read_log(*kernel);
  utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // used now
  return kernel;
}

void delete_oldest(const std::string& folder) {
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  int64_t total = 0;
  std::error_code e;
  for (const auto& entry : fs::directory_iterator(folder, e)) {
    if (!entry.is_regular_file(e) || entry.path().filename().string().find(kSuffix) == std::string::npos) continue;
    total += int64_t(entry.file_size(e));
    files.emplace_back(entry.last_write_time(e), entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const auto& [time, path] : files) {
    if (total <= kMostBytes) break;
    total -= int64_t(fs::file_size(path, e));
    fs::remove(path, e);
  }
}

// A failure costs the next process a compilation, and nothing else.
void write_file(const std::string& folder, const std::string& key, const CompiledKernel& kernel) {
  std::error_code e;
  fs::create_directories(folder, e);
  std::string bytes = key + kernel.log;
  bytes.append(kernel.image.begin(), kernel.image.end());
  FileHeader h = {{}, key.size(), kernel.log.size(), kernel.image.size(), hash_text(bytes)};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  const std::string path = path_of(folder, key);
  const std::string temporary = fmt::format("{}.{}.{:x}", path, getpid(), reinterpret_cast<uintptr_t>(&kernel));
  std::ofstream out(temporary, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&h), sizeof h);
  out.write(bytes.data(), std::streamsize(bytes.size()));
  out.close();
  if (out) fs::rename(temporary, path, e);
  if (!out || e) fs::remove(temporary, e);
  delete_oldest(folder);
}

// --- for people: TILEWRIGHT_DUMP
// ---------------------------------------------------------------------------------------

void write_whole(const fs::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
}

// "// rows layernorm": rows_layernorm.
std::string title_of(const std::string& text) {
  std::string title;
  for (size_t i = text.rfind("// ", 0) == 0 ? 3 : text.size(); i < text.size() && text[i] != '\n' && i < 80; ++i)
    title += std::isalnum(static_cast<unsigned char>(text[i])) ? text[i] : '_';
  return title.empty() ? "kernel" : title;
}

// The text with its headers, so that it compiles as it lies there. `kernel`: null where it does not compile.
void dump(const KernelSource& source, const std::string& arch, const std::string& key, const std::string& log,
          const CompiledKernel* kernel) {
  const char* folder = kDump.value();
  if (!folder || !*folder) return;
  std::error_code e;
  fs::create_directories(folder, e);
  for (size_t i = 0; i < source.header_count; ++i) {
    const fs::path header = fs::path(folder) / source.headers[i].name;
    fs::create_directories(header.parent_path(), e);
    write_whole(header, source.headers[i].text);
  }
  const std::string stem =
      fmt::format("{}/{}-{:08x}.{}", folder, title_of(source.text), uint32_t(hash_text(key)), arch);
  write_whole(stem + ".cu", source.text);
  write_whole(stem + ".log", log);
  if (!kernel) return;
  const bool ptx = arch.rfind("compute_", 0) == 0;
  const std::string_view image(reinterpret_cast<const char*>(kernel->image.data()), kernel->image.size());
  write_whole(stem + (ptx ? ".ptx" : ".cubin"), ptx ? image.substr(0, image.size() - 1) : image);
}

// --- in memory
// --------------------------------------------------------------------------------------------------------

struct Memory {
  std::mutex mutex;
  std::condition_variable done;
  std::map<std::string, std::optional<Result<Kernel>>> kernels;  // by key; empty: a thread is at it
  CompilerCounts counts;
};
Memory& memory() {
  static Memory* m = new Memory;
  return *m;
}

Result<Kernel> find_or_compile(const KernelSource& source, const std::string& arch, const std::string& key) {
  const std::string folder = kernel_folder();
  if (!folder.empty())
    if (Kernel kernel = read_file(path_of(folder, key), key)) {
      dump(source, arch, key, kernel->log, kernel.get());
      std::lock_guard lock(memory().mutex);
      ++memory().counts.from_disk;
      return kernel;
    }
  Program program(source);
  Result<Kernel> kernel = program.compile(arch);
  dump(source, arch, key, program.log(), kernel ? kernel->get() : nullptr);
  if (kernel && !folder.empty()) write_file(folder, key, **kernel);
  std::lock_guard lock(memory().mutex);
  ++memory().counts.compiled;
  return kernel;
}

}  // namespace

std::string native_arch(int capability) {
  return fmt::format("sm_{}{}", capability, capability == 90 || capability == 100 || capability >= 120 ? "a" : "");
}

bool code_runs_on(const std::string& arch, int capability) {
  const bool ptx = arch.rfind("compute_", 0) == 0;
  const size_t digits = ptx ? 8 : 3;
  if ((!ptx && arch.rfind("sm_", 0) != 0) || arch.size() <= digits || arch.size() > digits + 4) return false;
  char* end = nullptr;
  const long of = std::strtol(arch.c_str() + digits, &end, 10);
  if (*end == 'a') return of == capability;
  if (*end != 0) return false;
  return ptx ? capability >= of : capability >= of && capability / 10 == of / 10;
}

std::string kernel_folder() {
  if (const char* given = kKernels.value()) return std::string_view(given) == "off" ? "" : given;
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (cache && cache[0] == '/') return std::string(cache) + "/tilewright/kernels";
  return home && home[0] == '/' ? std::string(home) + "/.cache/tilewright/kernels" : "";
}

Result<Kernel> compile(const KernelSource& source, const std::string& arch) {
  if (!nvrtc_lookup().nvrtc) return error(error_code_t::NVRTC_COMPILATION_FAILED, "{}", nvrtc_lookup().error_text());
  const std::string key = key_of(source, arch);
  Memory& m = memory();
  std::unique_lock lock(m.mutex);
  auto [it, mine] = m.kernels.try_emplace(key);
  if (!mine) {
    m.done.wait(lock, [&] { return !m.kernels.count(key) || m.kernels[key].has_value(); });
    if (auto found = m.kernels.find(key); found != m.kernels.end() && found->second) {
      ++m.counts.from_memory;
      return *found->second;
    }
  }
  lock.unlock();
  Result<Kernel> kernel = find_or_compile(source, arch, key);
  lock.lock();
  if (kernel) m.kernels[key] = kernel;
  else m.kernels.erase(key);  // what is missing may be there at the next call
  m.done.notify_all();
  return kernel;
}

CompilerCounts compiler_counts() {
  std::lock_guard lock(memory().mutex);
  return memory().counts;
}
void forget_compiled() {
  std::lock_guard lock(memory().mutex);
  memory().kernels.clear();
}

}  // namespace tilewright::cuda
