// rng: random numbers, four elements from each block of the generator, bit for bit those of the reference.
#include "ops/rng.h"

#include <algorithm>

#include "base/thread_pool.h"
#include "engines/cpu/kernel.h"

namespace tilewright::cpu {
namespace {

constexpr int64_t kBlocks = 64;             // of four words: made at once, side by side in vectors
constexpr int64_t kElements = 4 * kBlocks;  // of one such batch
constexpr int64_t kBatches = 32;            // of a task

// Words of the blocks from `first` on, as Philox::block makes them: word w of block b in words[w][b].
void make_words(const Philox& philox, uint64_t first, uint32_t (*words)[kBlocks]) {
  for (int64_t b = 0; b < kBlocks; ++b) {
    words[0][b] = uint32_t(first + uint64_t(b));
    words[1][b] = uint32_t((first + uint64_t(b)) >> 32);
    words[2][b] = uint32_t(philox.offset);
    words[3][b] = uint32_t(philox.offset >> 32);
  }
  uint32_t k0 = uint32_t(philox.seed), k1 = uint32_t(philox.seed >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9, k1 += 0xBB67AE85)
    for (int64_t b = 0; b < kBlocks; ++b) {
      const uint64_t p0 = uint64_t(0xD2511F53) * words[0][b], p1 = uint64_t(0xCD9E8D57) * words[2][b];
      words[0][b] = uint32_t(p1 >> 32) ^ words[1][b] ^ k0;
      words[1][b] = uint32_t(p1);
      words[2][b] = uint32_t(p0 >> 32) ^ words[3][b] ^ k1;
      words[3][b] = uint32_t(p0);
    }
}

class Rng : public Kernel {
 public:
  Rng(const fuse::FusedGraph& fused, const fuse::Region& region)
      : fused_(fused), node_(fused.graph.nodes[size_t(region.heavy)]), y_(fused.graph.tensor(node_.out[0])) {
    const Dims dense = row_major_strides(y_.dim);
    for (size_t d = 0; d < y_.dim.size(); ++d) dense_ &= y_.dim[d] == 1 || y_.stride[d] == dense[d];
  }

  void run(const Memory& memory, char*) const override {
    const auto key = [&](size_t port) -> const void* {
      return port < node_.in.size() && node_.in[port] != ir::kNone ? memory.tensor(node_.in[port]) : nullptr;
    };
    const ops::RngNumbers numbers = ops::rng_numbers(node_, ops::philox_of(fused_.graph, node_, key(0), key(1)));
    void* const to = memory.tensor(node_.out[0]);
    const int64_t count = volume(y_.dim);
    parallel_for((count + kElements * kBatches - 1) / (kElements * kBatches), [&](int64_t task) {
      double values[kElements];
      float exact[kElements];
      for (int64_t batch = task * kBatches; batch < (task + 1) * kBatches && batch * kElements < count; ++batch) {
        const int64_t first = batch * kElements, n = std::min(kElements, count - first);
        if (dense_ && numbers.distribution != RngDistribution_t::NORMAL) {
          make_values(numbers, first, exact);
          store_floats(to, y_.storage_type(), first, 1, n, exact);
          continue;
        }
        make_values(numbers, first, values);
        if (dense_) store_doubles(to, y_.storage_type(), first, 1, n, values);
        else
          for (int64_t i = 0; i < n; ++i)
            store_element(to, y_.storage_type(), offset_of_linear(first + i, y_.view()), values[i]);
      }
    });
  }

  std::string describe() const override { return "random numbers, four to a block of the generator"; }

 private:
  // Of uniform numbers, a float holds every bit.
  template <class T>
  static void make_values(const ops::RngNumbers& numbers, int64_t first, T* values) {
    if (numbers.distribution == RngDistribution_t::NORMAL) {
      for (int64_t i = 0; i < kElements; ++i) values[i] = T(numbers.at(first + i));
      return;
    }
    uint32_t words[4][kBlocks];
    make_words(numbers.philox, uint64_t(first) / 4, words);
    const bool uniform = numbers.distribution == RngDistribution_t::UNIFORM;
    for (int64_t b = 0; b < kBlocks; ++b)
      for (int64_t w = 0; w < 4; ++w)
        values[4 * b + w] =
            uniform ? T(int32_t(words[w][b] >> 8)) * T(0x1p-24) : (words[w][b] < numbers.threshold ? T(1) : T(0));
  }

  const fuse::FusedGraph& fused_;
  const ir::Node& node_;
  const ir::Tensor& y_;
  bool dense_ = true;
};

}  // namespace

std::unique_ptr<Kernel> make_rng(const fuse::FusedGraph& fused, const fuse::Region& region) {
  if (std::string_view(fused.graph.nodes[size_t(region.heavy)].op->name) != "rng") return nullptr;
  return std::make_unique<Rng>(fused, region);
}

}  // namespace tilewright::cpu
