// Neighbouring elements converted with vector instructions: the fast part of load_floats and store_floats.
#pragma once

#include <cstdint>

#include "tilewright/types.h"

namespace tilewright {

// False, and nothing done, where a type (or the machine) has no vector code here.
bool load_vectors(const void* from, DataType_t, int64_t count, float* to);
bool store_vectors(void* to, DataType_t, int64_t count, const float* from);
// A copy that leaves the caches to others. flush_streams() before another thread reads it.
void stream_bytes(void* to, const void* from, int64_t bytes);
void flush_streams();

}  // namespace tilewright
