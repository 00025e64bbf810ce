#include "chosen_device.h"

#include <algorithm>
#include <cctype>

#include "base/environment.h"
#include "frontend/handle.h"
#include "plan/plan_file.h"
#include "terminal.h"

namespace tilewright::tool {

const char* const kDeviceHelp =
    "auto (a GPU if an engine can use it, else the CPU), cpu, cuda, cuda:N, cuda:N,compute_75 (our kernels as PTX of "
    "an older architecture), or to plan for: h200, sm_86, compute_75 (default: TILEWRIGHT_DEVICE, else auto)";

namespace {

// Engine "host" can use any GPU, and is slower than the CPU by itself.
bool any_engine_for(const Target& target) {
  const auto& engines = all_engines();
  return std::any_of(engines.begin(), engines.end(), [&](const Engine* e) {
    return std::string_view(e->name()) != "host" && e->unavailable(target).empty();
  });
}

std::string first_usable() {
  for (int i = 0; i < cuda::device_count(); ++i)
    if (const auto target = Target::of_gpu(i); target && any_engine_for(*target)) return fmt::format("cuda:{}", i);
  return "cpu";
}

std::string resolved(const std::string& option) {
  std::string text = option;
  const char* variable = kDevice.value();
  if (text == "auto" && variable && *variable) text = variable;
  return text == "auto" ? first_usable() : text;
}

// "cuda", "cuda:N", "cuda:N,compute_75".
bool names_a_gpu(const std::string& text) {
  return text == "cuda" || (text.rfind("cuda:", 0) == 0 && (text.size() == 5 || isdigit((unsigned char)text[5])));
}

}  // namespace

ChosenDevice::ChosenDevice(const std::string& given, const std::string& option) {
  const std::string text = resolved(given);
  if (text == "cpu") {
    target_ = Target::this_machine();
    return;
  }
  auto target = Target::parse(text);
  if (!target)
    throw Failure{fmt::format("{} {}: {}", option, text, target.status().get_message()), names_a_gpu(text) ? 1 : 2};
  target_ = std::move(*target);
  if (!names_a_gpu(text)) {
    only_planned_ = text == Target::this_machine().text() ? "" : text;
    return;
  }
  const cuda::ScopedDevice device(target_.ordinal);
  must(device.status(), option + " " + text);
  cuda::CUstream stream = nullptr;
  must(cuda::check(cuda::driver().stream_create(&stream, cuda::kStreamNonBlocking), "cuStreamCreate"),
       option + " " + text);
  stream_ = stream;
  must(create_handle(&handle_, text, stream), option + " " + text);
  auto queue = queue_of(handle_);
  if (!queue) fail("{} {}: {}", option, text, queue.status().get_message());
  queue_ = *queue;
}

ChosenDevice::~ChosenDevice() {
  if (handle_) (void)destroy_handle(handle_);
  if (!stream_) return;
  const cuda::ScopedDevice device(target_.ordinal);
  cuda::driver().stream_destroy(static_cast<cuda::CUstream>(stream_));
}

std::string ChosenDevice::text() const {
  return target_.is_gpu() ? fmt::format("{}, {}", target_.gpu->name, target_.text()) : target_.text();
}

void ChosenDevice::must_run() const {
  if (!only_planned_.empty())
    fail(
        "--device {}: plans for it can be made here, but not run: it is no device of this machine; `tilewright plans` "
        "and `tilewright explain` show them, `tilewright compile` keeps one for there, --device cpu or cuda runs here",
        only_planned_);
}

void ChosenDevice::lower(graph::Graph& graph, const std::string& name) const {
  if (!only_planned_.empty()) {
    auto properties = std::make_shared<DeviceProperties>();
    const std::string text = target_.is_gpu() ? target_.gpu->json : target_.text(), id = "0";
    std::vector<uint8_t> bytes(text.begin(), text.end());
    if (!target_.is_gpu())
      bytes = write_sections({{"target", {text.begin(), text.end()}}, {"device", {id.begin(), id.end()}}});
    must(properties->deserialize(bytes), "--device " + only_planned_);
    graph.set_device_properties(properties);
  }
  must(graph.build_operation_graph(handle_), name);
}

}  // namespace tilewright::tool
