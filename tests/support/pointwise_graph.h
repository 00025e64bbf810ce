// Random graphs of pointwise nodes, reductions, views and matrix products.
#pragma once

#include <algorithm>

#include "ops/pointwise_math.h"
#include "support/ir_builder.h"
#include "support/random.h"

namespace tilewright::testing {

class PointwiseGraphMaker {
 public:
  using D = DataType_t;

  explicit PointwiseGraphMaker(Random& random) : random_(random) {}

  ir::Graph make() {
    rank_ = size_t(random_.between(1, 4));
    for (size_t d = 0; d < rank_; ++d)
      domain_.push_back(random_.one_in(6) ? random_.between(250, 300) : random_.between(1, 9));
    while (volume(domain_) > 30000) *std::max_element(domain_.begin(), domain_.end()) = random_.between(1, 9);
    b_.compute = random_.one_in(8) ? D::DOUBLE : D::FLOAT;
    values_.push_back(input(domain_));
    for (int64_t n = random_.between(1, 10); n > 0; --n) {
      b_.intermediate =
          random_.of({D::FLOAT, D::FLOAT, D::FLOAT, D::HALF, D::BFLOAT16, D::DOUBLE, D::INT8, D::BOOLEAN});
      values_.push_back(node());
      if (random_.one_in(4)) make_output(values_.back());
    }
    if (b_.graph.tensor(values_.back()).role == ir::Role::Virtual) make_output(values_.back());
    return b_.graph;
  }

 private:
  using P = PointwiseMode_t;
  using R = ReductionMode_t;
  using Id = ir::TensorId;

  void make_output(Id t) {
    if (b_.graph.tensor(t).role != ir::Role::Virtual) return;
    const Dims dim = b_.dim(t);
    b_.output(t, random_.of({D::FLOAT, D::FLOAT, D::HALF, D::BFLOAT16, D::DOUBLE, D::INT32, D::UINT8, D::BOOLEAN}),
              random_.strides(dim));
  }

  Id input(const Dims& dim) {
    return b_.input(dim,
                    random_.of({D::FLOAT, D::FLOAT, D::FLOAT, D::HALF, D::BFLOAT16, D::INT8, D::FP8_E4M3, D::DOUBLE}),
                    random_.input_strides(dim));
  }
  Id any() { return random_.of(values_); }
  // Something that broadcasts with dim, often of an earlier node.
  Id operand(const Dims& dim) {
    for (int tries = 0; tries < 3; ++tries) {
      const Id t = any();
      if (broadcast_dims({dim, b_.dim(t)}) && volume(*broadcast_dims({dim, b_.dim(t)})) <= 30000) return t;
    }
    if (random_.one_in(5)) return b_.scalar(random_.one_in(2) ? std::optional<float>(0.75f) : std::nullopt, rank_);
    Dims smaller = dim;
    for (int64_t& d : smaller)
      if (random_.one_in(3)) d = 1;
    return input(smaller);
  }

  Id node() {
    const Id x = any();
    const Dims dim = b_.dim(x);
    switch (random_.between(0, 11)) {
      case 0:
      case 1: {  // any dims of the tensor's may go
        Dims to = dim;
        for (int64_t& d : to)
          if (random_.one_in(2)) d = 1;
        return b_.reduce(random_.of({R::ADD, R::AVG, R::MAX, R::MIN, R::AMAX, R::NORM1, R::NORM2}), x, to);
      }
      case 2:
        if (dim.size() >= 2) {
          Dims right = dim;
          right[right.size() - 2] = dim.back();
          right.back() = random_.between(1, 40);
          for (size_t d = 0; d + 2 < right.size(); ++d)
            if (random_.one_in(3)) right[d] = 1;
          return b_.op("matmul", {x, input(right)});
        }
        [[fallthrough]];
      case 3: {
        Dims slices, step;
        for (int64_t d : dim) {
          const int64_t start = random_.between(0, d - 1);
          slices.insert(slices.end(), {start, random_.between(start + 1, d)});
          step.push_back(random_.between(1, 2));
        }
        return b_.op("slice", {x}, {{"slices", slices}, {"slice_strides", step}});
      }
      case 4: {
        Dims order;
        for (size_t d = 0; d < dim.size(); ++d) order.push_back(int64_t(d));
        for (size_t d = order.size(); d > 1; --d)
          std::swap(order[d - 1], order[size_t(random_.between(0, int64_t(d) - 1))]);
        return b_.op("transpose", {x}, {{"permutation", order}});
      }
      case 5: return b_.pw(P::BINARY_SELECT, {x, operand(dim), b_.pw(P::CMP_GT, {x, b_.scalar(0.f, rank_)})});
      case 6: return b_.pw(P::GEN_INDEX, {x}, {{"axis", random_.between(0, int64_t(dim.size()) - 1)}});
      case 7:
      case 8:
        return b_.pw(random_.of({P::RELU_FWD, P::TANH_FWD, P::SIGMOID_FWD, P::GELU_FWD, P::ABS, P::NEG, P::FLOOR,
                                 P::CEIL, P::SIN, P::COS, P::ERF, P::SOFTPLUS_FWD, P::SWISH_FWD, P::ELU_FWD,
                                 P::IDENTITY, P::LOGICAL_NOT, P::GELU_APPROX_TANH_FWD}),
                     {x});
      default:
        return b_.pw(random_.of({P::ADD, P::SUB, P::MUL, P::MAX, P::MIN, P::CMP_GE, P::CMP_EQ, P::LOGICAL_AND,
                                 P::RELU_BWD, P::TANH_BWD, P::SIGMOID_BWD, P::ADD}),
                     {x, operand(dim)});
    }
  }

  Random& random_;
  IrBuilder b_;
  size_t rank_ = 1;
  Dims domain_;
  std::vector<Id> values_;
};

}  // namespace tilewright::testing
