#include "engines/cudnn/kernels.h"

#include <nlohmann/json.hpp>

namespace tilewright::cudnn {

std::shared_ptr<Kernels> Kernels::from_text(const std::string& text) {
  auto kernels = std::make_shared<Kernels>();
  const auto j = nlohmann::json::parse(text, nullptr, false);
  if (j.is_object())
    for (const auto& [key, value] : j.items())
      if (value.is_string()) kernels->loaded_[key] = value;
  return kernels;
}

RawDescriptor Kernels::of(const std::string& key, const OperationGraph& graph) {
  const std::lock_guard lock(mutex_);
  if (auto it = made_.find(key); it != made_.end()) return it->second.raw();
  const auto make = [&](const std::string& json) {
    Descriptor d(Kind::KERNEL_CACHE);
    if (!json.empty()) d.text(Attr::KERNEL_CACHE_JSON_REPRESENTATION, json);
    d.descriptor(Attr::KERNEL_CACHE_OPERATION_GRAPH, graph.raw());
    return d.finalize().is_good() ? std::move(d) : Descriptor();
  };
  const auto loaded = loaded_.extract(key);
  Descriptor d = make(loaded.empty() ? "" : loaded.mapped());
  if (!d.raw() && !loaded.empty()) d = make("");  // of another version of cuDNN
  return (made_[key] = std::move(d)).raw();
}

std::string Kernels::to_text() const {
  const std::lock_guard lock(mutex_);
  nlohmann::json j = loaded_;
  for (const auto& [key, d] : made_)
    if (d.raw())
      if (const auto text = d.get_text(Attr::KERNEL_CACHE_JSON_REPRESENTATION)) j[key] = *text;
  return j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tilewright::cudnn
