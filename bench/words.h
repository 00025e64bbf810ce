// Short words to describe the graphs of benchmark rows with, in what the field's front ends have in common:
// frontend_peer compiles the same rows with NVIDIA's.
#pragma once

#include <string>
#include <vector>

#include "rows.h"

namespace tilewright::bench::words {

using namespace graph;  // NOLINT: the vocabulary
using T = std::shared_ptr<Tensor_attributes>;
using Ints = std::vector<int64_t>;

constexpr DataType_t kFloat = DataType_t::FLOAT, kHalf = DataType_t::HALF, kBfloat16 = DataType_t::BFLOAT16;

inline Ints row_major(const Ints& dim) {
  Ints stride(dim.size(), 1);
  for (size_t i = dim.size() - 1; i-- > 0;) stride[i] = stride[i + 1] * dim[i + 1];
  return stride;
}
inline Ints channels_last(const Ints& dim) {
  Ints stride(dim.size(), 1);
  int64_t next = dim[1];
  for (size_t i = dim.size() - 1; i > 1; --i) stride[i] = next, next *= dim[i];
  stride[0] = next;
  return stride;
}

inline GraphPtr new_graph(DataType_t io) {
  auto g = std::make_shared<Graph>();
  g->set_io_data_type(io).set_intermediate_data_type(kFloat).set_compute_data_type(kFloat);
  return g;
}

// `whole`: the dims that the memory is laid out for, where the tensor is a part of it.
inline T input(Graph& g, const std::string& name, const Ints& dim, const Ints& stride,
               DataType_t type = DataType_t::NOT_SET) {
  auto t = Tensor_attributes().set_name(name).set_dim(dim).set_stride(stride);
  if (type != DataType_t::NOT_SET) t.set_data_type(type);
  return g.tensor(t);
}
inline void output(const T& t, const std::string& name, const Ints& dim, const Ints& stride,
                   DataType_t type = DataType_t::NOT_SET) {
  t->set_output(true).set_name(name).set_dim(dim).set_stride(stride);
  if (type != DataType_t::NOT_SET) t->set_data_type(type);
}
inline Pointwise_attributes mode(PointwiseMode_t m) { return Pointwise_attributes().set_mode(m); }
inline Reduction_attributes mode(ReductionMode_t m) { return Reduction_attributes().set_mode(m); }

inline int64_t pick(uint64_t& seed, int64_t below) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return int64_t((seed >> 33) % uint64_t(below));
}

}  // namespace tilewright::bench::words
