#include "ops/reference.h"

#include <cstring>

namespace tilewright {

Bounded RefTensor::at(const int64_t* index) const {
  if (memory) return load(offset_of(tensor->stride, index));
  int64_t linear = 0;
  for (size_t d = 0; d < tensor->dim.size(); ++d) linear = linear * tensor->dim[d] + index[d];
  return widen(values[size_t(linear)]);
}

RefTensor::Dense RefTensor::dense() const {
  const int64_t n = volume();
  Dense d;
  d.values.resize(size_t(n));
  if (memory) {
    const int64_t row = tensor->dim.empty() || n == 0 ? 1 : tensor->dim.back();
    const int64_t stride = tensor->stride.empty() ? 1 : tensor->stride.back();
    parallel_for(row ? n / row : 0, [&](int64_t i) {
      load_doubles(memory, tensor->storage_type(), offset_of_linear(i * row, tensor->view()), stride, row,
                   &d.values[size_t(i * row)]);
    });
    return d;
  }
  bool exact = read_u == 0;
  for (size_t i = 0; exact && i < values.size(); ++i) exact = values[i].e == 0;
  if (!exact) d.errors.resize(size_t(n));
  for (int64_t i = 0; i < n; ++i) {
    const Bounded b = widen(values[size_t(i)]);
    d.values[size_t(i)] = b.v;
    if (!exact) d.errors[size_t(i)] = b.e;
  }
  return d;
}

RefBroadcast::RefBroadcast(const RefTensor& tensor, const Dims& to)
    : tensor_(tensor), to_(to), stride_(broadcast_strides({tensor.dim(), row_major_strides(tensor.dim())}, to)) {}

Bounded RefBroadcast::at(const int64_t* index) const { return tensor_.at_linear(offset_of(stride_, index)); }

Bounded RefBroadcast::at_linear(int64_t row_major) const {
  int64_t offset = 0;
  for (size_t d = to_.size(); d-- > 0;) {
    offset += row_major % to_[d] * stride_[d];
    row_major /= to_[d];
  }
  return tensor_.at_linear(offset);
}

Rounding rounding_of(DataType_t compute) {
  switch (compute) {
    case DataType_t::DOUBLE: return {0x1p-53, 0x1p-1022, 0x1.fffffffffffffp1023};
    case DataType_t::HALF: return {0x1p-11, 0x1p-14, 65504};
    case DataType_t::BFLOAT16: return {0x1p-8, 0x1p-126, 0x1.fep127};
    case DataType_t::INT32:
    case DataType_t::INT64: return {0, 0, kInfinity};  // exact
    default: return {};
  }
}

namespace {

// The least and the greatest stored value of a number that lies within its bound. A BOOLEAN is true for everything but
// 0, so its ends are not those of the interval.
struct StoredEnds {
  double low, high;
};
StoredEnds stored_ends(DataType_t type, Bounded b) {
  if (type != DataType_t::BOOLEAN || !(b.e > 0))
    return {round_to_type(type, b.v - b.e), round_to_type(type, b.v + b.e)};
  return {std::fabs(b.v) <= b.e ? 0.0 : 1.0, 1.0};
}

// What is read back from a tensor of an integer type has been rounded to it; an uncertain value may round elsewhere.
void round_integers(RefTensor& t) {
  if (!is_integer_type(t.tensor->type)) return;
  const DataType_t type = t.tensor->type;
  for (Bounded& b : t.values) {
    const double v = round_to_type(type, b.v);
    double e = 0;
    if (b.e > 0) {
      const StoredEnds ends = stored_ends(type, b);
      e = std::max(ends.high - v, v - ends.low);
    }
    b = {v, e};
  }
}

}  // namespace

Result<std::vector<RefTensor>> evaluate_reference(const ir::Graph& graph, const std::vector<void*>& pointers) {
  std::vector<RefTensor> tensors(graph.tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const ir::Tensor& t = graph.tensors[i];
    tensors[i].tensor = &t;
    if (t.value) {
      tensors[i].values = {Bounded(ir::scalar_value(*t.value))};
    } else if (t.role == ir::Role::Input || t.role == ir::Role::Scalar) {
      tensors[i].memory = i < pointers.size() ? pointers[i] : nullptr;
      if (!tensors[i].memory && volume(t.dim) > 0)
        return error(error_code_t::INVALID_VARIANT_PACK, "tensor \"{}\" (uid {}) has no memory", t.name, t.uid);
    }
  }
  const Rounding saved = t_rounding;
  for (const ir::Node& node : graph.nodes) {
    for (ir::TensorId id : node.out)
      if (id != ir::kNone) tensors[size_t(id)].values.assign(size_t(volume(graph.tensor(id).dim)), Bounded());
    t_rounding = rounding_of(node.compute);
    t_rounding.tanh = node.attr<double>("tanh_error");  // of graphs that judge (plan/judge.h)
    RefContext context(graph, node, tensors);
    node.op->reference(context);
    for (ir::TensorId id : node.out) {
      if (id == ir::kNone) continue;
      RefTensor& t = tensors[size_t(id)];
      round_integers(t);
      if (is_float_type(t.tensor->type)) {
        t.read_u = unit_roundoff(t.tensor->type);
        t.read_limit = largest_finite(t.tensor->type);
        t.read_eta = smallest_subnormal(t.tensor->type);
      }
    }
  }
  t_rounding = saved;
  return tensors;
}

void store_reference(const RefTensor& t, void* memory) {
  const View view = t.tensor->view();
  for (int64_t i = 0; i < t.volume(); ++i)
    store_element(memory, t.tensor->storage_type(), offset_of_linear(i, view), t.values[size_t(i)].v);
}

Comparison compare(const RefTensor& expected, const void* memory) {
  Comparison r;
  const ir::Tensor& t = *expected.tensor;
  const DataType_t type = t.type;
  const double u = unit_roundoff(type), tiny = smallest_subnormal(type);
  r.elements = expected.volume();
  for (int64_t i = 0; i < r.elements; ++i) {
    const Bounded& want = expected.values[size_t(i)];
    const double got = load_element(memory, t.storage_type(), offset_of_linear(i, t.view()));
    const double exact = round_to_type(type, want.v);
    bool ok;
    if (std::isnan(exact)) {
      ok = std::isnan(got);
    } else if (!(want.e < kInfinity)) {
      ok = true;
      ++r.unbounded;
    } else {
      const StoredEnds ends = stored_ends(type, want);
      ok = got >= ends.low && got <= ends.high;
      if (std::isfinite(got) && std::isfinite(want.v)) {
        const double error = std::fabs(got - want.v);
        r.worst_error = std::max(r.worst_error, error);
        r.worst_ratio = std::max(r.worst_ratio, error / (want.e + u * std::fabs(want.v) + tiny + 1e-300));
      }
    }
    if (ok || ++r.wrong > 1) continue;
    r.first_wrong.resize(t.dim.size());
    unravel(i, t.dim, r.first_wrong.data());
    r.got = got, r.want = want.v, r.bound = want.e;
  }
  return r;
}

std::string Comparison::text() const {
  if (wrong)
    return fmt::format("{} of {} elements differ; first at {}: {}, expected {} +- {:.3g}", wrong, elements,
                       to_text(first_wrong), got, want, bound);
  if (!ok()) return fmt::format("{} of {} elements have no bound (overflow on the way)", unbounded, elements);
  return fmt::format("max error {:.3g}, {:.2f} of the bound", worst_error, worst_ratio);
}

}  // namespace tilewright
