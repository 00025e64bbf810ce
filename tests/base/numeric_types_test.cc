#include "base/numeric_types.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "base/numeric_rows.h"
#include "support/every_target.h"

namespace tilewright {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A narrow float as its codes: what the tests below know of a format.
struct Narrow {
  const char* name;
  DataType_t type;
  int exponent_bits, mantissa_bits;
  std::function<double(unsigned)> decode;
  std::function<unsigned(double)> encode;
  unsigned sign, largest;  // the sign bit; the code of the largest finite value
  bool saturates;
};

std::vector<Narrow> narrow_floats() {
  return {
      {"half", DataType_t::HALF, 5, 10, [](unsigned c) { return half_to_float(uint16_t(c)); }, double_to_half, 0x8000,
       0x7bff, false},
      {"bfloat16", DataType_t::BFLOAT16, 8, 7, [](unsigned c) { return bfloat16_to_float(uint16_t(c)); },
       double_to_bfloat16, 0x8000, 0x7f7f, false},
      {"e4m3", DataType_t::FP8_E4M3, 4, 3, [](unsigned c) { return fp8_e4m3_to_float(uint8_t(c)); }, double_to_fp8_e4m3,
       0x80, 0x7e, true},
      {"e5m2", DataType_t::FP8_E5M2, 5, 2, [](unsigned c) { return fp8_e5m2_to_float(uint8_t(c)); }, double_to_fp8_e5m2,
       0x80, 0x7b, true},
  };
}

// The definition of a binary format, apart from inf and NaN.
double value_by_definition(const Narrow& f, unsigned code) {
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const unsigned magnitude = code & (f.sign - 1), exponent = magnitude >> f.mantissa_bits;
  const double fraction = double(magnitude & ((1u << f.mantissa_bits) - 1)) / (1 << f.mantissa_bits);
  const double v = exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, int(exponent) - bias);
  return code & f.sign ? -v : v;
}

TEST(NarrowFloats, EveryFiniteCodeHasItsValueAndComesBack) {
  for (const Narrow& f : narrow_floats())
    for (unsigned magnitude = 0; magnitude <= f.largest; ++magnitude)
      for (unsigned code : {magnitude, magnitude | f.sign}) {
        const double v = f.decode(code);
        ASSERT_EQ(v, value_by_definition(f, code)) << f.name << " " << code;
        ASSERT_EQ(f.encode(v), code) << f.name;
      }
}

TEST(NarrowFloats, CodesBeyondTheLargestAreInfOrNan) {
  for (const Narrow& f : narrow_floats())
    for (unsigned magnitude = f.largest + 1; magnitude < f.sign; ++magnitude)
      for (unsigned sign : {0u, f.sign}) {
        const double v = f.decode(magnitude | sign);
        const bool inf = magnitude == f.largest + 1 && f.type != DataType_t::FP8_E4M3;
        ASSERT_EQ(std::isinf(v), inf) << f.name << " " << magnitude;
        ASSERT_EQ(std::isnan(v), !inf) << f.name << " " << magnitude;
        if (inf) {
          ASSERT_EQ(std::signbit(v), sign != 0);
        } else {
          ASSERT_TRUE(std::isnan(f.decode(f.encode(v)))) << f.name;
        }
      }
}

// Between each two neighbours: the midpoint goes to the even code, and the doubles right beside it to their own side.
TEST(NarrowFloats, TiesGoToEvenAndNothingElseDoes) {
  for (const Narrow& f : narrow_floats())
    for (unsigned code = 0; code < f.largest; ++code) {
      const double middle = (f.decode(code) + f.decode(code + 1)) / 2;
      for (unsigned sign : {0u, f.sign}) {
        const double s = sign ? -1 : 1;
        ASSERT_EQ(f.encode(s * middle), sign | (code + (code & 1))) << f.name << " after " << code;
        ASSERT_EQ(f.encode(s * std::nextafter(middle, 0)), sign | code) << f.name;
        ASSERT_EQ(f.encode(s * std::nextafter(middle, kInf)), sign | (code + 1)) << f.name;
      }
    }
}

TEST(NarrowFloats, OverflowIsInfOrSaturates) {
  for (const Narrow& f : narrow_floats()) {
    const double largest = f.decode(f.largest), step = largest - f.decode(f.largest - 1);
    EXPECT_EQ(largest, largest_finite(f.type)) << f.name;
    const unsigned beyond = f.saturates ? f.largest : f.largest + 1;
    // Half a step above the largest, the tie is between its odd code and the even one of inf.
    EXPECT_EQ(f.encode(std::nextafter(largest + step / 2, 0)), f.largest) << f.name;
    EXPECT_EQ(f.encode(largest + step / 2), beyond) << f.name;
    for (double v : {largest + step, 1e300, kInf}) {
      EXPECT_EQ(f.encode(v), beyond) << f.name << " " << v;
      EXPECT_EQ(f.encode(-v), f.sign | beyond) << f.name << " " << v;
    }
  }
}

TEST(NarrowFloats, TinyValuesRoundToZeroOrTheSmallest) {
  for (const Narrow& f : narrow_floats()) {
    const double smallest = smallest_subnormal(f.type);
    EXPECT_EQ(f.decode(1), smallest) << f.name;
    EXPECT_EQ(f.encode(smallest / 2), 0u) << f.name;  // a tie
    EXPECT_EQ(f.encode(std::nextafter(smallest / 2, 1)), 1u) << f.name;
    EXPECT_EQ(f.encode(-5e-324), f.sign) << f.name;
    EXPECT_EQ(f.encode(-0.0), f.sign) << f.name;
  }
}

TEST(NarrowFloats, TraitsFollowFromTheFormat) {
  for (const Narrow& f : narrow_floats()) {
    const unsigned one = f.encode(1);
    EXPECT_EQ(unit_roundoff(f.type), (f.decode(one + 1) - 1) / 2) << f.name;
    EXPECT_TRUE(is_float_type(f.type));
    EXPECT_FALSE(is_integer_type(f.type));
  }
}

TEST(Half, DoubleIsRoundedOnce) {
  // 1 + 2^-11 is a tie; 2^-40 more must decide it upwards, though a float on the way would drop it.
  EXPECT_EQ(double_to_half(1 + 0x1p-11), 0x3c00);
  EXPECT_EQ(double_to_half(1 + 0x1p-11 + 0x1p-40), 0x3c01);
  EXPECT_EQ(float_to_half(float(1 + 0x1p-11 + 0x1p-40)), 0x3c00);
  EXPECT_EQ(double_to_bfloat16(1 + 0x1p-8 + 0x1p-40), 0x3f81);
}

TEST(Bfloat16, FloatShortcutAgreesWithTheEncoder) {
  std::mt19937 random(7);
  for (int i = 0; i < 2000000; ++i) {
    // Every fourth float is at or beside a tie.
    uint32_t u = uint32_t(random());
    if (i % 4 == 0) u = (u & 0xffff0000) | (0x7fff + u % 3);
    const float v = std::bit_cast<float>(u);
    ASSERT_EQ(float_to_bfloat16(v), double_to_bfloat16(v)) << std::hex << u;
    ASSERT_EQ(float_to_half(v), double_to_half(v)) << std::hex << u;
  }
}

TEST(StorageClasses, ConvertThroughFloat) {
  EXPECT_EQ(half(1.5f).bits, 0x3e00);
  EXPECT_EQ(float(half(-65504.f)), -65504.f);
  EXPECT_EQ(bfloat16(1.5f).bits, 0x3fc0);
  EXPECT_EQ(float(bfloat16(-3.f)), -3.f);
}

TEST(Fp8E8m0, IsPowersOfTwo) {
  for (unsigned code = 0; code < 255; ++code) {
    const double v = fp8_e8m0_to_float(uint8_t(code));
    ASSERT_EQ(v, std::ldexp(1.0, int(code) - 127));
    ASSERT_EQ(double_to_fp8_e8m0(v), code);
    if (code < 254) {
      ASSERT_EQ(double_to_fp8_e8m0(1.5 * v), code + (code & 1));
      ASSERT_EQ(double_to_fp8_e8m0(std::nextafter(1.5 * v, 0)), code);
      ASSERT_EQ(double_to_fp8_e8m0(std::nextafter(1.5 * v, kInf)), code + 1);
    }
  }
  EXPECT_TRUE(std::isnan(fp8_e8m0_to_float(0xff)));
  EXPECT_EQ(double_to_fp8_e8m0(kNan), 0xff);
  EXPECT_EQ(double_to_fp8_e8m0(kInf), 0xfe);
  EXPECT_EQ(double_to_fp8_e8m0(0), 0);  // no zero and no sign: the smallest power
  EXPECT_EQ(double_to_fp8_e8m0(-4), 0);
  EXPECT_EQ(unit_roundoff(DataType_t::FP8_E8M0), 0.5);
}

TEST(Fp4, HasSixteenValuesTwoToAByte) {
  const double values[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  uint8_t memory[8] = {};
  for (int i = 0; i < 16; ++i) store_element(memory, DataType_t::FP4_E2M1, i, i < 8 ? values[i] : -values[i - 8]);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(memory[i], (2 * i) | (2 * i + 1) << 4);
  for (int i = 0; i < 16; ++i)
    EXPECT_EQ(load_element(memory, DataType_t::FP4_E2M1, i), i < 8 ? values[i] : -values[i - 8]);
  const auto round = [](double v) { return round_to_type(DataType_t::FP4_E2M1, v); };
  for (int i = 0; i < 7; ++i) {
    const double middle = (values[i] + values[i + 1]) / 2;
    EXPECT_EQ(round(middle), values[i + (i & 1)]);
    EXPECT_EQ(round(std::nextafter(middle, 9)), values[i + 1]);
    EXPECT_EQ(round(-std::nextafter(middle, 0)), -values[i]);
  }
  EXPECT_EQ(round(100), 6);
  EXPECT_EQ(round(-kInf), -6);
}

struct IntegerRange {
  DataType_t type;
  double low, high;
};

TEST(Integers, RoundToEvenSaturateAndTurnNanToZero) {
  for (const auto& [type, low, high] : {IntegerRange{DataType_t::INT8, -128, 127},
                                        {DataType_t::UINT8, 0, 255},
                                        {DataType_t::INT32, -0x1p31, 0x1p31 - 1},
                                        {DataType_t::INT4, -8, 7}}) {
    const auto round = [type = type](double v) { return round_to_type(type, v); };
    EXPECT_EQ(round(2.5), 2) << type;
    EXPECT_EQ(round(3.5), 4) << type;
    EXPECT_EQ(round(3.4999999), 3) << type;
    EXPECT_EQ(round(-1.5), std::max(low, -2.0)) << type;
    EXPECT_EQ(round(high + 0.6), high) << type;
    EXPECT_EQ(round(low - 0.6), low) << type;
    EXPECT_EQ(round(low), low) << type;
    EXPECT_EQ(round(kInf), high) << type;
    EXPECT_EQ(round(-kInf), low) << type;
    EXPECT_EQ(round(kNan), 0) << type;
    EXPECT_EQ(largest_finite(type), high) << type;
    EXPECT_EQ(unit_roundoff(type), 0) << type;
    EXPECT_TRUE(is_integer_type(type)) << type;
  }
}

TEST(Integers, SixtyFourBitsSaturateAtTheirEnds) {
  int64_t memory;
  const auto stored = [&](double v) {
    store_element(&memory, DataType_t::INT64, 0, v);
    return memory;
  };
  EXPECT_EQ(stored(0x1p63), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(stored(-0x1p70), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(stored(0x1p62 + 1024), (int64_t{1} << 62) + 1024);
  EXPECT_EQ(stored(-2.5), -2);
  EXPECT_EQ(stored(kNan), 0);
}

TEST(Boolean, IsAByteOrABit) {
  uint8_t bytes[3] = {7, 7, 7};
  store_element(bytes, DataType_t::BOOLEAN, 1, -0.25);
  store_element(bytes, DataType_t::BOOLEAN, 2, -0.0);
  EXPECT_EQ(bytes[0], 7);
  EXPECT_EQ(bytes[1], 1);
  EXPECT_EQ(bytes[2], 0);
  EXPECT_EQ(load_element(bytes, DataType_t::BOOLEAN, 0), 1);

  uint8_t bits[2] = {0xff, 0};
  store_element(bits, kBitBoolean, 3, 0);
  store_element(bits, kBitBoolean, 9, 5);
  EXPECT_EQ(bits[0], 0xf7);
  EXPECT_EQ(bits[1], 2);
  EXPECT_EQ(load_element(bits, kBitBoolean, 3), 0);
  EXPECT_EQ(load_element(bits, kBitBoolean, 9), 1);
}

// Two threads that write every other element of the same bytes; run under tsan for the other half of the promise.
TEST(SubByteElements, NeighboursMayBeWrittenInParallel) {
  constexpr int kCount = 4000;
  for (DataType_t type : {kBitBoolean, DataType_t::INT4, DataType_t::FP4_E2M1}) {
    std::vector<uint8_t> memory(size_t(storage_bytes(type, kCount)), 0);
    const auto value = [](int i) { return double(i / 3 % 2); };
    const auto writer = [&](int from) {
      for (int i = from; i < kCount; i += 2) store_element(memory.data(), type, i, value(i));
    };
    std::thread other(writer, 1);
    writer(0);
    other.join();
    for (int i = 0; i < kCount; ++i) ASSERT_EQ(load_element(memory.data(), type, i), value(i)) << i;
  }
}

TEST(StorageBytes, CountsWholeBytes) {
  EXPECT_EQ(storage_bytes(kBitBoolean, 8), 1);
  EXPECT_EQ(storage_bytes(kBitBoolean, 9), 2);
  EXPECT_EQ(storage_bytes(DataType_t::INT4, 3), 2);
  EXPECT_EQ(storage_bytes(DataType_t::FP4_E2M1, 0), 0);
  EXPECT_EQ(storage_bytes(DataType_t::BOOLEAN, 3), 3);
  EXPECT_EQ(storage_bytes(DataType_t::COMPLEX_FP64, 2), 32);
  EXPECT_EQ(storage_bytes(DataType_t::INT8x32, 2), 64);
  EXPECT_EQ(storage_bytes(DataType_t::DOUBLE, int64_t{1} << 62), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(element_bits(DataType_t::NOT_SET), 0);
}

const DataType_t kStorageTypes[] = {
    DataType_t::FLOAT,    DataType_t::DOUBLE,   DataType_t::HALF,     DataType_t::BFLOAT16, DataType_t::INT8,
    DataType_t::UINT8,    DataType_t::INT32,    DataType_t::INT64,    DataType_t::BOOLEAN,  DataType_t::FP8_E4M3,
    DataType_t::FP8_E5M2, DataType_t::FP8_E8M0, DataType_t::FP4_E2M1, DataType_t::INT4,     kBitBoolean};

// Bit equality, any NaN being as good as another.
template <class T>
void expect_same(T a, T b, DataType_t type) {
  if (std::isnan(a) && std::isnan(b)) return;
  EXPECT_EQ(a, b) << type;
  EXPECT_EQ(std::signbit(a), std::signbit(b)) << type;
}

void check_rows() {
  std::mt19937 random(3);
  std::vector<double> values;
  for (double v : {0.0, -0.0, kInf, -kInf, kNan, 0.5, 1e-40, 1e-6, -1e5, 3e38, 65519.0, 65520.0}) values.push_back(v);
  while (values.size() < 101) values.push_back(std::ldexp(double(int32_t(random())), int(random() % 60) - 50));
  const int64_t count = int64_t(values.size());
  std::vector<float> floats(values.begin(), values.end());

  for (DataType_t type : kStorageTypes)
    for (int64_t stride : {1, 3, -2})
      for (int64_t index : {5, 6}) {
        const int64_t first = stride < 0 ? index - stride * count : index;
        const size_t bytes = size_t(storage_bytes(type, 4 * count + 20));
        std::vector<uint64_t> a(bytes / 8 + 1, 0x5a5a5a5a5a5a5a5a), b = a, c = a, d = a;
        store_doubles(a.data(), type, first, stride, count, values.data());
        store_floats(c.data(), type, first, stride, count, floats.data());
        for (int64_t i = 0; i < count; ++i) {
          store_element(b.data(), type, first + i * stride, values[size_t(i)]);
          store_element(d.data(), type, first + i * stride, floats[size_t(i)]);
        }
        EXPECT_EQ(a, b) << type << " stride " << stride;  // gaps included
        EXPECT_EQ(c, d) << type << " stride " << stride;
        std::vector<double> doubles_back(values.size());
        std::vector<float> floats_back(values.size());
        load_doubles(a.data(), type, first, stride, count, doubles_back.data());
        load_floats(a.data(), type, first, stride, count, floats_back.data());
        for (int64_t i = 0; i < count; ++i) {
          const double one = load_element(a.data(), type, first + i * stride);
          expect_same(doubles_back[size_t(i)], one, type);
          expect_same(floats_back[size_t(i)], float(one), type);
          expect_same(round_to_type(type, values[size_t(i)]), one, type);
        }
      }
}

TEST(Rows, AgreeWithSingleElements) {
  testing::on_every_target([] { check_rows(); });
}

// Every pattern of the upper bits of a float, with lower bits on either side of a tie.
void check_every_float(DataType_t type) {
  const int bytes = element_bits(type) / 8;
  for (uint32_t rest : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
    std::vector<float> values(65536);
    for (uint32_t i = 0; i < 65536; ++i) values[i] = std::bit_cast<float>(i << 16 | rest);
    std::vector<uint16_t> row(65536), one(65536);
    store_floats(row.data(), type, 0, 1, 65536, values.data());
    for (int64_t i = 0; i < 65536; ++i) store_element(one.data(), type, i, double(values[size_t(i)]));
    for (int64_t i = 0; i < 65536; ++i)
      ASSERT_EQ(std::memcmp(reinterpret_cast<char*>(row.data()) + i * bytes,
                            reinterpret_cast<char*>(one.data()) + i * bytes, size_t(bytes)),
                0)
          << type << " " << values[size_t(i)] << " " << (uint32_t(i) << 16 | rest);
  }
}
TEST(Rows, RoundAsSingleElementsDo) {
  testing::on_every_target([] {
    for (DataType_t type : {DataType_t::HALF, DataType_t::BFLOAT16, DataType_t::FP8_E4M3, DataType_t::FP8_E5M2,
                            DataType_t::INT8, DataType_t::UINT8, DataType_t::BOOLEAN})
      check_every_float(type);
  });
}

TEST(Rows, StreamsCopyExactly) {
  testing::on_every_target([] {
    std::vector<char> from(700), to(700);
    for (size_t i = 0; i < from.size(); ++i) from[i] = char(i * 7 + 1);
    for (size_t offset : {0, 1, 31, 64})
      for (size_t n : {0, 1, 5, 63, 64, 65, 130, 500}) {
        std::fill(to.begin(), to.end(), char(0x5a));
        stream_bytes(to.data() + offset, from.data() + 3, int64_t(n));
        flush_streams();
        for (size_t i = 0; i < to.size(); ++i)
          ASSERT_EQ(to[i], i >= offset && i < offset + n ? from[3 + i - offset] : char(0x5a)) << offset << " " << n;
      }
  });
}

TEST(Rows, EveryHalfIsTheSameInARow) {
  std::vector<uint16_t> codes(65536), back(65536);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = uint16_t(i);
  std::vector<float> values(65536);
  load_floats(codes.data(), DataType_t::HALF, 0, 1, 65536, values.data());
  for (size_t i = 0; i < codes.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(half_to_float(codes[i]))) << i;
  store_floats(back.data(), DataType_t::HALF, 0, 1, 65536, values.data());
  for (size_t i = 0; i < codes.size(); ++i) ASSERT_EQ(back[i], float_to_half(values[i])) << i;
}

TEST(RoundToType, ComputeTypesAndIdentity) {
  EXPECT_EQ(round_to_type(DataType_t::FLOAT, 1 + 0x1p-30), 1);
  EXPECT_EQ(round_to_type(DataType_t::FAST_FLOAT_FOR_FP8, 1 + 0x1p-20), 1 + 0x1p-20);
  EXPECT_EQ(round_to_type(DataType_t::DOUBLE, 1 + 0x1p-50), 1 + 0x1p-50);
  EXPECT_EQ(round_to_type(DataType_t::BFLOAT16, 1 + 0x1p-20), 1);
}

}  // namespace
}  // namespace tilewright
