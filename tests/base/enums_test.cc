#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "base/result.h"
#include "tilewright/types.h"

namespace tilewright {
namespace {

// Every enumerator of the list: its text is its name, the name parses back, streaming prints it, and values are dense.
template <class E>
void check_texts(const std::vector<std::pair<E, std::string>>& entries) {
  int next = 0;
  for (const auto& [value, name] : entries) {
    EXPECT_EQ(int(value), next++) << name;
    EXPECT_EQ(to_string(value), name);
    E parsed = E(-1);
    EXPECT_TRUE(from_string(name, parsed)) << name;
    EXPECT_EQ(parsed, value);
    std::ostringstream out;
    out << value;
    EXPECT_EQ(out.str(), name);
  }
  E untouched = E(77);
  for (std::string_view text : {"", "not a name", "FLOA", "FLOATS", "float"}) {
    EXPECT_FALSE(from_string(text, untouched)) << text;
    EXPECT_EQ(untouched, E(77));
  }
  EXPECT_NE(to_string(E(next)).find("(" + std::to_string(next) + ")"), std::string::npos) << to_string(E(next));
  EXPECT_NE(to_string(E(-1)).find("(-1)"), std::string::npos);
}

#define TILEWRIGHT_ENTRY(name) {E::name, #name},
#define TILEWRIGHT_TEST_ENUM(type, list) \
  TEST(EnumText, type) { \
    using E = type; \
    check_texts<E>({list(TILEWRIGHT_ENTRY)}); \
  }
TILEWRIGHT_ENUMS(TILEWRIGHT_TEST_ENUM)

TEST(EnumText, KeepsTheFieldsSpelling) {
  EXPECT_EQ(to_string(DataType_t::FP8_E4M3), "FP8_E4M3");
  EXPECT_EQ(to_string(PointwiseMode_t::GELU_APPROX_TANH_FWD), "GELU_APPROX_TANH_FWD");
  EXPECT_EQ(to_string(NumericalNote_t::WINOGRAD_TILE_4x4), "WINOGRAD_TILE_4x4");
  EXPECT_EQ(to_string(TensorReordering_t::F8_128x4), "F8_128x4");
}

TEST(StatusText, IsCodeAndMessage) {
  std::ostringstream out;
  out << Status{} << "; " << invalid("axis {} of {}", 4, 3);
  EXPECT_EQ(out.str(), "OK; INVALID_VALUE: axis 4 of 3");
  EXPECT_EQ(to_string(error_code_t::CUDNN_BACKEND_API_FAILED), "CUDNN_BACKEND_API_FAILED");
  EXPECT_EQ(fmt::format("{}", error_code_t::HANDLE_ERROR), "HANDLE_ERROR");
}

TEST(Result, CarriesAValueOrAStatus) {
  const auto half_of = [](int x) -> Result<int> {
    if (x % 2) return invalid("{} is odd", x);
    return x / 2;
  };
  const auto quarter_of = [&](int x) -> Result<int> {
    TW_ASSIGN_OR_RETURN(int h, half_of(x));
    TW_ASSIGN_OR_RETURN(int q, half_of(h));
    return q;
  };
  EXPECT_EQ(*quarter_of(8), 2);
  EXPECT_FALSE(quarter_of(6));
  EXPECT_EQ(quarter_of(6).status().err_msg, "3 is odd");
  EXPECT_EQ(quarter_of(6).status().code, error_code_t::INVALID_VALUE);
}

TEST(CheckDeathTest, SaysWhereAndWhat) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(TW_CHECK(1 + 1 == 3), "enums_test.cc:[0-9]+: .*1 \\+ 1 == 3");
}

}  // namespace
}  // namespace tilewright
