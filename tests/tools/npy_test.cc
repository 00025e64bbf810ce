#include "npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/numeric_types.h"

namespace tilewright::tool {
namespace {

using testing::HasSubstr;

std::string npy(const std::string& descr, const std::string& order, const std::string& shape, const std::string& data,
                char version = 1) {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
  header += std::string(63 - (10 + header.size()) % 64, ' ') + "\n";
  std::string bytes = "\x93NUMPY";
  bytes += {version, char(0), char(header.size() & 0xff), char(header.size() >> 8)};
  if (version > 1) bytes += {char(0), char(0)};
  return bytes + header + data;
}

template <class T>
std::string raw(const std::vector<T>& v) {
  return {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T)};
}

ir::Tensor tensor(DataType_t type, Dims dim, Dims stride = {}) {
  ir::Tensor t;
  t.name = "t";
  t.type = type;
  t.dim = dim;
  t.stride = stride.empty() ? row_major_strides(dim) : stride;
  return t;
}

std::string error_of(const std::string& bytes) { return parse_npy(bytes).status().get_message(); }

TEST(Npy, EveryTypeSurvivesARoundTripInAnyLayout) {
  for (const DataType_t type :
       {DataType_t::HALF, DataType_t::FLOAT, DataType_t::DOUBLE, DataType_t::INT8, DataType_t::UINT8, DataType_t::INT32,
        DataType_t::INT64, DataType_t::BOOLEAN, DataType_t::BFLOAT16, DataType_t::FP8_E4M3, DataType_t::FP8_E5M2})
    for (const Dims& stride : {Dims{12, 4, 1}, Dims{1, 2, 6}, Dims{40, 12, 2}}) {
      const ir::Tensor t = tensor(type, {2, 3, 4}, stride);
      std::vector<uint8_t> memory(size_t(t.storage_bytes()), 0xee), back(memory);
      for (int64_t i = 0; i < 24; ++i)
        store_element(memory.data(), type, offset_of_linear(i, t.view()),
                      type == DataType_t::BOOLEAN ? double(i % 2) : double(i));
      std::string note;
      auto bytes = tensor_to_npy(t, memory.data(), note);
      ASSERT_TRUE(bytes) << bytes.status().get_message();
      auto array = parse_npy(*bytes);
      ASSERT_TRUE(array) << array.status().get_message();
      EXPECT_EQ(array->shape, t.dim);
      EXPECT_FALSE(array->fortran);
      ASSERT_TRUE(npy_to_tensor(*array, t, back.data(), note).is_good()) << to_string(type) << " " << note;
      EXPECT_EQ(memory, back) << to_string(type) << " " << to_text(stride);  // gaps are untouched
    }
}

TEST(Npy, ReadsFortranOrder) {
  auto array = parse_npy(npy("<f4", "True", "(2, 3)", raw<float>({1, 4, 2, 5, 3, 6})));
  ASSERT_TRUE(array) << array.status().get_message();
  std::vector<float> memory(6);
  std::string note;
  ASSERT_TRUE(npy_to_tensor(*array, tensor(DataType_t::FLOAT, {2, 3}), memory.data(), note).is_good());
  EXPECT_EQ(memory, (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(note, "");
}

TEST(Npy, ConvertsByValueAndSaysSo) {
  auto array = parse_npy(npy("<f8", "False", "(3,)", raw<double>({0.5, -2, 1e300})));
  ASSERT_TRUE(array);
  std::vector<float> memory(3);
  std::string note;
  ASSERT_TRUE(npy_to_tensor(*array, tensor(DataType_t::FLOAT, {3}), memory.data(), note).is_good());
  EXPECT_EQ(memory[0], 0.5f);
  EXPECT_TRUE(std::isinf(memory[2]));
  EXPECT_EQ(note, "<f8 converted to FLOAT");
}

TEST(Npy, TakesRawBitsOfTypesThatNumpyLacks) {
  auto array = parse_npy(npy("<u2", "False", "(2,)", raw<uint16_t>({0x3f80, 0xc000})));
  ASSERT_TRUE(array);
  std::vector<uint16_t> memory(2);
  std::string note;
  ASSERT_TRUE(npy_to_tensor(*array, tensor(DataType_t::BFLOAT16, {2}), memory.data(), note).is_good());
  EXPECT_EQ(memory, (std::vector<uint16_t>{0x3f80, 0xc000}));
  EXPECT_THAT(note, HasSubstr("raw BFLOAT16 bits"));
  std::vector<float> floats(2);
  EXPECT_THAT(npy_to_tensor(*array, tensor(DataType_t::FLOAT, {2}), floats.data(), note).get_message(),
              HasSubstr("HALF or BFLOAT16 would fit"));
}

TEST(Npy, TakesAScalarForOneElementAndNoOtherShape) {
  auto scalar = parse_npy(npy("<f4", "False", "()", raw<float>({2.5f})));
  ASSERT_TRUE(scalar);
  float value = 0;
  std::string note;
  EXPECT_TRUE(npy_to_tensor(*scalar, tensor(DataType_t::FLOAT, {1, 1, 1}), &value, note).is_good());
  EXPECT_EQ(value, 2.5f);
  auto row = parse_npy(npy("<f4", "False", "(4,)", raw<float>({1, 2, 3, 4}), 2));
  ASSERT_TRUE(row) << row.status().get_message();
  std::vector<float> memory(4);
  EXPECT_THAT(npy_to_tensor(*row, tensor(DataType_t::FLOAT, {2, 2}), memory.data(), note).get_message(),
              HasSubstr("shape is [4], and tensor \"t\" has [2, 2]"));
}

TEST(Npy, SaysWhatIsWrongWithAFile) {
  const std::string good = npy("<f4", "False", "(2,)", raw<float>({1, 2}));
  EXPECT_THAT(error_of("hello, world"), HasSubstr("does not begin"));
  EXPECT_THAT(error_of(""), HasSubstr("does not begin"));
  EXPECT_THAT(error_of(npy("<f4", "False", "(2,)", "", 9)), HasSubstr("version 9"));
  EXPECT_THAT(error_of(npy(">f4", "False", "(2,)", raw<float>({1, 2}))), HasSubstr("big-endian"));
  EXPECT_THAT(error_of(npy("<c8", "False", "(2,)", raw<float>({1, 2, 3, 4}))), HasSubstr("\"<c8\""));
  EXPECT_THAT(error_of(npy("<f4", "Maybe", "(2,)", raw<float>({1, 2}))), HasSubstr("fortran_order"));
  EXPECT_THAT(error_of(npy("<f4", "False", "(3,)", raw<float>({1, 2}))), HasSubstr("needs more than the 8 bytes"));
  EXPECT_THAT(error_of(npy("<f4", "False", "(4611686018427387904, 4)", "")), HasSubstr("absurd"));
  EXPECT_THAT(error_of(npy("<f4", "False", "(-2,)", "")), HasSubstr("shape"));
  for (size_t length = 0; length < good.size(); ++length) EXPECT_FALSE(parse_npy(good.substr(0, length))) << length;
  EXPECT_TRUE(parse_npy(good));
}

}  // namespace
}  // namespace tilewright::tool
