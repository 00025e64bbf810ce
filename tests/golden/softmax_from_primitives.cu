// ===== rows reduce_max+sub+exp+reduce_add+div, 64 blocks of 256 threads
// rows reduce_max+sub+exp+reduce_add+div
//   %0   = load "X" FLOAT ; {0,1,2} 
//   %1   = reduce MAX %0                                         ; {0,1} "largest"
//   %2   = SUB %0 %1                                             ; {0,1,2} "shifted"
//   %3   = EXP %2                                                ; {0,1,2} "exponentials"
//   %4   = reduce ADD %3                                         ; {0,1} "sum"
//   %5   = DIV %3 %4                                             ; {0,1,2} "Y"
//         store %5 -> "Y" FLOAT ; {0,1,2} 
#include "tilewright/prelude.cuh"
namespace tw {
typedef float F;      // values
typedef int Index;  // of elements

struct Args {
  f32* p0;  // X
  f32* p1;  // Y
  int rows;
  int vectors;
  int outer[1];
  int inner[1];
  int p0_at;
  int p0_stride[2];
  int p1_at;
  int p1_stride[2];
};

DEV F f2_SUB(F x, F y) { return x - y; }  // shift
DEV F f3_EXP(F x) { return exp(x); }  // exp
DEV F f5_DIV(F x, F y) { return x / y; }  // divide

extern "C" __global__ void __launch_bounds__(256) tw_kernel(const __grid_constant__ Args a) {
  __shared__ F shared[2][1][8];
  int turn = 0;
  const int lane = threadIdx.x % 32;
  for (Index first = blockIdx.x * Index(8); first < a.rows; first += gridDim.x * Index(8)) {
    const bool live = first + threadIdx.x / 32 < a.rows;
    const Index row = live ? first + threadIdx.x / 32 : 0, vectors = live ? a.vectors : 0;
    const Index o0 = row;
    const Index b0 = a.p0_at + o0 * a.p0_stride[0];
    const Index b1 = a.p1_at + o0 * a.p1_stride[0];
    vec<f32, 4> x0[2];
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      const Index c = lane + v * 32;
      if (c >= vectors) break;
      x0[v] = load<f32, 4>(a.p0 + b0 + c * 4);
    }
    F r1 = Max::start<F>();
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      const Index c = lane + v * 32;
      if (c >= vectors) break;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const Index e = c * 4 + k;
        const F v0 = F(f32::get(x0[v].e[k]));
        r1 = Max::join(r1, Max::element(v0));
      }
    }
    r1 = lanes_reduce<Max, 32>(r1);
    const F v1 = Max::finish(r1, double(a.vectors) * 4);
    F z3[2][4];
    F r4 = Sum::start<F>();
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      const Index c = lane + v * 32;
      if (c >= vectors) break;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const Index e = c * 4 + k;
        const F v0 = F(f32::get(x0[v].e[k]));
        const F v2 = f2_SUB(v0, v1);
        const F v3 = f3_EXP(v2);
        z3[v][k] = v3;
        r4 = Sum::join(r4, Sum::element(v3));
      }
    }
    r4 = lanes_reduce<Sum, 32>(r4);
    const F v4 = Sum::finish(r4, double(a.vectors) * 4);
    const Divisor<F> d4(v4);
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      const Index c = lane + v * 32;
      if (c >= vectors) break;
      F y1[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const Index e = c * 4 + k;
        const F v3 = z3[v][k];
        const F v5 = divided(v3, d4);
        y1[k] = v5;
      }
      store(a.p1 + b1 + c * 4, y1);
    }
  }
}
}  // namespace tw
