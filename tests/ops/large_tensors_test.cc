// Offsets beyond 2^31 elements. The memory is mapped and never touched but where a tensor has elements, so that a view
// with huge strides costs a few pages: what is tested is every plan's address arithmetic.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "support/every_plan.h"

namespace tilewright {
namespace {

using graph::Graph;
using graph::Tensor_attributes;
using graph::TensorPtr;

constexpr int64_t kTwo31 = int64_t(1) << 31;

// Zero pages for a whole tensor.
class Mapped {
 public:
  explicit Mapped(int64_t bytes) : bytes_(size_t(bytes)) {
    void* p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    data_ = p == MAP_FAILED ? nullptr : p;
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() {
    if (data_) munmap(data_, bytes_);
  }
  void* data() const { return data_; }

 private:
  size_t bytes_;
  void* data_;
};

double get(const Mapped& m, const TensorPtr& t, const Dims& index) {
  return load_element(m.data(), t->get_data_type(), offset_of(t->get_stride(), index.data()));
}
void set(const Mapped& m, const TensorPtr& t, const Dims& index, double value) {
  store_element(m.data(), t->get_data_type(), offset_of(t->get_stride(), index.data()), value);
}

int64_t bytes_of(const TensorPtr& t) {
  return storage_bytes(t->get_data_type(), storage_elements({t->get_dim(), t->get_stride()}));
}

// Two channels far apart, in X and in Y: a 3x3 filter around an impulse shows the filter.
class LargeConvolution : public ::testing::TestWithParam<DataType_t> {};

TEST_P(LargeConvolution, EveryOpReachesBothSidesOfTwoToThe31) {
  const DataType_t type = GetParam();
  const Dims image = {1, 2, 8, 8}, filter = {2, 2, 3, 3};
  const Dims far_x = {4 * kTwo31, kTwo31 + 64, 8, 1}, far_y = {4 * kTwo31, 64 + kTwo31 / 2 * 3, 1, 8};
  for (const char* op : {"fprop", "dgrad", "wgrad"}) {
    SCOPED_TRACE(op);
    Graph g;
    g.set_io_data_type(type).set_compute_data_type(DataType_t::FLOAT);
    auto tensor = [&](const char* name, const Dims& dim, const Dims& stride) {
      return g.tensor(Tensor_attributes().set_name(name).set_dim(dim).set_stride(stride).set_data_type(type));
    };
    auto attributes = [](auto a) { return a.set_padding({1, 1}).set_stride({1, 1}).set_dilation({1, 1}); };
    TensorPtr a, b, out;
    const bool wgrad = std::string(op) == "wgrad";
    a = tensor("a", image, far_x);
    b = wgrad ? tensor("b", image, far_y) : tensor("b", filter, {18, 9, 3, 1});
    if (std::string(op) == "fprop") out = g.conv_fprop(a, b, attributes(graph::Conv_fprop_attributes()));
    else if (wgrad) out = g.conv_wgrad(a, b, attributes(graph::Conv_wgrad_attributes()));
    else out = g.conv_dgrad(a, b, attributes(graph::Conv_dgrad_attributes()));
    out->set_output(true).set_dim(wgrad ? filter : image).set_stride(wgrad ? Dims{18, 9, 3, 1} : far_y);
    const Status built = g.build({HeurMode_t::A, HeurMode_t::B, HeurMode_t::FALLBACK}, BuildPlanPolicy_t::ALL);
    ASSERT_TRUE(built.is_good()) << built.err_msg;

    Mapped a_memory(bytes_of(a)), b_memory(bytes_of(b)), out_memory(bytes_of(out));
    if (!a_memory.data() || !b_memory.data() || !out_memory.data()) GTEST_SKIP() << "no address space for the tensors";
    // An impulse in the far channel of A at (4, 5).
    set(a_memory, a, {0, 1, 4, 5}, 1);
    auto weight = [](int64_t k, int64_t c, int64_t r, int64_t s) { return double(k * 18 + c * 9 + r * 3 + s + 1); };
    if (wgrad) {
      set(b_memory, b, {0, 1, 3, 6}, 7);  // meets the impulse through tap (0, 2) alone
    } else {
      for (int64_t k = 0; k < 2; ++k)
        for (int64_t c = 0; c < 2; ++c)
          for (int64_t r = 0; r < 3; ++r)
            for (int64_t s = 0; s < 3; ++s) set(b_memory, b, {k, c, r, s}, weight(k, c, r, s));
    }
    for (int64_t plan = 0; plan < g.get_execution_plan_count(); ++plan) {
      SCOPED_TRACE(g.plans()[size_t(plan)].name);
      const Dims& dim = out->get_dim();
      for (int64_t i = 0; i < volume(dim); ++i)
        store_element(out_memory.data(), type, offset_of_linear(i, {dim, out->get_stride()}), -1);
      std::vector<uint8_t> workspace(size_t(g.get_workspace_size_plan_at_index(plan)));
      std::unordered_map<TensorPtr, void*> pack = {
          {a, a_memory.data()}, {b, b_memory.data()}, {out, out_memory.data()}};
      const Status ran = g.execute_plan_at_index(Handle{}, pack, workspace.data(), plan);
      ASSERT_TRUE(ran.is_good()) << ran.err_msg;
      Dims at(4);
      for (int64_t i = 0; i < volume(dim); ++i) {
        unravel(i, dim, at.data());
        double want = 0;
        // Y[p] sees X[p + r - 1]; DX[q] sees DY[q + 1 - r].
        const int64_t r = std::string(op) == "fprop" ? 5 - at[2] : at[2] - 3;
        const int64_t s = std::string(op) == "fprop" ? 6 - at[3] : at[3] - 4;
        if (wgrad) want = at == Dims{1, 1, 0, 2} ? 7 : 0;
        else if (r >= 0 && r < 3 && s >= 0 && s < 3)
          want = std::string(op) == "fprop" ? weight(at[1], 1, r, s) : weight(1, at[1], r, s);
        ASSERT_EQ(get(out_memory, out, at), want) << to_text(at);
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Types, LargeConvolution, ::testing::Values(DataType_t::BFLOAT16, DataType_t::FLOAT),
                         [](const auto& info) { return to_string(info.param); });

TEST(LargeTensors, SliceReadsElementsBeyondTwoToThe31) {
  Graph g;
  g.set_io_data_type(DataType_t::HALF).set_intermediate_data_type(DataType_t::HALF);
  g.set_compute_data_type(DataType_t::FLOAT);
  // 514 channels of 2048 x 2048: channel 512 begins exactly at element 2^31.
  const Dims dim = {1, 514, 2048, 2048};
  auto x = g.tensor(Tensor_attributes().set_name("x").set_dim(dim).set_stride(row_major_strides(dim)));
  const int64_t first = 510;
  auto corner = g.slice(x, graph::Slice_attributes()
                               .set_slices({{0, 1}, {first, 514}, {0, 2048}, {0, 2048}})
                               .set_strides({1, 1, 2047, 2047}));
  auto y = g.pointwise(corner, graph::Pointwise_attributes().set_mode(PointwiseMode_t::NEG));
  y->set_output(true).set_dim({1, 4, 2, 2}).set_stride({16, 4, 2, 1});
  const Status built = g.build({HeurMode_t::A, HeurMode_t::B, HeurMode_t::FALLBACK}, BuildPlanPolicy_t::ALL);
  ASSERT_TRUE(built.is_good()) << built.err_msg;
  Mapped x_memory(bytes_of(x));
  if (!x_memory.data()) GTEST_SKIP() << "no address space for the tensor";
  for (int64_t c = 0; c < 4; ++c)
    for (int64_t i = 0; i < 4; ++i) set(x_memory, x, {0, first + c, i / 2 * 2047, i % 2 * 2047}, double(c * 4 + i + 1));
  for (int64_t plan = 0; plan < g.get_execution_plan_count(); ++plan) {
    SCOPED_TRACE(g.plans()[size_t(plan)].name);
    std::vector<half> out(16);
    ASSERT_LT(g.get_workspace_size_plan_at_index(plan), int64_t(1) << 32);
    Mapped workspace(g.get_workspace_size_plan_at_index(plan) + 1);
    std::unordered_map<TensorPtr, void*> pack = {{x, x_memory.data()}, {y, out.data()}};
    const Status ran = g.execute_plan_at_index(Handle{}, pack, workspace.data(), plan);
    ASSERT_TRUE(ran.is_good()) << ran.err_msg;
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(float(out[i]), -float(i + 1));
  }
}

}  // namespace
}  // namespace tilewright
