// GPUs: what each is, its context, and memory on it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda/driver.h"

namespace tilewright::cuda {

// What decides plans and kernels. The text form is JSON with the keys of cuDNN's device properties, so that it serves
// there as it is.
struct GpuProperties {
  std::string name;  // "NVIDIA H200"
  int arch = 0;      // 90: compute capability 9.0
  int driver = 0;    // CUDA version of the driver: 13000
  int sms = 0;
  int64_t shared_bytes = 0;  // most that one block may have
  int64_t l2_bytes = 0, memory_bytes = 0;
  bool ptx = false;  // it takes our kernels as PTX of `arch`, of which it may be newer
  std::string json;

  // The same GPU as one of an older architecture, for which kernels are PTX.
  Result<GpuProperties> as_ptx_of(int older) const;
  static Result<GpuProperties> from_json(const std::string&);
};

// Shared memory that one block may have at most, by compute capability.
int64_t most_shared_bytes(int arch);

int device_count();  // 0 where there is no usable driver
Result<GpuProperties> gpu_properties(int ordinal);

// The ordinal's primary context, the one that the CUDA runtime uses too. Kept for the life of the process.
Result<CUcontext> primary_context(int ordinal);
// The device of the calling thread's context; -1: it has none.
int current_device();

// Makes a device's context the thread's own for a while; -1, the CPU: changes nothing.
class ScopedDevice {
 public:
  explicit ScopedDevice(int ordinal);
  ~ScopedDevice();
  ScopedDevice(const ScopedDevice&) = delete;
  ScopedDevice& operator=(const ScopedDevice&) = delete;
  const Status& status() const { return status_; }

 private:
  Status status_;
  CUcontext before_ = nullptr;
  bool changed_ = false;
};

// Memory of a device, freed with the object.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&&) noexcept;
  DeviceMemory& operator=(DeviceMemory&&) noexcept;
  static Result<DeviceMemory> allocate(int ordinal, int64_t bytes);  // 0 bytes: null
  void* data() const { return reinterpret_cast<void*>(address_); }
  int64_t bytes() const { return bytes_; }

 private:
  int ordinal_ = -1;
  CUdeviceptr address_ = 0;
  int64_t bytes_ = 0;
};

enum class MemoryKind { Device, Host, Unknown };  // Unknown: no memory that the driver knows, so plain host memory
struct PointerInfo {
  MemoryKind kind = MemoryKind::Unknown;
  int ordinal = -1;  // of Device
};
PointerInfo pointer_info(const void*);

// Device time of what was put on a stream between the two, in milliseconds.
class Stopwatch {
 public:
  static Result<std::unique_ptr<Stopwatch>> make();  // on the thread's current device
  ~Stopwatch();
  Status start(void* stream) {
    return check(driver().event_record(events_[0], static_cast<CUstream>(stream)), "cuEventRecord");
  }
  Status stop(void* stream) {
    return check(driver().event_record(events_[1], static_cast<CUstream>(stream)), "cuEventRecord");
  }
  Result<double> elapsed_ms();  // waits for the end

 private:
  Stopwatch() = default;
  CUevent events_[2] = {};
};

}  // namespace tilewright::cuda
