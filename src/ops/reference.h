// The exact reference: every op's meaning on Bounded values, node by node, in plain loops. It judges the engines, so it
// shares nothing with them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/numeric_types.h"
#include "base/thread_pool.h"
#include "ir/op_def.h"
#include "ops/bounded.h"

namespace tilewright {

// A tensor as the reference sees it: the caller's memory (inputs), or values in logical row-major order.
class RefTensor {
 public:
  const ir::Tensor* tensor = nullptr;
  const void* memory = nullptr;
  std::vector<Bounded> values;
  // A tensor that an engine may or may not have rounded to its type before it is read again.
  // Beyond the type's largest value it may have become inf.
  double read_u = 0, read_eta = 0, read_limit = 0;

  const Dims& dim() const { return tensor->dim; }
  int64_t volume() const { return tilewright::volume(tensor->dim); }
  Bounded at_linear(int64_t row_major) const {
    if (memory) return load(offset_of_linear(row_major, tensor->view()));
    return widen(values[size_t(row_major)]);
  }
  Bounded at(const int64_t* index) const;
  Bounded at(const Dims& index) const { return at(index.data()); }

  // All elements in row-major order; `errors` stays empty when every error is 0.
  struct Dense {
    std::vector<double> values, errors;
  };
  Dense dense() const;

 private:
  Bounded load(int64_t offset) const { return load_element(memory, tensor->storage_type(), offset); }
  Bounded widen(Bounded b) const {
    if (!(read_u > 0) || !std::isfinite(b.v)) return b;  // an infinity is stored as it is
    const double a = std::fabs(b.v);
    b.e += read_u * a + read_eta;
    // As in bounded.h: surely beyond half of the largest number, it may be an infinity and has a bound all the same.
    if (!(a + b.e <= read_limit) && !(a - b.e >= read_limit / 2)) b.e = kInfinity;
    return b;
  }
};

// Reads a tensor over the dims of a broadcast result.
class RefBroadcast {
 public:
  RefBroadcast(const RefTensor& tensor, const Dims& to);
  Bounded at(const int64_t* index) const;
  Bounded at_linear(int64_t row_major) const;

 private:
  const RefTensor& tensor_;
  Dims to_, stride_;  // strides into the row-major linear index of the tensor
};

class RefContext {
 public:
  RefContext(const ir::Graph& g, const ir::Node& n, std::vector<RefTensor>& tensors)
      : graph(g), node(n), tensors_(tensors) {}
  const ir::Graph& graph;
  const ir::Node& node;

  bool has_in(size_t port) const { return port < node.in.size() && node.in[port] != ir::kNone; }
  bool has_out(size_t port) const { return port < node.out.size() && node.out[port] != ir::kNone; }
  const RefTensor& in(size_t port) const { return tensors_[size_t(node.in[port])]; }
  // Outputs come with `values` sized to the tensor's volume; row-major, to be filled entirely.
  RefTensor& out(size_t port) { return tensors_[size_t(node.out[port])]; }
  double scalar_in(size_t port) const { return in(port).at_linear(0).v; }

  // body(i) for i in [0, count), in parallel, with this node's compute type as the rounding model.
  template <class Body>
  void for_each(int64_t count, const Body& body) const {
    const Rounding rounding = t_rounding;
    constexpr int64_t kBlock = 256;
    const int64_t step = count >= 64 * kBlock ? kBlock : 1;
    parallel_for((count + step - 1) / step, [&](int64_t block) {
      t_rounding = rounding;
      for (int64_t i = block * step; i < count && i < (block + 1) * step; ++i) body(i);
    });
  }

 private:
  std::vector<RefTensor>& tensors_;
};

// The rounding model of a compute type (NOT_SET: FLOAT).
Rounding rounding_of(DataType_t compute);

// Evaluates the whole graph. pointers[t] is the memory of tensor t (null for virtual tensors and outputs, which are
// not written; host pointers for scalars without a stored value). The result has `values` for every node output.
Result<std::vector<RefTensor>> evaluate_reference(const ir::Graph&, const std::vector<void*>& pointers);
// Writes the values into the tensor's memory, rounded to its type.
void store_reference(const RefTensor&, void* memory);

// How a result in memory compares with the reference: an element is right when it lies between the roundings to its
// type of v - e and v + e.
struct Comparison {
  int64_t elements = 0, wrong = 0;
  int64_t unbounded = 0;   // elements whose bound says nothing (overflow on the way); many of them: do not trust
  double worst_error = 0;  // max |got - v| over finite elements
  double worst_ratio = 0;  // max |got - v| / (e + half a step of the type)
  Dims first_wrong;
  double got = 0, want = 0, bound = 0;  // of the first wrong element
  bool ok() const { return wrong == 0 && (unbounded == 0 || unbounded * 10 < elements); }
  std::string text() const;  // "12 of 4096 elements differ; first at [0, 3]: 0.5, expected 0.25 +- 1e-7"
};
Comparison compare(const RefTensor& expected, const void* memory);

}  // namespace tilewright
