// NumPy's .npy files, to and from the memory of a tensor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"

namespace tilewright::tool {

struct NpyArray {
  std::string descr;     // "<f4"
  DataType_t type;       // how an element is read
  bool fortran = false;  // first index fastest
  Dims shape;
  std::vector<uint8_t> data;
};

// Versions 1 to 3; f2 f4 f8 i1 u1 i4 i8 b1, and u2 as raw 16-bit values. Anything else is an error that says what.
Result<NpyArray> parse_npy(const std::string& bytes);
Result<NpyArray> read_npy(const std::string& path);

// Writes the array into the tensor's memory: shapes must be equal (a 0-d array fits one element). Other types are
// converted by value; u2 goes into HALF and BFLOAT16, and u1 into FP8 types, as raw bits. `note` says what was done
// when it is not a plain copy.
Status npy_to_tensor(const NpyArray& array, const ir::Tensor& tensor, void* memory, std::string& note);

// The tensor as an .npy file, in logical row-major order. BFLOAT16 is written as u2 and FP8 as u1 (NumPy has no such
// types); `note` says so.
Result<std::string> tensor_to_npy(const ir::Tensor& tensor, const void* memory, std::string& note);

}  // namespace tilewright::tool
