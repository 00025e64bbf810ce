#include "engines/cpu/gemm.h"

#pragma GCC optimize("O3")

namespace tilewright::cpu {
namespace {

namespace baseline {
#include "engines/cpu/gemm-inl.h"
}
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TILEWRIGHT_X86_SETS 1
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
#include "engines/cpu/gemm-inl.h"
}
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx2,fma,prefer-vector-width=512")
namespace avx512 {
#include "engines/cpu/gemm-inl.h"
}
#pragma GCC pop_options
#endif

template <class T>
MicroKernel<T> best() {
#ifdef TILEWRIGHT_X86_SETS
  if (__builtin_cpu_supports("avx512f")) return avx512::make<T, 64, 12, 2>();  // 32 registers
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2::make<T, 32, 6, 2>();  // 16
#endif
  return baseline::make<T, 16, 4, 2>();
}

}  // namespace

template <>
const MicroKernel<float>& micro_kernel<float>() {
  static const MicroKernel<float> kernel = best<float>();
  return kernel;
}
template <>
const MicroKernel<double>& micro_kernel<double>() {
  static const MicroKernel<double> kernel = best<double>();
  return kernel;
}

}  // namespace tilewright::cpu
