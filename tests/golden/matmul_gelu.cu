// ===== contraction matmul+mul+add+gelu_fwd+reduce_amax, 32 blocks of 128 threads
// contraction matmul+mul+add+gelu_fwd+reduce_amax
//   %0   = load "A" BFLOAT16 ; {0,1,2} 
//   %0   = load "B" BFLOAT16 ; {0,1,2} 
#include "tilewright/contraction.cuh"
namespace tw {
typedef float F;      // values
typedef int Index;  // of elements

struct Args {
  const bf16* A0;  // A
  int A0_at;
  int A0_step[3];
  const bf16* B0;  // B
  int B0_at;
  int B0_step[3];
  float* part;
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
    const Index b0 = batch;
    const Index m0 = i;
    At t;
    t.p0 = a.A0_at + b0 * a.A0_step[0] + m0 * a.A0_step[1];
    t.in = i < a.rows;
    return t;
  }
  DEV At sum(const Args& a, Index batch, Index i) {
    const Index k0 = i;
    At t;
    t.p0 = k0 * a.A0_step[2];
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
    const Index b0 = batch;
    const Index n0 = i;
    At t;
    t.p0 = a.B0_at + b0 * a.B0_step[0] + n0 * a.B0_step[1];
    t.in = i < a.columns;
    return t;
  }
  DEV At sum(const Args& a, Index batch, Index i) {
    const Index k0 = i;
    At t;
    t.p0 = k0 * a.B0_step[2];
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
  typedef float Value;
  static constexpr int kWidth = 4, kFolds = 0;
  struct At {
    Index p;
  };
  struct Folds {};
  DEV At row(const Args& a, Index batch, Index i) { return {(batch * a.rows + i) * a.columns}; }
  DEV At column(const Args&, Index i) { return {i}; }
  DEV void start(Folds&) {}
  DEV void apply(const Args& a, const At& r, const At& c, const float* x, Folds&) {
    vec<float, 4> y;
#pragma unroll
    for (int v = 0; v < 4; ++v) y.e[v] = x[v];
    *reinterpret_cast<vec<float, 4>*>(a.part + r.p + c.p) = y;
  }
  template <int kColumns>
  DEV void finish(const Args&, Folds&, Index, Index, Index, float*) {}
  DEV void finish_points(const Args&, Folds&, float*) {}
};

extern "C" __global__ void __launch_bounds__(128) tw_kernel(const __grid_constant__ Args a) {
  contract_tiles<TensorCores<A, B, float, 64, 64, 2, 2>, A, B, R>(a, Index());
}
}  // namespace tw

// ===== sum of parts of contraction matmul+mul+add+gelu_fwd+reduce_amax, 32 blocks of 256 threads
// contraction matmul+mul+add+gelu_fwd+reduce_amax
//   %0   = in                                                    ; {0,1,2} 
//   %1   = const 0.03125                                         ; {} 
//   %2   = MUL %0 %1                                             ; {0,1,2} "scaled"
//   %3   = load "bias" BFLOAT16 ; {2} 
//   %4   = ADD %2 %3                                             ; {0,1,2} "shifted"
//   %5   = GELU_FWD %4                                           ; {0,1,2} "Y"
//         store %5 -> "Y" BFLOAT16 ; {0,1,2} 
#include "tilewright/contraction.cuh"
namespace tw {
typedef float F;      // values
typedef int Index;  // of elements

struct Args {
  const float* part;
  bf16* R0;  // bias
  int R0_at;
  int R0_step[1];
  bf16* R1;  // Y
  int R1_at;
  int R1_step[3];
  F* fold0;
  int fold0_at;
  int batches;
  int rows;
  int columns;
  int sums;
  int parts;
  int part_sums;
};

DEV F Rf2_MUL(F x, F y) { return x * y; }  // scale
DEV F Rf4_ADD(F x, F y) { return x + y; }  // bias
DEV F Rf5_GELU_FWD(F x) { return num<F>(0.5) * x * (num<F>(1) + erf(x * num<F>(0.70710678118654752))); }  // gelu

struct R {
  typedef F Value;
  static constexpr int kWidth = 8, kFolds = 1;
  struct At {
    Index p0, p1, f0;
  };
  struct Folds {
    F w0;
  };
  DEV At row(const Args& a, Index batch, Index i) {
    const Index b0 = batch;
    const Index m0 = i;
    At t;
    t.p0 = a.R0_at + 0;
    t.p1 = a.R1_at + b0 * a.R1_step[0] + m0 * a.R1_step[1];
    t.f0 = a.fold0_at + 0;
    return t;
  }
  DEV At column(const Args& a, Index i) {
    const Index n0 = i;
    At t;
    t.p0 = n0 * a.R0_step[0];
    t.p1 = n0 * a.R1_step[2];
    t.f0 = 0;
    return t;
  }
  DEV void start(Folds& w) {
    w.w0 = AbsoluteMax::start<F>();
  }
  DEV void apply(const Args& a, const At& r, const At& c, const F* x, Folds& w) {
    const Index b0 = r.p0 + c.p0;
    const Index b1 = r.p1 + c.p1;
    const vec<bf16, 8> x0 = *reinterpret_cast<const vec<bf16, 8>*>(a.R0 + b0);
    vec<bf16, 8> y1;
#pragma unroll
    for (int v = 0; v < 8; ++v) {
      const F Rv0 = x[v];
      const F Rv1 = float(0.03125);
      const F Rv2 = Rf2_MUL(Rv0, Rv1);
      const F Rv3 = F(bf16::get(x0.e[v]));
      const F Rv4 = Rf4_ADD(Rv2, Rv3);
      const F Rv5 = Rf5_GELU_FWD(Rv4);
      y1.e[v] = bf16::set(Rv5);
      w.w0 = AbsoluteMax::join(w.w0, AbsoluteMax::element(Rv5));
    }
    *reinterpret_cast<vec<bf16, 8>*>(a.R1 + b1) = y1;
  }
  DEV void finish_points(const Args& a, Folds& w, F* shared) {
    w.w0 = join_all<AbsoluteMax>(w.w0, shared);
    if (threadIdx.x == 0) fold(Max(), a.fold0, w.w0);
  }
};

extern "C" __global__ void __launch_bounds__(256) tw_kernel(const __grid_constant__ Args a) {
  join_parts<R, float>(a, Index());
}
}  // namespace tw

// ===== result of contraction matmul+mul+add+gelu_fwd+reduce_amax, 1 blocks of 256 threads
// result of contraction matmul+mul+add+gelu_fwd+reduce_amax
#include "tilewright/prelude.cuh"
namespace tw {
typedef float F;
typedef i64 Index;

struct Args {
  const F* fold;
  f32* y;  // amax
  i64 count;
  double folded;
  i64 y_at;
};

extern "C" __global__ void tw_kernel(const __grid_constant__ Args a) {
  const Index at = blockIdx.x * Index(blockDim.x) + threadIdx.x;
  if (at >= a.count) return;
  const F all = AbsoluteMax::finish(AbsoluteMax::join(AbsoluteMax::start<F>(), unfold(Max(), a.fold[at])), a.folded);
  a.y[a.y_at] = f32::set(all);
}
}  // namespace tw
