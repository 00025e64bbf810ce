#include "engines/cuda/kernel_store.h"

#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "base/thread_pool.h"
#include "device/cuda/gpu.h"
#include "engines/cuda/kernel_headers.h"

namespace tilewright::cuda {

LoadedKernel::LoadedKernel(std::shared_ptr<const CompiledKernel> kernel, int ordinal)
    : kernel_(std::move(kernel)), ordinal_(ordinal) {
  const ScopedDevice device(ordinal);
  status_ = device.status();
  if (status_.is_good())
    status_ = check(driver().module_load_data(&module_, kernel_->image.data()), "cuModuleLoadData");
  if (status_.is_good())
    status_ = check(driver().module_get_function(&function_, module_, "tw_kernel"), "cuModuleGetFunction");
}

LoadedKernel::~LoadedKernel() {
  if (!module_) return;
  const ScopedDevice device(ordinal_);
  driver().module_unload(module_);
}

Result<std::shared_ptr<const LoadedKernel>> load_kernel(std::shared_ptr<const CompiledKernel> kernel, int ordinal) {
  static std::mutex mutex;
  static auto* loaded = new std::map<std::pair<const CompiledKernel*, int>, std::weak_ptr<const LoadedKernel>>;
  const std::lock_guard lock(mutex);
  const std::pair key(static_cast<const CompiledKernel*>(kernel.get()), ordinal);
  if (const auto found = loaded->find(key); found != loaded->end())
    if (auto there = found->second.lock()) return there;
  std::erase_if(*loaded, [](const auto& entry) { return entry.second.expired(); });
  auto fresh = std::make_shared<const LoadedKernel>(std::move(kernel), ordinal);
  TW_RETURN_IF_BAD(fresh->status());
  (*loaded)[key] = fresh;
  return fresh;
}

// --- the cache
// ---------------------------------------------------------------------------------------------------------

namespace {

std::string to_hex(const std::vector<uint8_t>& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (uint8_t b : bytes) text += {kDigits[b >> 4], kDigits[b & 15]};
  return text;
}

std::vector<uint8_t> from_hex(const std::string& text) {
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    const int high = digit(text[i]), low = digit(text[i + 1]);
    if (high < 0 || low < 0) return {};
    bytes.push_back(uint8_t(high << 4 | low));
  }
  return bytes;
}

std::string hash_of(const CompiledKernel& kernel) {
  return fmt::format("{:016x}", hash_bytes(kernel.image.data(), kernel.image.size()));
}

std::string key_of(const std::string& text, const std::string& code) {
  static const uint64_t headers = [] {
    uint64_t h = 0;
    for (size_t i = 0; i < kernel_header_count(); ++i) h = hash_text(kernel_headers()[i].text, h);
    return h;
  }();
  return fmt::format("{} {:016x}{:016x}", code, hash_text(text, headers), hash_text(text, headers + 1));
}

}  // namespace

std::shared_ptr<KernelStore> KernelStore::of(KernelCache* cache) {
  if (!cache) return nullptr;
  return std::static_pointer_cast<KernelStore>(engine_cache(*cache, "cuda", &KernelStore::from_text));
}

std::shared_ptr<KernelStore> KernelStore::from_text(const std::string& text) {
  auto store = std::make_shared<KernelStore>();
  const auto j = nlohmann::json::parse(text, nullptr, false);
  if (!j.is_object()) return store;
  for (const auto& [key, entry] : j.items()) {
    if (!entry.is_object() || !entry.contains("image") || !entry["image"].is_string()) continue;
    auto kernel = std::make_shared<CompiledKernel>();
    kernel->image = from_hex(entry["image"]);
    if (entry.value("hash", "") == hash_of(*kernel)) store->kernels_[key] = std::move(kernel);
  }
  return store;
}

std::string KernelStore::to_text() const {
  const std::lock_guard lock(mutex_);
  auto j = nlohmann::json::object();
  for (const auto& [key, kernel] : kernels_) j[key] = {{"image", to_hex(kernel->image)}, {"hash", hash_of(*kernel)}};
  return j.dump();
}

std::shared_ptr<const CompiledKernel> KernelStore::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto it = kernels_.find(key);
  return it == kernels_.end() ? nullptr : it->second;
}

void KernelStore::add(const std::string& key, std::shared_ptr<const CompiledKernel> kernel) {
  const std::lock_guard lock(mutex_);
  kernels_[key] = std::move(kernel);
}

void KernelStore::keep(std::shared_ptr<const LoadedKernel> kernel) {
  const std::lock_guard lock(mutex_);
  loaded_.insert(std::move(kernel));
}

Status compile_all(std::vector<Launch>& launches, const std::string& code, KernelStore* store) {
  std::map<std::string, std::vector<Launch*>> missing;  // by key: launches of one text share a kernel
  for (Launch& l : launches) {
    if (l.text.empty()) continue;
    const std::string key = store ? key_of(l.text, code) : l.text;
    l.kernel = store ? store->find(key) : nullptr;
    if (!l.kernel) missing[key].push_back(&l);
  }
  const std::vector<std::pair<std::string, std::vector<Launch*>>> work(missing.begin(), missing.end());
  std::vector<Status> status(work.size());
  parallel_for(int64_t(work.size()), [&](int64_t i) {
    const auto& [key, list] = work[size_t(i)];
    const auto kernel = compile({list[0]->text, kernel_headers(), kernel_header_count()}, code);
    status[size_t(i)] = kernel.status();
    if (!kernel) return;
    for (Launch* l : list) l->kernel = *kernel;
    if (store) store->add(key, *kernel);
  });
  for (Status& s : status) TW_RETURN_IF_BAD(s);
  return {};
}

}  // namespace tilewright::cuda
