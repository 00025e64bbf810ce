// ===== rows layernorm, 64 blocks of 64 threads
// rows layernorm
//   %0   = load "X" FLOAT ; {0,1} 
//   %1   = reduce AVG %0                                         ; {0} "norm::t7"
//   %2   = SUB %0 %1                                             ; {0,1} "norm::t8"
//   %3   = MUL %2 %2                                             ; {0,1} "norm::t9"
//   %4   = reduce AVG %3                                         ; {0} "norm::t10"
//   %5   = const 9.999999747378752e-06                           ; {} 
//   %6   = ADD %4 %5                                             ; {0} "norm::t11"
//   %7   = RSQRT %6                                              ; {0} "norm::t12"
//   %8   = MUL %2 %7                                             ; {0,1} "norm::t13"
//   %9   = load "scale" FLOAT ; {1} 
//   %10  = MUL %8 %9                                             ; {0,1} "norm::t14"
//   %11  = load "bias" FLOAT ; {1} 
//   %12  = ADD %10 %11                                           ; {0,1} "Y"
//         store %12 -> "Y" FLOAT ; {0,1} 
//         store %1 -> "mean" FLOAT ; {0} 
//         store %7 -> "inv_variance" FLOAT ; {0} 
#include "tilewright/prelude.cuh"
namespace tw {
typedef float F;      // values
typedef int Index;  // of elements

struct Args {
  f32* p0;  // X
  f32* p1;  // scale
  f32* p2;  // bias
  f32* p3;  // Y
  f32* p4;  // mean
  f32* p5;  // inv_variance
  int rows;
  int vectors;
  int outer[1];
  int inner[1];
  int p0_at;
  int p0_stride[2];
  int p1_at;
  int p1_stride[2];
  int p2_at;
  int p2_stride[2];
  int p3_at;
  int p3_stride[2];
  int p4_at;
  int p4_stride[2];
  int p5_at;
  int p5_stride[2];
};

DEV F f2_SUB(F x, F y) { return x - y; }  // norm
DEV F f3_MUL(F x, F y) { return x * y; }  // norm
DEV F f6_ADD(F x, F y) { return x + y; }  // norm
DEV F f7_RSQRT(F x) { return rsqrt(x); }  // norm
DEV F f8_MUL(F x, F y) { return x * y; }  // norm
DEV F f10_MUL(F x, F y) { return x * y; }  // norm
DEV F f12_ADD(F x, F y) { return x + y; }  // norm

extern "C" __global__ void __launch_bounds__(64) tw_kernel(const __grid_constant__ Args a) {
  __shared__ F shared[2][1][2];
  int turn = 0;
  for (Index row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const Index o0 = row;
    const Index b0 = a.p0_at + o0 * a.p0_stride[0];
    const Index b1 = a.p1_at;
    const Index b2 = a.p2_at;
    const Index b3 = a.p3_at + o0 * a.p3_stride[0];
    const Index b4 = a.p4_at + o0 * a.p4_stride[0];
    const Index b5 = a.p5_at + o0 * a.p5_stride[0];
    vec<f32, 4> x0[4];
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      const Index c = threadIdx.x + v * 64;
      if (c >= a.vectors) break;
      x0[v] = load<f32, 4>(a.p0 + b0 + c * 4);
    }
    const F v5 = float(9.999999747378752e-06);
    F r1 = Average::start<F>();
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      const Index c = threadIdx.x + v * 64;
      if (c >= a.vectors) break;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const Index e = c * 4 + k;
        const F v0 = F(f32::get(x0[v].e[k]));
        r1 = Average::join(r1, Average::element(v0));
      }
    }
    r1 = lanes_reduce<Average, 32>(r1);
    turn ^= 1;
    if (threadIdx.x % 32 == 0) {
      shared[turn][0][threadIdx.x / 32] = r1;
    }
    __syncthreads();
    const F v1 = Average::finish(warps_reduce<Average, 2>(shared[turn][0]), double(a.vectors) * 4);
    F r4 = Average::start<F>();
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      const Index c = threadIdx.x + v * 64;
      if (c >= a.vectors) break;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const Index e = c * 4 + k;
        const F v0 = F(f32::get(x0[v].e[k]));
        const F v2 = f2_SUB(v0, v1);
        const F v3 = f3_MUL(v2, v2);
        r4 = Average::join(r4, Average::element(v3));
      }
    }
    r4 = lanes_reduce<Average, 32>(r4);
    turn ^= 1;
    if (threadIdx.x % 32 == 0) {
      shared[turn][0][threadIdx.x / 32] = r4;
    }
    __syncthreads();
    const F v4 = Average::finish(warps_reduce<Average, 2>(shared[turn][0]), double(a.vectors) * 4);
    const F v6 = f6_ADD(v4, v5);
    const F v7 = f7_RSQRT(v6);
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      const Index c = threadIdx.x + v * 64;
      if (c >= a.vectors) break;
      const vec<f32, 4> x1 = load<f32, 4>(a.p1 + b1 + c * 4);
      const vec<f32, 4> x2 = load<f32, 4>(a.p2 + b2 + c * 4);
      F y3[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const Index e = c * 4 + k;
        const F v0 = F(f32::get(x0[v].e[k]));
        const F v2 = f2_SUB(v0, v1);
        const F v8 = f8_MUL(v2, v7);
        const F v9 = F(f32::get(x1.e[k]));
        const F v10 = f10_MUL(v8, v9);
        const F v11 = F(f32::get(x2.e[k]));
        const F v12 = f12_ADD(v10, v11);
        y3[k] = v12;
      }
      store(a.p3 + b3 + c * 4, y3);
    }
    if (threadIdx.x == 0) {
      a.p4[b4] = f32::set(v1);
      a.p5[b5] = f32::set(v7);
    }
  }
}
}  // namespace tw
