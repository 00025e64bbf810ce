#include "engines/cuda/element.h"

#include <fmt/format.h>

#include "base/numeric_types.h"
#include "engines/cuda/emit.h"

namespace tilewright::cuda {
namespace {

std::string packed_type(DataType_t type) {
  if (type == kBitBoolean) return "bit";
  return type == DataType_t::INT4 ? "int4" : type == DataType_t::FP4_E2M1 ? "e2m1" : "";
}
std::string whole_type(DataType_t type) { return type == DataType_t::FP8_E8M0 ? "e8m0" : element_type(type); }

}  // namespace

bool any_element(DataType_t type) { return !packed_type(type).empty() || !whole_type(type).empty(); }

std::string memory_type(DataType_t type) { return packed_type(type).empty() ? whole_type(type) : "u8"; }

std::string load_text(DataType_t type, const std::string& pointer, const std::string& at) {
  if (const std::string packed = packed_type(type); !packed.empty())
    return fmt::format("F(load_packed<{}>(a.{}, {}))", packed, pointer, at);
  return fmt::format("F({}::get(a.{}[{}]))", whole_type(type), pointer, at);
}

std::string store_text(DataType_t type, const std::string& pointer, const std::string& at, const std::string& value) {
  if (const std::string packed = packed_type(type); !packed.empty())
    return fmt::format("store_packed<{}>(a.{}, {}, {});", packed, pointer, at, value);
  return fmt::format("a.{}[{}] = {}::set({});", pointer, at, whole_type(type), value);
}

}  // namespace tilewright::cuda
