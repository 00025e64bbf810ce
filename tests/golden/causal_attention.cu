// ===== attention: forward_mma, 16 blocks of 128 threads
// sdpa "attention"
#include "tilewright/attention_mma.cuh"
namespace tw {
typedef float F;

struct Args {
  Tensor<const f16> q;  // Q
  Tensor<const f16> k;  // K
  Tensor<const f16> v;  // V
  float scale;
  Tensor<f16> o;  // O
  Tensor<f32> stats;  // stats
  int b;
  int hq;
  int hk;
  int hv;
  int sq;
  int skv;
  int dqk;
  int dv;
  int left;
  int right;
  int bottom_right;
  int q_tiles;
};

struct Spec {
  typedef tw::F F;
  typedef f16 T;
  static constexpr int kHead = 64, kWidth = 64;
  static constexpr bool kBias = false;
  static constexpr bool kDropMask = false;
  static constexpr bool kDropScale = false;
  static constexpr bool kSink = false;
  static constexpr bool kDropout = false;
  static constexpr bool kAlibi = false;
  static constexpr bool kLengths = false;
  DEV F scale(const Args& a) { return a.scale; }
  static constexpr bool kPhilox = false;
  static constexpr bool kStats = true;
  static constexpr bool kMax = false;
  static constexpr bool kSumExp = false;
};

extern "C" __global__ __launch_bounds__(128, 3) void tw_kernel(const __grid_constant__ Args a) {
  attention_forward_mma<Spec>(a);
}
}  // namespace tw
