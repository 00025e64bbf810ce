// A description of a device, so that plans can be built where the device is not: of the handle's, else of the GPU with
// the device id where the machine has GPUs, else of the CPU. A GPU's bytes are the JSON text that cuDNN has for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tilewright/device.h"

#pragma GCC visibility push(default)
namespace tilewright {

class DeviceProperties {
 public:
  DeviceProperties& set_device_id(int32_t v) { return device_id_ = v, *this; }
  DeviceProperties& set_handle(Handle v) { return handle_ = v, *this; }
  error_t build();
  error_t serialize(std::vector<uint8_t>&) const;
  error_t deserialize(const std::vector<uint8_t>&);
  error_t status() const { return status_; }
  std::string describe() const;
  // "cpu:avx2,threads=2" or "cuda:sm_90,sms=132,smem=227,l2=60".
  const std::string& target() const { return target_; }
  // Of a GPU its properties as JSON; else empty.
  const std::string& gpu() const { return gpu_; }

 private:
  int32_t device_id_ = 0;
  Handle handle_;
  std::string target_, gpu_;
  error_t status_;
};

}  // namespace tilewright
#pragma GCC visibility pop
