// Conversions between number formats. Every narrow float goes through one encoder, which rounds the exact double.
#include "base/numeric_types.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/numeric_rows.h"
#include "base/result.h"

namespace tilewright {
namespace {

template <class To, class From>
To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// A binary format with subnormals: `mantissa` stored bits, exponent bias `bias`.
struct Format {
  int mantissa, bias;
};
constexpr Format kHalf{10, 15}, kBfloat16{7, 127}, kE4m3{3, 7}, kE5m2{2, 15}, kE2m1{1, 1};

// The code of a >= 0 (finite or inf) without its sign, rounded to nearest even. Grows past the largest code of the
// format when `a` does: the caller decides whether that is inf or the largest value.
uint64_t encode_magnitude(double a, Format f) {
  const uint64_t u = bits_as<uint64_t>(a);
  const int exponent = int(u >> 52) - 1023;
  if (exponent < 1 - f.bias) {
    // Subnormal: a count of the smallest steps. Adding 2^52 leaves no room for a fraction, so the FPU rounds it.
    const double steps = a * bits_as<double>(uint64_t(f.bias - 1 + f.mantissa + 1023) << 52);
    return bits_as<uint64_t>(steps + 0x1p52) & 0xffff;
  }
  const int dropped = 52 - f.mantissa;
  const uint64_t code = (u - (uint64_t(1023 - f.bias) << 52)) >> dropped;
  const uint64_t rest = u & ((uint64_t{1} << dropped) - 1), tie = uint64_t{1} << (dropped - 1);
  return code + (rest > tie || (rest == tie && (code & 1)));  // a carry moves on to the next exponent
}

double decode_magnitude(unsigned code, Format f) {
  const int exponent = int(code >> f.mantissa);
  const unsigned fraction = code & ((1u << f.mantissa) - 1);
  if (exponent == 0) return std::ldexp(double(fraction), 1 - f.bias - f.mantissa);
  return std::ldexp(double(fraction | (1u << f.mantissa)), exponent - f.bias - f.mantissa);
}

template <class Decode>
std::array<float, 256> table_of(Decode decode) {
  std::array<float, 256> table;
  for (unsigned code = 0; code < 256; ++code) table[code] = decode(code);
  return table;
}
float with_sign(bool negative, double magnitude) { return float(negative ? -magnitude : magnitude); }
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const std::array<float, 256> kE4m3Values = table_of([](unsigned code) {
  const unsigned magnitude = code & 0x7f;
  return magnitude == 0x7f ? kNan : with_sign(code & 0x80, decode_magnitude(magnitude, kE4m3));
});
const std::array<float, 256> kE5m2Values = table_of([](unsigned code) {
  const unsigned magnitude = code & 0x7f;
  if (magnitude > 0x7c) return kNan;
  if (magnitude == 0x7c) return with_sign(code & 0x80, std::numeric_limits<double>::infinity());
  return with_sign(code & 0x80, decode_magnitude(magnitude, kE5m2));
});
constexpr float kE2m1Values[16] = {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -.5f, -1, -1.5f, -2, -3, -4, -6};

// FP4 has no NaN and no inf: both become the largest value, as in the hardware's conversion.
uint8_t double_to_e2m1(double v) {
  const uint8_t sign = std::signbit(v) ? 8 : 0;
  if (std::isnan(v)) return 7;
  return sign | uint8_t(std::min<uint64_t>(encode_magnitude(std::fabs(v), kE2m1), 7));
}

// v clamped and rounded to nearest even; NaN is 0. The bounds are integers that a double holds.
template <class Int>
Int to_integer(double v, Int low, Int high) {
  v = v == v ? std::min(std::max(v, double(low)), double(high)) : 0;
  return Int((v + 0x1.8p52) - 0x1.8p52);  // no fraction survives beside 2^52
}
int64_t to_int64(double v) {
  if (std::isnan(v)) return 0;
  if (v >= 0x1p63) return std::numeric_limits<int64_t>::max();
  if (v <= -0x1p63) return std::numeric_limits<int64_t>::min();
  return int64_t(std::nearbyint(v));
}

template <class T>
T read(const void* memory, int64_t index) {
  T t;
  std::memcpy(&t, static_cast<const T*>(memory) + index, sizeof t);
  return t;
}
template <class T>
void write(void* memory, int64_t index, T t) {
  std::memcpy(static_cast<T*>(memory) + index, &t, sizeof t);
}

// Elements narrower than a byte share it with neighbours that other threads may be writing.
uint8_t read_shared(const void* memory, int64_t byte) {
  return __atomic_load_n(static_cast<const uint8_t*>(memory) + byte, __ATOMIC_RELAXED);
}
void write_shared(void* memory, int64_t byte, uint8_t mask, uint8_t value) {
  uint8_t* p = static_cast<uint8_t*>(memory) + byte;
  uint8_t old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (
      !__atomic_compare_exchange_n(p, &old, uint8_t((old & ~mask) | value), true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

// One codec per storage format: load gives a type that holds every value, store rounds a double.
template <class T>
struct PlainCodec {  // float, double
  static T load(const void* m, int64_t i) { return read<T>(m, i); }
  static void store(void* m, int64_t i, double v) { write(m, i, T(v)); }
};
template <class Code, float (*decode)(Code), Code (*encode)(double)>
struct NarrowCodec {
  static float load(const void* m, int64_t i) { return decode(read<Code>(m, i)); }
  static void store(void* m, int64_t i, double v) { write(m, i, encode(v)); }
};
template <class Int>
struct IntegerCodec {
  static auto load(const void* m, int64_t i) {
    if constexpr (sizeof(Int) < 4) return float(read<Int>(m, i));
    else return double(read<Int>(m, i));
  }
  static void store(void* m, int64_t i, double v) {
    if constexpr (sizeof(Int) == 8) write<Int>(m, i, to_int64(v));
    else write<Int>(m, i, to_integer<Int>(v, std::numeric_limits<Int>::min(), std::numeric_limits<Int>::max()));
  }
};
struct BooleanCodec {
  static float load(const void* m, int64_t i) { return read<uint8_t>(m, i) != 0; }
  static void store(void* m, int64_t i, double v) { write<uint8_t>(m, i, v != 0); }
};
struct BitCodec {
  static float load(const void* m, int64_t i) { return read_shared(m, i / 8) >> (i % 8) & 1; }
  static void store(void* m, int64_t i, double v) {
    write_shared(m, i / 8, uint8_t(1u << (i % 8)), uint8_t(unsigned(v != 0) << (i % 8)));
  }
};
unsigned load_nibble(const void* m, int64_t i) { return read_shared(m, i / 2) >> (i % 2 * 4) & 15; }
void store_nibble(void* m, int64_t i, unsigned code) {
  const int shift = int(i % 2) * 4;
  write_shared(m, i / 2, uint8_t(15u << shift), uint8_t((code & 15) << shift));
}
struct E2m1Codec {
  static float load(const void* m, int64_t i) { return kE2m1Values[load_nibble(m, i)]; }
  static void store(void* m, int64_t i, double v) { store_nibble(m, i, double_to_e2m1(v)); }
};
struct Int4Codec {
  static float load(const void* m, int64_t i) { return float(int(load_nibble(m, i) ^ 8) - 8); }
  static void store(void* m, int64_t i, double v) { store_nibble(m, i, unsigned(to_integer<int>(v, -8, 7))); }
};
using HalfCodec = NarrowCodec<uint16_t, half_to_float, double_to_half>;
using Bfloat16Codec = NarrowCodec<uint16_t, bfloat16_to_float, double_to_bfloat16>;

// Calls body(codec) for the type's codec. Vectors and complex numbers have no single value; graphs that hold them are
// turned away long before memory is touched.
template <class Body>
auto with_codec(DataType_t type, Body body) {
  if (type == kBitBoolean) return body(BitCodec{});
  switch (type) {
    case DataType_t::FLOAT: return body(PlainCodec<float>{});
    case DataType_t::DOUBLE: return body(PlainCodec<double>{});
    case DataType_t::HALF: return body(HalfCodec{});
    case DataType_t::BFLOAT16: return body(Bfloat16Codec{});
    case DataType_t::INT8: return body(IntegerCodec<int8_t>{});
    case DataType_t::UINT8: return body(IntegerCodec<uint8_t>{});
    case DataType_t::INT32: return body(IntegerCodec<int32_t>{});
    case DataType_t::INT64: return body(IntegerCodec<int64_t>{});
    case DataType_t::BOOLEAN: return body(BooleanCodec{});
    case DataType_t::FP8_E4M3: return body(NarrowCodec<uint8_t, fp8_e4m3_to_float, double_to_fp8_e4m3>{});
    case DataType_t::FP8_E5M2: return body(NarrowCodec<uint8_t, fp8_e5m2_to_float, double_to_fp8_e5m2>{});
    case DataType_t::FP8_E8M0: return body(NarrowCodec<uint8_t, fp8_e8m0_to_float, double_to_fp8_e8m0>{});
    case DataType_t::FP4_E2M1: return body(E2m1Codec{});
    case DataType_t::INT4: return body(Int4Codec{});
    default: check_failed(__FILE__, __LINE__, ("elements of type " + to_string(type)).c_str());
  }
}

// Types of one or two bytes: rows of them go through vector code, elements apart by way of a few gathered codes.
bool is_short(DataType_t type) {
  switch (type) {
    case DataType_t::HALF:
    case DataType_t::BFLOAT16:
    case DataType_t::FP8_E4M3:
    case DataType_t::FP8_E5M2:
    case DataType_t::INT8:
    case DataType_t::UINT8:
    case DataType_t::BOOLEAN: return true;
    default: return false;
  }
}
constexpr int64_t kGathered = 128;
template <class Code>
void gather(const Code* from, int64_t stride, int64_t count, Code* codes) {
  for (int64_t i = 0; i < count; ++i) codes[i] = from[i * stride];
}
template <class Code>
void scatter(const Code* codes, int64_t count, Code* to, int64_t stride) {
  for (int64_t i = 0; i < count; ++i) to[i * stride] = codes[i];
}

template <class T>
void load_row(const void* memory, DataType_t type, int64_t index, int64_t stride, int64_t count, T* out) {
  with_codec(type, [&](auto codec) {
    if (stride == 1)
      for (int64_t i = 0; i < count; ++i) out[i] = T(codec.load(memory, index + i));
    else
      for (int64_t i = 0; i < count; ++i) out[i] = T(codec.load(memory, index + i * stride));
  });
}
template <class T>
void store_row(void* memory, DataType_t type, int64_t index, int64_t stride, int64_t count, const T* in) {
  with_codec(type, [&](auto codec) {
    if (stride == 1)
      for (int64_t i = 0; i < count; ++i) codec.store(memory, index + i, double(in[i]));
    else
      for (int64_t i = 0; i < count; ++i) codec.store(memory, index + i * stride, double(in[i]));
  });
}

// --- what there is to know of a format -------------------------------------------------------------------------------

struct Traits {
  int bits = 0;
  bool is_float = false, is_integer = false;
  double unit_roundoff = 0, smallest = 0, largest = 0;
};

Traits float_traits(int bits, double u, double smallest, double largest) {
  return {bits, true, false, u, smallest, largest};
}
Traits integer_traits(int bits, double largest) { return {bits, false, true, 0, 0, largest}; }

Traits traits(DataType_t type) {
  if (type == kBitBoolean) return integer_traits(1, 1);
  switch (type) {
    case DataType_t::FLOAT: return float_traits(32, 0x1p-24, 0x1p-149, 0x1.fffffep127);
    case DataType_t::DOUBLE: return float_traits(64, 0x1p-53, 0x1p-1074, 0x1.fffffffffffffp1023);
    case DataType_t::HALF: return float_traits(16, 0x1p-11, 0x1p-24, 65504);
    case DataType_t::BFLOAT16: return float_traits(16, 0x1p-8, 0x1p-133, 0x1.fep127);
    case DataType_t::FP8_E4M3: return float_traits(8, 0x1p-4, 0x1p-9, 448);
    case DataType_t::FP8_E5M2: return float_traits(8, 0x1p-3, 0x1p-16, 57344);
    case DataType_t::FP8_E8M0: return float_traits(8, 0x1p-1, 0x1p-127, 0x1p127);
    case DataType_t::FP4_E2M1: return float_traits(4, 0x1p-2, 0.5, 6);
    // A way of computing, not of storing: as accurate as FLOAT here.
    case DataType_t::FAST_FLOAT_FOR_FP8: return float_traits(8, 0x1p-24, 0x1p-149, 0x1.fffffep127);
    case DataType_t::INT4: return integer_traits(4, 7);
    case DataType_t::INT8: return integer_traits(8, 127);
    case DataType_t::UINT8: return integer_traits(8, 255);
    case DataType_t::INT32: return integer_traits(32, 2147483647);
    case DataType_t::INT64: return integer_traits(64, 0x1p63);
    case DataType_t::BOOLEAN: return integer_traits(8, 1);
    case DataType_t::INT8x4: return integer_traits(32, 127);
    case DataType_t::UINT8x4: return integer_traits(32, 255);
    case DataType_t::INT8x32: return integer_traits(256, 127);
    case DataType_t::COMPLEX_FP32: return {64, false, false, 0x1p-24, 0x1p-149, 0x1.fffffep127};
    case DataType_t::COMPLEX_FP64: return {128, false, false, 0x1p-53, 0x1p-1074, 0x1.fffffffffffffp1023};
    case DataType_t::NOT_SET: break;
  }
  return {};
}

}  // namespace

int element_bits(DataType_t type) { return traits(type).bits; }
int64_t storage_bytes(DataType_t type, int64_t elements) {
  const int64_t bits = element_bits(type);
  if (bits % 8 != 0) return elements / 8 * bits + (elements % 8 * bits + 7) / 8;
  int64_t bytes;
  return __builtin_mul_overflow(elements, bits / 8, &bytes) ? std::numeric_limits<int64_t>::max() : bytes;
}
bool is_float_type(DataType_t type) { return traits(type).is_float; }
bool is_integer_type(DataType_t type) { return traits(type).is_integer; }
double unit_roundoff(DataType_t type) { return traits(type).unit_roundoff; }
double smallest_subnormal(DataType_t type) { return traits(type).smallest; }
double largest_finite(DataType_t type) { return traits(type).largest; }

float half_to_float(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000) << 16, magnitude = h & 0x7fff;
  if (magnitude < 0x400) return bits_as<float>(sign | bits_as<uint32_t>(float(magnitude) * 0x1p-24f));
  if (magnitude < 0x7c00) return bits_as<float>(sign | ((magnitude << 13) + (uint32_t{127 - 15} << 23)));
  const uint32_t fraction = (magnitude & 0x3ff) << 13;  // inf, or a NaN made quiet
  return bits_as<float>(sign | 0x7f800000 | fraction | (fraction ? 0x400000 : 0));
}

uint16_t double_to_half(double v) {
  const uint64_t u = bits_as<uint64_t>(v);
  const uint16_t sign = uint16_t(u >> 48 & 0x8000);
  if (std::isnan(v)) return sign | 0x7e00 | uint16_t(u >> 42 & 0x3ff);
  return sign | uint16_t(std::min<uint64_t>(encode_magnitude(std::fabs(v), kHalf), 0x7c00));
}
uint16_t float_to_half(float v) { return double_to_half(v); }

uint16_t double_to_bfloat16(double v) {
  const uint64_t u = bits_as<uint64_t>(v);
  const uint16_t sign = uint16_t(u >> 48 & 0x8000);
  if (std::isnan(v)) return sign | 0x7fc0 | uint16_t(u >> 45 & 0x7f);
  return sign | uint16_t(std::min<uint64_t>(encode_magnitude(std::fabs(v), kBfloat16), 0x7f80));
}
// The upper half of the float, plus the carry of the lower one; the same exponents make this exact.
uint16_t float_to_bfloat16(float v) {
  const uint32_t u = bits_as<uint32_t>(v);
  const uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
  return uint16_t(std::isnan(v) ? u >> 16 | 0x40 : rounded);
}

float fp8_e4m3_to_float(uint8_t code) { return kE4m3Values[code]; }
uint8_t double_to_fp8_e4m3(double v) {
  const uint8_t sign = std::signbit(v) ? 0x80 : 0;
  if (std::isnan(v)) return sign | 0x7f;
  return sign | uint8_t(std::min<uint64_t>(encode_magnitude(std::fabs(v), kE4m3), 0x7e));
}
float fp8_e5m2_to_float(uint8_t code) { return kE5m2Values[code]; }
uint8_t double_to_fp8_e5m2(double v) {
  const uint8_t sign = std::signbit(v) ? 0x80 : 0;
  if (std::isnan(v)) return sign | 0x7e;
  return sign | uint8_t(std::min<uint64_t>(encode_magnitude(std::fabs(v), kE5m2), 0x7b));
}

// A power of two, 2^(code - 127); no sign, no zero.
float fp8_e8m0_to_float(uint8_t code) {
  if (code == 0xff) return kNan;
  return bits_as<float>(code == 0 ? uint32_t{0x400000} : uint32_t(code) << 23);
}
uint8_t double_to_fp8_e8m0(double v) {
  if (std::isnan(v)) return 0xff;
  if (v <= 0x1p-127) return 0;
  if (v >= 0x1p127) return 0xfe;
  const uint64_t u = bits_as<uint64_t>(v);
  const uint64_t code = (u >> 52) - (1023 - 127), fraction = u << 12, tie = uint64_t{1} << 63;
  return uint8_t(code + (fraction > tie || (fraction == tie && (code & 1))));
}

half::half(float value) : bits(float_to_half(value)) {}
half::operator float() const { return half_to_float(bits); }
bfloat16::bfloat16(float value) : bits(float_to_bfloat16(value)) {}
bfloat16::operator float() const { return bfloat16_to_float(bits); }

double load_element(const void* memory, DataType_t type, int64_t index) {
  return with_codec(type, [&](auto codec) { return double(codec.load(memory, index)); });
}
void store_element(void* memory, DataType_t type, int64_t index, double value) {
  with_codec(type, [&](auto codec) { codec.store(memory, index, value); });
}
double round_to_type(DataType_t type, double value) {
  if (type == DataType_t::DOUBLE) return value;
  if (type == DataType_t::FLOAT || type == DataType_t::FAST_FLOAT_FOR_FP8) return float(value);
  alignas(8) unsigned char element[8] = {};
  store_element(element, type, 0, value);
  return load_element(element, type, 0);
}

void load_floats(const void* memory, DataType_t type, int64_t index, int64_t stride, int64_t count, float* out) {
  if (stride == 1 && type == DataType_t::FLOAT) {
    std::memcpy(out, static_cast<const float*>(memory) + index, size_t(count) * sizeof(float));
  } else if (!is_short(type)) {
    load_row(memory, type, index, stride, count, out);
  } else if (stride == 1) {
    if (!load_vectors(static_cast<const char*>(memory) + index * (element_bits(type) / 8), type, count, out))
      load_row(memory, type, index, stride, count, out);
  } else {
    uint16_t codes[kGathered];
    for (int64_t done = 0; done < count; done += kGathered) {
      const int64_t some = std::min(kGathered, count - done), at = index + done * stride;
      if (element_bits(type) == 16) gather(static_cast<const uint16_t*>(memory) + at, stride, some, codes);
      else gather(static_cast<const uint8_t*>(memory) + at, stride, some, reinterpret_cast<uint8_t*>(codes));
      load_floats(codes, type, 0, 1, some, out + done);
    }
  }
}
void store_floats(void* memory, DataType_t type, int64_t index, int64_t stride, int64_t count, const float* in) {
  if (stride == 1 && type == DataType_t::FLOAT) {
    std::memcpy(static_cast<float*>(memory) + index, in, size_t(count) * sizeof(float));
  } else if (!is_short(type)) {
    store_row(memory, type, index, stride, count, in);
  } else if (stride == 1) {
    if (!store_vectors(static_cast<char*>(memory) + index * (element_bits(type) / 8), type, count, in))
      store_row(memory, type, index, stride, count, in);
  } else {
    uint16_t codes[kGathered];
    for (int64_t done = 0; done < count; done += kGathered) {
      const int64_t some = std::min(kGathered, count - done), at = index + done * stride;
      store_floats(codes, type, 0, 1, some, in + done);
      if (element_bits(type) == 16) scatter(codes, some, static_cast<uint16_t*>(memory) + at, stride);
      else scatter(reinterpret_cast<const uint8_t*>(codes), some, static_cast<uint8_t*>(memory) + at, stride);
    }
  }
}
void load_doubles(const void* memory, DataType_t type, int64_t index, int64_t stride, int64_t count, double* out) {
  if (stride == 1 && type == DataType_t::DOUBLE)
    std::memcpy(out, static_cast<const double*>(memory) + index, size_t(count) * sizeof(double));
  else load_row(memory, type, index, stride, count, out);
}
void store_doubles(void* memory, DataType_t type, int64_t index, int64_t stride, int64_t count, const double* in) {
  if (stride == 1 && type == DataType_t::DOUBLE)
    std::memcpy(static_cast<double*>(memory) + index, in, size_t(count) * sizeof(double));
  else store_row(memory, type, index, stride, count, in);
}

}  // namespace tilewright
