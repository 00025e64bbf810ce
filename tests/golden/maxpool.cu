// ===== pooling resample, 34 blocks of 256 threads
// pooling resample
//   %0   = load "X" FLOAT ; {0,1,2,3} 
//   %0   = in                                                    ; {0,1,2,3} 
//         store %0 -> "Y" FLOAT ; {0,1,2,3} 
#include "tilewright/narrow.cuh"
#include "tilewright/pooling.cuh"
namespace tw {
typedef float F;      // values
typedef int Index;  // of elements

struct Args {
  f32* xp0;  // X
  f32* p0;  // Y
  int points;
  int ordered[4];
  int extent[4];
  int window[2];
  int stride[2];
  int pre[2];
  int in[2];
  int out[2];
  int xp0_at;
  int xp0_stride[4];
  int p0_at;
  int p0_stride[4];
};


DEV F operand0(const Args& a, Index i0, Index i1, Index i2, Index i3) {
  const F xv0 = F(f32::get(a.xp0[a.xp0_at + i0 * a.xp0_stride[0] + i1 * a.xp0_stride[1] + i2 * a.xp0_stride[2] + i3 * a.xp0_stride[3]]));
  return xv0;
}

extern "C" __global__ void __launch_bounds__(256) tw_kernel(const __grid_constant__ Args a) {
  const Index point = blockIdx.x * Index(256) + threadIdx.x;
  if (point >= a.points) return;
  Index n_rest = point;
  const Index n3 = n_rest % a.ordered[3]; n_rest /= a.ordered[3];
  const Index n2 = n_rest % a.ordered[2]; n_rest /= a.ordered[2];
  const Index n1 = n_rest % a.ordered[1]; n_rest /= a.ordered[1];
  const Index n0 = n_rest;
  const Index i0 = n0;
  const Index i2 = n1;
  const Index i3 = n2;
  const Index i1 = n3;
  const Index o0 = i2;
  const Index o1 = i3;
  F best = -F(from_bits(0x7f800000u));
  Index best_at = -1;
  for (Index w0 = 0; w0 < a.window[0]; ++w0) {
    const Index q0 = o0 * a.stride[0] - a.pre[0] + w0;
    if (q0 < 0 || q0 >= a.in[0]) continue;
    for (Index w1 = 0; w1 < a.window[1]; ++w1) {
      const Index q1 = o1 * a.stride[1] - a.pre[1] + w1;
      if (q1 < 0 || q1 >= a.in[1]) continue;
      const Index flat = (w0) * a.window[1] + w1;
      const F x = operand0(a, i0, i1, q0, q1);
      if (best_at < 0 || x > best || (is_nan(x) && !is_nan(best))) best = x, best_at = flat;
    }
  }
  const F in = best;
  const F v0 = in;
  a.p0[a.p0_at + i0 * a.p0_stride[0] + i1 * a.p0_stride[1] + i2 * a.p0_stride[2] + i3 * a.p0_stride[3]] = f32::set(v0);
}
}  // namespace tw
