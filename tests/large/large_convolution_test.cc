// Convolutions of tensors beyond 2^31 elements and 2 GiB, found by public reports. The input is untouched zero pages,
// so it costs addresses and hardly any memory; a few elements are 1, and each must show the filter around it.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <map>
#include <vector>

#include "base/numeric_types.h"
#include "layout/view.h"
#include "tilewright/tilewright.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TILEWRIGHT_SANITIZED 1
#else
#define TILEWRIGHT_SANITIZED 0
#endif

namespace tilewright {
namespace {

using graph::Graph;
using graph::Tensor_attributes;

class ZeroPages {
 public:
  explicit ZeroPages(size_t bytes) : bytes_(bytes) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED) data_ = static_cast<char*>(p);
  }
  ~ZeroPages() {
    if (data_) munmap(data_, bytes_);
  }
  ZeroPages(const ZeroPages&) = delete;
  ZeroPages& operator=(const ZeroPages&) = delete;
  char* data() const { return data_; }

 private:
  char* data_ = nullptr;
  size_t bytes_;
};

double coded(int64_t i) { return double((7 * i + 3) % 17 - 8) / 8; }

// Y = conv(X, W) with X zero but for ones at `impulses`; dims logical and packed row-major; no groups, no dilation.
void check_impulses(DataType_t type, const std::vector<int64_t>& dx, const std::vector<int64_t>& dw,
                    const std::vector<int64_t>& stride, const std::vector<int64_t>& pad,
                    const std::vector<std::vector<int64_t>>& impulses) {
  const size_t spatial = stride.size();
  Graph g;
  g.set_io_data_type(type).set_intermediate_data_type(DataType_t::FLOAT).set_compute_data_type(DataType_t::FLOAT);
  auto x = g.tensor(Tensor_attributes().set_name("X").set_dim(dx).set_stride(row_major_strides(dx)).set_uid(1));
  auto w = g.tensor(Tensor_attributes().set_name("W").set_dim(dw).set_stride(row_major_strides(dw)).set_uid(2));
  auto y = g.conv_fprop(x, w,
                        graph::Conv_fprop_attributes().set_padding(pad).set_stride(stride).set_dilation(
                            std::vector<int64_t>(spatial, 1)));
  y->set_output(true).set_uid(3);
  const error_t built = g.build({HeurMode_t::A});
  ASSERT_TRUE(built.is_good()) << built.err_msg;
  const std::vector<int64_t> dy = y->get_dim(), sy = y->get_stride();

  ZeroPages input(size_t(volume(dx)) * 2);
  ASSERT_NE(input.data(), nullptr);
  std::vector<uint16_t> filter(size_t(volume(dw))), output(size_t(volume(dy)), 0xffff);
  for (int64_t i = 0; i < volume(dw); ++i) store_element(filter.data(), type, i, coded(i));
  std::map<int64_t, double> expected;  // by offset in Y; sums of a few eighths are exact
  for (const auto& at : impulses) {
    store_element(input.data(), type, offset_of(row_major_strides(dx), at.data()), 1);
    for (int64_t f = 0; f < volume(dw); ++f) {
      std::vector<int64_t> tap(dw.size()), index = {at[0], 0};
      unravel(f, dw, tap.data());
      if (tap[1] != at[1]) continue;
      index[1] = tap[0];
      bool lands = true;
      for (size_t d = 0; d < spatial; ++d) {
        const int64_t from = at[d + 2] + pad[d] - tap[d + 2];
        lands = lands && from >= 0 && from % stride[d] == 0 && from / stride[d] < dy[d + 2];
        index.push_back(from / stride[d]);
      }
      if (lands) expected[offset_of(sy, index.data())] += coded(f);
    }
  }
  ASSERT_GE(expected.size(), impulses.size());
  std::vector<char> workspace(size_t(g.get_workspace_size()) + 64);
  std::unordered_map<int64_t, void*> pack = {{1, input.data()}, {2, filter.data()}, {3, output.data()}};
  const error_t ran = g.execute(nullptr, pack, workspace.data());
  ASSERT_TRUE(ran.is_good()) << ran.err_msg;
  for (int64_t i = 0; i < int64_t(output.size()); ++i) {
    auto it = expected.find(i);
    const double want = it == expected.end() ? 0 : it->second;
    ASSERT_EQ(load_element(output.data(), type, i), want) << "at offset " << i;
  }
}

TEST(LargeConvolution, MoreThanTwoToThe31Elements) {  // channel 512 begins at element 2^31
  if (TILEWRIGHT_SANITIZED) GTEST_SKIP() << "39 GFLOP take minutes under a sanitizer";
  std::vector<std::vector<int64_t>> impulses;
  for (int64_t c : {0, 511, 512, 513})
    for (int64_t h : {0, 2047})
      for (int64_t v : {0, 2047}) impulses.push_back({0, c, h, v});
  check_impulses(DataType_t::HALF, {1, 514, 2048, 2048}, {1, 514, 3, 3}, {1, 1}, {1, 1}, impulses);
}

TEST(LargeConvolution, ThreeDimensionalBeyondTwoGigabytes) {
  if (TILEWRIGHT_SANITIZED) GTEST_SKIP() << "8 GFLOP take minutes under a sanitizer";
  const std::vector<int64_t> dx = {1, 16, 124, 1282, 722}, stride = {1, 8, 8};
  // An element is seen when some tap of the 1x3x3 filter at some output reads it.
  auto seen = [&](int64_t linear) {
    std::vector<int64_t> at(5);
    unravel(linear, dx, at.data());
    for (size_t d : {3, 4}) {
      const int64_t size = (dx[d] - 3) / 8 + 1;
      bool hit = false;
      for (int64_t r = 0; r < 3; ++r) hit |= at[d] >= r && (at[d] - r) % 8 == 0 && (at[d] - r) / 8 < size;
      if (!hit) return false;
    }
    return true;
  };
  std::vector<std::vector<int64_t>> impulses;
  auto nearest = [&](int64_t from, int64_t step) {
    while (!seen(from)) from += step;
    std::vector<int64_t> at(5);
    unravel(from, dx, at.data());
    impulses.push_back(at);
  };
  nearest(0, 1);
  nearest((int64_t{1} << 30) - 1, -1);  // byte 2^31
  nearest(int64_t{1} << 30, 1);
  nearest(volume(dx) - 1, -1);
  check_impulses(DataType_t::BFLOAT16, dx, {16, 16, 1, 3, 3}, stride, {0, 0, 0}, impulses);
}

}  // namespace
}  // namespace tilewright
