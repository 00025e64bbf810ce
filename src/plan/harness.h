// Runs a graph's plans on memory that can catch them: every caller-bound tensor lies between guard bands, outputs are
// poisoned and their gaps patterned, inputs hold seeded values (NaN in their gaps), and results are judged by the exact
// reference. The shell tool, the verify mode and the tests share it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ops/reference.h"
#include "plan/engine.h"

namespace tilewright {

// Memory between two bands of a known pattern.
class GuardedBuffer {
 public:
  static constexpr int64_t kGuardBytes = 4096;
  GuardedBuffer() = default;
  // tight: aligned to `alignment` and to nothing more, so that a kernel that assumes more is caught.
  GuardedBuffer(int64_t bytes, int64_t alignment, bool tight = false);
  uint8_t* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // With its bands.
  uint8_t* whole() const { return data_ - kGuardBytes; }
  int64_t whole_bytes() const { return bytes_ + 2 * kGuardBytes; }
  // Empty when both bands are whole, else where they are not: "3 bytes after the end".
  std::string damage() const;

 private:
  std::unique_ptr<uint8_t[]> raw_;
  uint8_t* data_ = nullptr;
  int64_t bytes_ = 0;
};

enum class Fill {
  None,      // the caller writes the inputs
  Random,    // about normal, or in the range that a port needs (a variance is positive, a length fits)
  Integers,  // small integers: sums and products of them are exact in every type
};

struct HarnessOptions {
  uint64_t seed = 0;
  Fill fill = Fill::Random;
  bool tight_alignment = false;
};

class Harness {
 public:
  // The graph must outlive the harness.
  explicit Harness(const ir::Graph& graph, HarnessOptions options = {});

  const Bindings& bindings() const { return bindings_; }
  std::unordered_map<int64_t, void*> variant_pack() const;  // by uid
  void* memory(ir::TensorId id) const { return bindings_[size_t(id)]; }
  const GuardedBuffer& buffer(ir::TensorId id) const { return buffers_[size_t(id)]; }
  const GuardedBuffer& workspace_buffer() const { return workspace_; }
  // Guarded and poisoned afresh at each call; valid until the next one.
  void* workspace(int64_t bytes);
  // Call after writing inputs by hand: forgets the reference values, and takes the new contents as what must not
  // change.
  void inputs_changed();
  // Copies the inputs from the caller's memory (and calls inputs_changed).
  void copy_inputs(const Bindings& from);

  // Every output element becomes NaN (0x5a.. in integer types), every gap a pattern.
  void poison_outputs();
  // Guards whole, inputs as they were, gaps of outputs untouched.
  Status check_memory() const;
  // The reference's values of all tensors; evaluated at the first call.
  Result<const std::vector<RefTensor>*> reference();

  struct Output {
    ir::TensorId tensor = ir::kNone;
    Comparison comparison;
    bool must_be_exact = false;  // integers all the way: any order of the sums gives the same bits
    int64_t inexact = 0;         // elements that then differ
    std::string inexact_text;
    bool ok() const { return comparison.ok() && inexact == 0; }
  };
  Result<std::vector<Output>> compare_outputs();
  // Memory and every output; says which tensor and how.
  Status check();
  // Poison, run, check. On a GPU the run is on a copy of all this in its memory, guard bands included.
  Status check_run(const Executable& executable, const Queue& queue = {});

 private:
  void fill_inputs();
  void fill_attention_forward(const ir::Node& backward);
  bool exact_by_integers(const std::vector<RefTensor>& values) const;

  const ir::Graph& graph_;
  HarnessOptions options_;
  std::vector<GuardedBuffer> buffers_;  // by tensor
  GuardedBuffer workspace_;
  Bindings bindings_;
  std::vector<uint64_t> input_hash_;        // by tensor
  std::vector<std::vector<bool>> covered_;  // by tensor: storage elements that an output with gaps owns
  std::unique_ptr<std::vector<RefTensor>> reference_;
  bool exact_ = false;
};

}  // namespace tilewright
