// Matrix products of a warp on 8- and 16-bit operands (before sm_80: on HALF alone), and how fragments get there. Of
// 16-bit operands, a fragment of A has rows g and g + 8 of 16 and the columns 2t, 2t + 1 and 8 further of 16,
// g = lane / 4 and t = lane % 4; one of B the same rows of k and column g of 8; sums have rows g and g + 8 and columns 2t
// and 2t + 1 of 8.
#pragma once

#include "tilewright/prelude.cuh"

namespace tw {

#if __CUDA_ARCH__ >= 800
#define TW_PRODUCT(A, B, C, SHAPE, REGISTER) \
  DEV void product(A, B, C (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) { \
    asm("mma.sync.aligned." SHAPE " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
        : "+" REGISTER(c[0]), "+" REGISTER(c[1]), "+" REGISTER(c[2]), "+" REGISTER(c[3]) \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)); \
  }
TW_PRODUCT(f16, f16, float, "m16n8k16.row.col.f32.f16.f16.f32", "f")
TW_PRODUCT(bf16, bf16, float, "m16n8k16.row.col.f32.bf16.bf16.f32", "f")
TW_PRODUCT(s8, s8, int, "m16n8k32.row.col.s32.s8.s8.s32", "r")
TW_PRODUCT(s8, uint8, int, "m16n8k32.row.col.s32.s8.u8.s32", "r")
TW_PRODUCT(uint8, s8, int, "m16n8k32.row.col.s32.u8.s8.s32", "r")
TW_PRODUCT(uint8, uint8, int, "m16n8k32.row.col.s32.u8.u8.s32", "r")
#undef TW_PRODUCT
#else
DEV void product(f16, f16, float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#pragma unroll
  for (int half = 0; half < 2; ++half)
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(half ? b1 : b0));
}
#endif

// Four 8 by 8 blocks; the lanes 8 n .. 8 n + 7 name the rows of block n, each 16 bytes.
template <bool kTransposed = false>
DEV void load_blocks(u32 (&r)[4], const void* row) {
  const u32 address = u32(__cvta_generic_to_shared(row));
  if (kTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

// Two numbers as neighbours, the first in the low half.
DEV u32 pair_of(f16, float low, float high) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
DEV u32 pair_of(bf16, float low, float high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// What another lane of the warp has.
DEV float lane_value(float x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }

// 2^x, to two units in the last place.
DEV float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace tw
