// ===== contraction matmul, 3 blocks of 128 threads
// contraction matmul
//   %0   = load "X" BFLOAT16 ; {1,2} 
//   %0   = load "W_up" BFLOAT16 ; {1,2} 
//   %0   = in                                                    ; {0,1,2} 
//         store %0 -> "upped" FLOAT ; {0,1,2} 
#include "tilewright/contraction.cuh"
namespace tw {
typedef float F;      // values
typedef int Index;  // of elements

struct Args {
  const bf16* A0;  // X
  int A0_at;
  int A0_step[2];
  const bf16* B0;  // W_up
  int B0_at;
  int B0_step[2];
  f32* R0;  // upped
  int R0_at;
  int R0_step[2];
  int batches;
  int rows;
  int columns;
  int sums;
  int parts;
  int part_sums;
};


struct A {
  typedef bf16 Element;
  static constexpr int kWidth = 8;
  static constexpr bool kAlongSums = true, kCopied = true;
  struct At {
    Index p0;
    bool in;
  };
  DEV At row(const Args& a, Index batch, Index i) {
    const Index m0 = i;
    At t;
    t.p0 = a.A0_at + m0 * a.A0_step[0];
    t.in = i < a.rows;
    return t;
  }
  DEV At sum(const Args& a, Index batch, Index i) {
    const Index k0 = i;
    At t;
    t.p0 = k0 * a.A0_step[1];
    t.in = i < a.sums;
    return t;
  }
  DEV bool find(const Args& a, const At& r, const At& s, const Element*& at) {
    bool in = r.in && s.in;
    Index b0 = r.p0 + s.p0;
    at = in ? a.A0 + b0 : a.A0;
    return in;
  }
};

struct B {
  typedef bf16 Element;
  static constexpr int kWidth = 8;
  static constexpr bool kAlongSums = false, kCopied = true;
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
    const Index k0 = i;
    At t;
    t.p0 = k0 * a.B0_step[1];
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
    Index p0;
  };
  struct Folds {
  };
  DEV At row(const Args& a, Index batch, Index i) {
    const Index m0 = i;
    At t;
    t.p0 = a.R0_at + m0 * a.R0_step[0];
    return t;
  }
  DEV At column(const Args& a, Index i) {
    const Index n0 = i;
    At t;
    t.p0 = n0 * a.R0_step[1];
    return t;
  }
  DEV void start(Folds& w) {
  }
  DEV void apply(const Args& a, const At& r, const At& c, const F* x, Folds& w) {
    const Index b0 = r.p0 + c.p0;
    vec<f32, 8> y0;
#pragma unroll
    for (int v = 0; v < 8; ++v) {
      const F Rv0 = x[v];
      y0.e[v] = f32::set(Rv0);
    }
    *reinterpret_cast<vec<f32, 8>*>(a.R0 + b0) = y0;
  }
  template <int kColumns>
  DEV void finish(const Args& a, Folds& w, Index batch, Index m0, Index n0, F* shared) {
  }
};

extern "C" __global__ void __launch_bounds__(128) tw_kernel(const __grid_constant__ Args a) {
  contract_tiles<TensorCores<A, B, float, 64, 64, 2, 2>, A, B, R>(a, Index());
}
}  // namespace tw

// ===== contraction matmul+swish_fwd+mul, 3 blocks of 128 threads
// contraction matmul+swish_fwd+mul
//   %0   = load "X" BFLOAT16 ; {1,2} 
//   %0   = load "W_gate" BFLOAT16 ; {1,2} 
//   %0   = in                                                    ; {0,1,2} 
//   %1   = SWISH_FWD %0                                          ; {0,1,2} "swished"
//   %2   = load "upped" FLOAT ; {1,2} 
//   %3   = MUL %1 %2                                             ; {0,1,2} "hidden"
//         store %3 -> "hidden" BFLOAT16 ; {0,1,2} 
#include "tilewright/contraction.cuh"
namespace tw {
typedef float F;      // values
typedef int Index;  // of elements

struct Args {
  const bf16* A0;  // X
  int A0_at;
  int A0_step[2];
  const bf16* B0;  // W_gate
  int B0_at;
  int B0_step[2];
  f32* R0;  // upped
  int R0_at;
  int R0_step[2];
  bf16* R1;  // hidden
  int R1_at;
  int R1_step[2];
  int batches;
  int rows;
  int columns;
  int sums;
  int parts;
  int part_sums;
};

DEV F Rf1_SWISH_FWD(F x) { const Params p = {0.0, double(from_bits(0x7f800000u)), 0.0, 1.0, 1.0, 1.0}; return x * sigmoid(num<F>(p.swish_beta) * x); }  // swish
DEV F Rf3_MUL(F x, F y) { return x * y; }  // multiply

struct A {
  typedef bf16 Element;
  static constexpr int kWidth = 8;
  static constexpr bool kAlongSums = true, kCopied = true;
  struct At {
    Index p0;
    bool in;
  };
  DEV At row(const Args& a, Index batch, Index i) {
    const Index m0 = i;
    At t;
    t.p0 = a.A0_at + m0 * a.A0_step[0];
    t.in = i < a.rows;
    return t;
  }
  DEV At sum(const Args& a, Index batch, Index i) {
    const Index k0 = i;
    At t;
    t.p0 = k0 * a.A0_step[1];
    t.in = i < a.sums;
    return t;
  }
  DEV bool find(const Args& a, const At& r, const At& s, const Element*& at) {
    bool in = r.in && s.in;
    Index b0 = r.p0 + s.p0;
    at = in ? a.A0 + b0 : a.A0;
    return in;
  }
};

struct B {
  typedef bf16 Element;
  static constexpr int kWidth = 8;
  static constexpr bool kAlongSums = false, kCopied = true;
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
    const Index k0 = i;
    At t;
    t.p0 = k0 * a.B0_step[1];
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
    const Index m0 = i;
    At t;
    t.p0 = a.R0_at + m0 * a.R0_step[0];
    t.p1 = a.R1_at + m0 * a.R1_step[0];
    return t;
  }
  DEV At column(const Args& a, Index i) {
    const Index n0 = i;
    At t;
    t.p0 = n0 * a.R0_step[1];
    t.p1 = n0 * a.R1_step[1];
    return t;
  }
  DEV void start(Folds& w) {
  }
  DEV void apply(const Args& a, const At& r, const At& c, const F* x, Folds& w) {
    const Index b0 = r.p0 + c.p0;
    const Index b1 = r.p1 + c.p1;
    const vec<f32, 8> x0 = *reinterpret_cast<const vec<f32, 8>*>(a.R0 + b0);
    vec<bf16, 8> y1;
#pragma unroll
    for (int v = 0; v < 8; ++v) {
      const F Rv0 = x[v];
      const F Rv1 = Rf1_SWISH_FWD(Rv0);
      const F Rv2 = F(f32::get(x0.e[v]));
      const F Rv3 = Rf3_MUL(Rv1, Rv2);
      y1.e[v] = bf16::set(Rv3);
    }
    *reinterpret_cast<vec<bf16, 8>*>(a.R1 + b1) = y1;
  }
  template <int kColumns>
  DEV void finish(const Args& a, Folds& w, Index batch, Index m0, Index n0, F* shared) {
  }
};

extern "C" __global__ void __launch_bounds__(128) tw_kernel(const __grid_constant__ Args a) {
  contract_tiles<TensorCores<A, B, float, 64, 64, 2, 2>, A, B, R>(a, Index());
}
}  // namespace tw

// ===== contraction matmul, 2 blocks of 128 threads
// contraction matmul
//   %0   = load "hidden" BFLOAT16 ; {1,2} 
//   %0   = load "W_down" BFLOAT16 ; {1,2} 
//   %0   = in                                                    ; {0,1,2} 
//         store %0 -> "Y" BFLOAT16 ; {0,1,2} 
#include "tilewright/contraction.cuh"
namespace tw {
typedef float F;      // values
typedef int Index;  // of elements

struct Args {
  const bf16* A0;  // hidden
  int A0_at;
  int A0_step[2];
  const bf16* B0;  // W_down
  int B0_at;
  int B0_step[2];
  bf16* R0;  // Y
  int R0_at;
  int R0_step[2];
  int batches;
  int rows;
  int columns;
  int sums;
  int parts;
  int part_sums;
};


struct A {
  typedef bf16 Element;
  static constexpr int kWidth = 8;
  static constexpr bool kAlongSums = true, kCopied = true;
  struct At {
    Index p0;
    bool in;
  };
  DEV At row(const Args& a, Index batch, Index i) {
    const Index m0 = i;
    At t;
    t.p0 = a.A0_at + m0 * a.A0_step[0];
    t.in = i < a.rows;
    return t;
  }
  DEV At sum(const Args& a, Index batch, Index i) {
    const Index k0 = i;
    At t;
    t.p0 = k0 * a.A0_step[1];
    t.in = i < a.sums;
    return t;
  }
  DEV bool find(const Args& a, const At& r, const At& s, const Element*& at) {
    bool in = r.in && s.in;
    Index b0 = r.p0 + s.p0;
    at = in ? a.A0 + b0 : a.A0;
    return in;
  }
};

struct B {
  typedef bf16 Element;
  static constexpr int kWidth = 8;
  static constexpr bool kAlongSums = false, kCopied = true;
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
    const Index k0 = i;
    At t;
    t.p0 = k0 * a.B0_step[1];
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
    Index p0;
  };
  struct Folds {
  };
  DEV At row(const Args& a, Index batch, Index i) {
    const Index m0 = i;
    At t;
    t.p0 = a.R0_at + m0 * a.R0_step[0];
    return t;
  }
  DEV At column(const Args& a, Index i) {
    const Index n0 = i;
    At t;
    t.p0 = n0 * a.R0_step[1];
    return t;
  }
  DEV void start(Folds& w) {
  }
  DEV void apply(const Args& a, const At& r, const At& c, const F* x, Folds& w) {
    const Index b0 = r.p0 + c.p0;
    vec<bf16, 8> y0;
#pragma unroll
    for (int v = 0; v < 8; ++v) {
      const F Rv0 = x[v];
      y0.e[v] = bf16::set(Rv0);
    }
    *reinterpret_cast<vec<bf16, 8>*>(a.R0 + b0) = y0;
  }
  template <int kColumns>
  DEV void finish(const Args& a, Folds& w, Index batch, Index m0, Index n0, F* shared) {
  }
};

extern "C" __global__ void __launch_bounds__(128) tw_kernel(const __grid_constant__ Args a) {
  contract_tiles<TensorCores<A, B, float, 64, 64, 2, 2>, A, B, R>(a, Index());
}
}  // namespace tw
