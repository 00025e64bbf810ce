// The plan file: named sections, each with a length and a checksum, behind a magic number and a format version.
// Everything read is bounds-checked: the bytes may come from anywhere.
//
//   "TWPLAN\r\n"  u32 format  u32 sections  { char tag[8], u64 size, u64 hash, bytes } ...  u64 hash of all before
//
// Numbers are little-endian; hashes are 64-bit xxHash.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tilewright {

constexpr uint32_t kPlanFileFormat = 1;

using Sections = std::map<std::string, std::vector<uint8_t>>;  // by tag, at most 8 characters
bool is_plan_file(std::string_view bytes);                     // by how they begin
std::vector<uint8_t> write_sections(const Sections&);
// INVALID_VALUE, saying what is wrong: no plan file, cut short, damaged, or of a newer format.
Result<Sections> read_sections(const std::vector<uint8_t>&);

}  // namespace tilewright
