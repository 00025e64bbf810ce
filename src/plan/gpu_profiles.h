// GPUs that plans can be made for where they are not: their properties, as the device itself gives them.
#pragma once

namespace tilewright {

struct GpuProfile {
  const char *name, *json;
};

inline constexpr GpuProfile kGpuProfiles[] = {
    {"h200", R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536)"
             R"(,"multiProcessorCount":132,"warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryP)"
             R"(erBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCta)"
             R"(sPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":)"
             R"(0,"supportCoopLaunch":1,"totalGlobalMem":150109880320,"smClockRateKHz":1980000,"memClockRa)"
             R"(teKHz":3201000,"memoryBusWidth":6144,"l2CacheSize":62914560,"cudaDeviceId":0,"deviceVer":9)"
             R"(00,"driverVer":13000,"deviceName":"NVIDIA H200"})"},
};

}  // namespace tilewright
