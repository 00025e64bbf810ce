#pragma once

#include "tilewright/attributes/base.h"

namespace tilewright::graph {

// C[...,M,N] = A[...,M,K] x B[...,K,N]; leading dims broadcast.
class Matmul_attributes : public Attributes<Matmul_attributes> {
 public:
  // Per-batch INT32 sizes; what lies beyond counts as the padding value.
  Matmul_attributes& set_m_override(TensorPtr v) { return port("M_override", std::move(v)); }
  Matmul_attributes& set_n_override(TensorPtr v) { return port("N_override", std::move(v)); }
  Matmul_attributes& set_k_override(TensorPtr v) { return port("K_override", std::move(v)); }
  Matmul_attributes& set_padding(double v) { return put("padding_value", v); }
};

}  // namespace tilewright::graph
