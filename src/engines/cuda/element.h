// Loads and stores of any element type, also of those below a byte: for kernels that take whatever there is.
#pragma once

#include <string>

#include "base/numeric_types.h"

namespace tilewright::cuda {

bool any_element(DataType_t storage);         // is there a load and a store?
std::string memory_type(DataType_t storage);  // what its pointer points to
// "F(bf16::get(a.x[i]))"; "a.x[i] = bf16::set(v);". With kernels/narrow.cuh included.
std::string load_text(DataType_t storage, const std::string& pointer, const std::string& at);
std::string store_text(DataType_t storage, const std::string& pointer, const std::string& at, const std::string& value);

}  // namespace tilewright::cuda
