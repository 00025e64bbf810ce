#include "device/cuda/gpu.h"

#include <array>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace tilewright::cuda {
namespace {

enum : CUdevice_attribute {
#define TW_ATTRIBUTE(KEY, NAME, NUMBER) NAME = NUMBER,
#include "device/cuda/attributes.def"
#undef TW_ATTRIBUTE
};
struct Attribute {
  std::string_view key;
  CUdevice_attribute number;
};
constexpr Attribute kAttributes[] = {
#define TW_ATTRIBUTE(KEY, NAME, NUMBER) {KEY, NUMBER},
#include "device/cuda/attributes.def"
#undef TW_ATTRIBUTE
};

constexpr const char* kKernels = "tilewrightKernels";  // a key of ours, not of cuDNN: "PTX"

int attribute(CUdevice_attribute number, CUdevice device) {
  int value = 0;
  return driver().device_get_attribute(&value, number, device) == kSuccess ? value : 0;
}

}  // namespace

Result<GpuProperties> GpuProperties::from_json(const std::string& text) {
  const auto j = nlohmann::json::parse(text, nullptr, false);
  if (!j.is_object()) return invalid("GPU properties: the text is no JSON object");
  for (const char* key : {"deviceVer", "multiProcessorCount", "maxSharedMemoryPerBlockOptin", "l2CacheSize",
                          "totalGlobalMem", "driverVer"})
    if (!j.contains(key) || !j[key].is_number_integer()) return invalid("GPU properties: \"{}\" is missing", key);
  GpuProperties p;
  p.name = j.contains("deviceName") && j["deviceName"].is_string() ? j["deviceName"].get<std::string>() : "GPU";
  p.arch = j["deviceVer"].get<int>() / 10;
  p.driver = j["driverVer"];
  p.sms = j["multiProcessorCount"];
  p.shared_bytes = j["maxSharedMemoryPerBlockOptin"];
  p.l2_bytes = j["l2CacheSize"];
  p.memory_bytes = j["totalGlobalMem"];
  p.ptx = j.value(kKernels, "") == "PTX";
  p.json = j.dump();
  return p;
}

int64_t most_shared_bytes(int arch) {
  const int kib = arch < 80 ? 64 : arch == 80 || arch == 87 ? 163 : arch < 90 || arch >= 120 ? 99 : 227;
  return int64_t(kib) << 10;
}

Result<GpuProperties> GpuProperties::as_ptx_of(int older) const {
  if (older < 75 || older > arch)
    return invalid(
        "{} has compute capability {}.{}: PTX of compute_{} is not for it; expected compute_75 to compute_{}", name,
        arch / 10, arch % 10, older, arch);
  auto j = nlohmann::json::parse(json);
  j["deviceVer"] = older * 10;
  j["maxSharedMemoryPerBlockOptin"] = std::min(shared_bytes, most_shared_bytes(older));
  j[kKernels] = "PTX";
  return from_json(j.dump());
}

int device_count() { return driver_lookup().driver ? driver_lookup().devices : 0; }

namespace {

Result<GpuProperties> asked_properties(int ordinal) {
  CUdevice device = 0;
  TW_RETURN_IF_BAD(check(driver().device_get(&device, ordinal), "cuDeviceGet"));
  nlohmann::json j;
  const auto of = [device](CUdevice_attribute number) { return attribute(number, device); };
  j["maxGridSize"] = {of(MAX_GRID_DIM_X), of(MAX_GRID_DIM_Y), of(MAX_GRID_DIM_Z)};
  j["maxBlockSize"] = {of(MAX_BLOCK_DIM_X), of(MAX_BLOCK_DIM_Y), of(MAX_BLOCK_DIM_Z)};
  for (const Attribute& a : kAttributes)
    if (!a.key.empty()) j[std::string(a.key)] = of(a.number);
  size_t bytes = 0;
  TW_RETURN_IF_BAD(check(driver().device_total_mem(&bytes, device), "cuDeviceTotalMem"));
  char name[256] = "";
  TW_RETURN_IF_BAD(check(driver().device_get_name(name, sizeof name - 1, device), "cuDeviceGetName"));
  int version = 0;
  TW_RETURN_IF_BAD(check(driver().driver_get_version(&version), "cuDriverGetVersion"));
  j["totalGlobalMem"] = bytes;
  j["cudaDeviceId"] = ordinal;
  j["deviceVer"] = of(COMPUTE_CAPABILITY_MAJOR) * 100 + of(COMPUTE_CAPABILITY_MINOR) * 10;
  j["driverVer"] = version;
  j["deviceName"] = name;
  return GpuProperties::from_json(j.dump());
}

}  // namespace

// The driver takes milliseconds to tell some of them, as the clocks, and none changes: they are asked for once.
Result<GpuProperties> gpu_properties(int ordinal) {
  static std::mutex mutex;
  static std::map<int, GpuProperties> known;
  if (!driver_lookup().driver) return error(error_code_t::CUDA_API_FAILED, "{}", driver_lookup().problem);
  if (ordinal < 0 || ordinal >= device_count())
    return invalid("there is no GPU {}: this machine has {}, counted from 0", ordinal, device_count());
  const std::lock_guard lock(mutex);
  auto found = known.find(ordinal);
  if (found == known.end()) {
    TW_ASSIGN_OR_RETURN(GpuProperties properties, asked_properties(ordinal));
    found = known.emplace(ordinal, std::move(properties)).first;
  }
  return found->second;
}

Result<CUcontext> primary_context(int ordinal) {
  static std::mutex mutex;
  static std::array<CUcontext, 64> contexts = {};
  if (ordinal < 0 || ordinal >= device_count() || ordinal >= int(contexts.size()))
    return invalid("there is no GPU {}: this machine has {}, counted from 0", ordinal, device_count());
  std::lock_guard lock(mutex);
  CUcontext& context = contexts[size_t(ordinal)];
  if (!context) {
    CUdevice device = 0;
    TW_RETURN_IF_BAD(check(driver().device_get(&device, ordinal), "cuDeviceGet"));
    TW_RETURN_IF_BAD(check(driver().device_primary_ctx_retain(&context, device), "cuDevicePrimaryCtxRetain"));
  }
  return context;
}

int current_device() {
  CUcontext context = nullptr;  // asked for first: without one the device is an error, which tools would report
  CUdevice device = -1;
  const bool found = driver_lookup().driver && driver().ctx_get_current(&context) == kSuccess && context &&
                     driver().ctx_get_device(&device) == kSuccess;
  return found ? device : -1;
}

ScopedDevice::ScopedDevice(int ordinal) {
  if (ordinal < 0 || current_device() == ordinal) return;
  const auto context = primary_context(ordinal);
  status_ = context.status();
  if (status_.is_bad()) return;
  driver().ctx_get_current(&before_);
  status_ = check(driver().ctx_set_current(*context), "cuCtxSetCurrent");
  changed_ = status_.is_good();
}

ScopedDevice::~ScopedDevice() {
  if (changed_) driver().ctx_set_current(before_);
}

DeviceMemory::~DeviceMemory() {
  if (!address_) return;
  const ScopedDevice device(ordinal_);
  driver().mem_free(address_);
}
DeviceMemory::DeviceMemory(DeviceMemory&& o) noexcept { *this = std::move(o); }
DeviceMemory& DeviceMemory::operator=(DeviceMemory&& o) noexcept {
  std::swap(ordinal_, o.ordinal_), std::swap(address_, o.address_), std::swap(bytes_, o.bytes_);
  return *this;
}

Result<DeviceMemory> DeviceMemory::allocate(int ordinal, int64_t bytes) {
  DeviceMemory m;
  if (bytes <= 0) return m;
  const ScopedDevice device(ordinal);
  TW_RETURN_IF_BAD(device.status());
  m.ordinal_ = ordinal, m.bytes_ = bytes;
  TW_RETURN_IF_BAD(check(driver().mem_alloc(&m.address_, size_t(bytes)),
                         fmt::format("cuMemAlloc of {} bytes on GPU {}", bytes, ordinal)));
  return m;
}

PointerInfo pointer_info(const void* pointer) {
  unsigned type = 0;  // stays 0 for memory that CUDA does not know
  int ordinal = -1;
  CUpointer_attribute wanted[] = {kPointerMemoryType, kPointerDeviceOrdinal};
  void* values[] = {&type, &ordinal};
  if (driver().pointer_get_attributes(2, wanted, values, reinterpret_cast<CUdeviceptr>(pointer)) != kSuccess) return {};
  if (type == kMemoryTypeHost) return {MemoryKind::Host, -1};
  return type == 0 ? PointerInfo{} : PointerInfo{MemoryKind::Device, ordinal};
}

Result<std::unique_ptr<Stopwatch>> Stopwatch::make() {
  std::unique_ptr<Stopwatch> watch(new Stopwatch);
  for (CUevent& e : watch->events_) TW_RETURN_IF_BAD(check(driver().event_create(&e, 0), "cuEventCreate"));
  return watch;
}

Stopwatch::~Stopwatch() {
  for (CUevent e : events_)
    if (e) driver().event_destroy(e);
}

Result<double> Stopwatch::elapsed_ms() {
  TW_RETURN_IF_BAD(check(driver().event_synchronize(events_[1]), "cuEventSynchronize"));
  float ms = 0;
  TW_RETURN_IF_BAD(check(driver().event_elapsed_time(&ms, events_[0], events_[1]), "cuEventElapsedTime"));
  return double(ms);
}

}  // namespace tilewright::cuda
