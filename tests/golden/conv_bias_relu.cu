// ===== contraction conv_fprop+add+relu_fwd, 392 blocks of 128 threads
// contraction conv_fprop+add+relu_fwd
//   %0   = load "X" HALF ; {0,1,2,3} 
//   %0   = load "W" HALF ; {0,1,2,3} 
//   %0   = in                                                    ; {0,1,2,3} 
//   %1   = load "B" HALF ; {1} 
//   %2   = ADD %0 %1                                             ; {0,1,2,3} "biased"
//   %3   = RELU_FWD %2                                           ; {0,1,2,3} "Y"
//         store %3 -> "Y" HALF ; {0,1,2,3} 
#include "tilewright/contraction.cuh"
namespace tw {
typedef float F;      // values
typedef int Index;  // of elements

struct Args {
  const f16* A0;  // X
  int A0_at;
  int A0_step[6];
  int Aw0_at;
  int Aw0_step[2];
  int Aw0_extent;
  int Aw1_at;
  int Aw1_step[2];
  int Aw1_extent;
  const f16* B0;  // W
  int B0_at;
  int B0_step[4];
  f16* R0;  // B
  int R0_at;
  int R0_step[1];
  f16* R1;  // Y
  int R1_at;
  int R1_step[4];
  int batches;
  int rows;
  int columns;
  int sums;
  int parts;
  int part_sums;
  Divider row_by[2];
  Divider sum_by[2];
};

DEV F Rf2_ADD(F x, F y) { return x + y; }  // bias
DEV F Rf3_RELU_FWD(F x) { const Params p = {0.0, double(from_bits(0x7f800000u)), 0.0, 1.0, 1.0, 1.0}; return where(gt(x, num<F>(p.lower)), min(x, num<F>(p.upper)), num<F>(p.lower) + leak(p.slope, x - num<F>(p.lower))); }  // relu

struct A {
  typedef f16 Element;
  static constexpr int kWidth = 8;
  static constexpr bool kAlongSums = true, kCopied = true;
  struct At {
    Index p0, w0, w1;
    bool in;
  };
  DEV At row(const Args& a, Index batch, Index i) {
    Index m_rest = i;
    const Index m2 = split(m_rest, a.row_by[1]);
    const Index m1 = split(m_rest, a.row_by[0]);
    const Index m0 = m_rest;
    At t;
    t.p0 = a.A0_at + m0 * a.A0_step[0] + m1 * a.A0_step[1] + m2 * a.A0_step[2];
    t.w0 = a.Aw0_at + m1 * a.Aw0_step[0];
    t.w1 = a.Aw1_at + m2 * a.Aw1_step[0];
    t.in = i < a.rows;
    return t;
  }
  DEV At sum(const Args& a, Index batch, Index i) {
    Index k_rest = i;
    const Index k2 = split(k_rest, a.sum_by[1]);
    const Index k1 = split(k_rest, a.sum_by[0]);
    const Index k0 = k_rest;
    At t;
    t.p0 = k0 * a.A0_step[3] + k1 * a.A0_step[4] + k2 * a.A0_step[5];
    t.w0 = k0 * a.Aw0_step[1];
    t.w1 = k1 * a.Aw1_step[1];
    t.in = i < a.sums;
    return t;
  }
  DEV bool find(const Args& a, const At& r, const At& s, const Element*& at) {
    bool in = r.in && s.in;
    Index b0 = r.p0 + s.p0;
    const Index w0 = r.w0 + s.w0;
    in = in && w0 >= 0 && w0 < a.Aw0_extent;
    const Index w1 = r.w1 + s.w1;
    in = in && w1 >= 0 && w1 < a.Aw1_extent;
    at = in ? a.A0 + b0 : a.A0;
    return in;
  }
};

struct B {
  typedef f16 Element;
  static constexpr int kWidth = 8;
  static constexpr bool kAlongSums = true, kCopied = true;
  struct At {
    Index p0;
    bool in;
  };
  DEV At row(const Args& a, Index batch, Index i) {
    const Index n0 = i;
    At t;
    t.p0 = a.B0_at + n0 * a.B0_step[0];
    t.in = i < a.columns;
    return t;
  }
  DEV At sum(const Args& a, Index batch, Index i) {
    Index k_rest = i;
    const Index k2 = split(k_rest, a.sum_by[1]);
    const Index k1 = split(k_rest, a.sum_by[0]);
    const Index k0 = k_rest;
    At t;
    t.p0 = k0 * a.B0_step[1] + k1 * a.B0_step[2] + k2 * a.B0_step[3];
    t.in = i < a.sums;
    return t;
  }
  DEV bool find(const Args& a, const At& r, const At& s, const Element*& at) {
    bool in = r.in && s.in;
    Index b0 = r.p0 + s.p0;
    at = in ? a.B0 + b0 : a.B0;
    return in;
  }
};

struct R {
  typedef F Value;
  static constexpr int kWidth = 8, kFolds = 0;
  struct At {
    Index p0, p1;
  };
  struct Folds {
  };
  DEV At row(const Args& a, Index batch, Index i) {
    Index m_rest = i;
    const Index m2 = split(m_rest, a.row_by[1]);
    const Index m1 = split(m_rest, a.row_by[0]);
    const Index m0 = m_rest;
    At t;
    t.p0 = a.R0_at + 0;
    t.p1 = a.R1_at + m0 * a.R1_step[0] + m1 * a.R1_step[1] + m2 * a.R1_step[2];
    return t;
  }
  DEV At column(const Args& a, Index i) {
    const Index n0 = i;
    At t;
    t.p0 = n0 * a.R0_step[0];
    t.p1 = n0 * a.R1_step[3];
    return t;
  }
  DEV void start(Folds& w) {
  }
  DEV void apply(const Args& a, const At& r, const At& c, const F* x, Folds& w) {
    const Index b0 = r.p0 + c.p0;
    const Index b1 = r.p1 + c.p1;
    const vec<f16, 8> x0 = *reinterpret_cast<const vec<f16, 8>*>(a.R0 + b0);
    vec<f16, 8> y1;
#pragma unroll
    for (int v = 0; v < 8; ++v) {
      const F Rv0 = x[v];
      const F Rv1 = F(f16::get(x0.e[v]));
      const F Rv2 = Rf2_ADD(Rv0, Rv1);
      const F Rv3 = Rf3_RELU_FWD(Rv2);
      y1.e[v] = f16::set(Rv3);
    }
    *reinterpret_cast<vec<f16, 8>*>(a.R1 + b1) = y1;
  }
  template <int kColumns>
  DEV void finish(const Args& a, Folds& w, Index batch, Index m0, Index n0, F* shared) {
  }
};

extern "C" __global__ void __launch_bounds__(128) tw_kernel(const __grid_constant__ Args a) {
  contract_tiles<TensorCores<A, B, float, 64, 64, 2, 2>, A, B, R>(a, Index());
}
}  // namespace tw
