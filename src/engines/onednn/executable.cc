// Running a program: primitives are made once; an execution sets the caller's pointers in memory objects that no other
// execution uses meanwhile.
#include <array>
#include <atomic>
#include <cstdlib>
#include <deque>

#include "engines/onednn/lower.h"

namespace tilewright::onednn {
namespace {

// The memory objects of one execution of one launch.
struct ArgumentSet {
  Stream stream;
  std::vector<Memory> memory;
  std::vector<ExecArg> arguments;
  std::vector<void*> data;
};

// Sets that wait to be used, one per thread that executes at once. No lock: each slot is emptied and filled atomically.
class Sets {
 public:
  ~Sets() {
    for (auto& slot : slots_) delete slot.load();
  }
  std::unique_ptr<ArgumentSet> take() {
    for (auto& slot : slots_)
      if (slot.load(std::memory_order_relaxed))
        if (ArgumentSet* set = slot.exchange(nullptr)) return std::unique_ptr<ArgumentSet>(set);
    return nullptr;
  }
  void give(std::unique_ptr<ArgumentSet> set) {
    for (auto& slot : slots_) {
      ArgumentSet* none = nullptr;
      if (slot.compare_exchange_strong(none, set.get())) return void(set.release());
    }
  }

 private:
  std::array<std::atomic<ArgumentSet*>, 32> slots_ = {};
};

// A reordered constant: made at the first execute, from the memory that the tensor is bound to then. An execute with
// other memory, or one that comes while it is made, reorders into its own workspace.
class KeptTensor {
 public:
  explicit KeptTensor(const Kept& kept) : tensor_(kept.tensor), bytes_(kept.bytes) {}
  ~KeptTensor() { std::free(memory_); }
  KeptTensor(const KeptTensor&) = delete;
  KeptTensor& operator=(const KeptTensor&) = delete;

  void* find(const Bindings& bindings) const {
    return state_.load(std::memory_order_acquire) == kReady && bindings[size_t(tensor_)] == source_ ? memory_ : nullptr;
  }
  // Memory to make it in; null when another thread does, or did, or when there is none.
  void* begin() {
    int empty = kEmpty;
    if (!state_.compare_exchange_strong(empty, kBeingMade)) return nullptr;
    memory_ = std::aligned_alloc(64, size_t(bytes_ + 63) / 64 * 64);
    return memory_;
  }
  void end(const Bindings& bindings) {
    source_ = bindings[size_t(tensor_)];
    state_.store(kReady, std::memory_order_release);
  }

 private:
  enum State { kEmpty, kBeingMade, kReady };
  ir::TensorId tensor_;
  int64_t bytes_;
  std::atomic<int> state_ = kEmpty;
  void* memory_ = nullptr;
  const void* source_ = nullptr;
};

// What the launches of a program share.
struct Shared {
  std::vector<float> constants;
  std::deque<KeptTensor> kept;
  int threads;
};

class Runner {
 public:
  Runner(Launch launch, std::shared_ptr<Shared> shared)
      : arguments_(std::move(launch.arguments)), shared_(std::move(shared)) {
    ok_ = library().primitive_create(primitive_.put(), launch.desc.get()) == kSuccess;
    for (const Argument& a : arguments_)
      if (a.index == kArgDst && a.place.kept >= 0) makes_ = &shared_->kept[size_t(a.place.kept)];
  }
  bool ok() const { return ok_; }

  void run(const Bindings& bindings, void* workspace) {
    if (!makes_) return execute(bindings, workspace, nullptr);
    if (makes_->find(bindings)) return;
    void* memory = makes_->begin();
    execute(bindings, workspace, memory);
    if (memory) makes_->end(bindings);
  }

 private:
  // `made`: where a reordered constant goes instead of the workspace.
  void execute(const Bindings& bindings, void* workspace, void* made) {
    const Library& lib = library();
    std::unique_ptr<ArgumentSet> set = sets_.take();
    if (!set) set = make_set();
    for (size_t i = 0; i < arguments_.size(); ++i) {
      void* data = address(arguments_[i].place, bindings, workspace, made);
      if (set->data[i] != data) TW_CHECK(lib.memory_set_data_handle(set->memory[i].get(), data) == kSuccess);
      set->data[i] = data;
    }
    const Threads threads(shared_->threads);
    TW_CHECK(lib.primitive_execute(primitive_.get(), set->stream.get(), int(set->arguments.size()),
                                   set->arguments.data()) == kSuccess);
    sets_.give(std::move(set));
  }

  void* address(const Place& p, const Bindings& bindings, void* workspace, void* made) const {
    if (p.tensor != ir::kNone) return bindings[size_t(p.tensor)];
    if (p.constant >= 0) return &shared_->constants[size_t(p.constant)];
    if (p.kept >= 0) {
      if (made) return made;
      if (void* kept = shared_->kept[size_t(p.kept)].find(bindings)) return kept;
    }
    return static_cast<char*>(workspace) + p.offset;
  }
  std::unique_ptr<ArgumentSet> make_set() const {
    const Library& lib = library();
    auto set = std::make_unique<ArgumentSet>();
    TW_CHECK(lib.stream_create(set->stream.put(), lib.engine, kStreamDefault) == kSuccess);
    for (const Argument& a : arguments_) {
      Memory memory;
      TW_CHECK(lib.memory_create(memory.put(), &a.desc, lib.engine, nullptr) == kSuccess);
      set->arguments.push_back({a.index, memory.get()});
      set->memory.push_back(std::move(memory));
      set->data.push_back(nullptr);
    }
    return set;
  }

  Primitive primitive_;
  bool ok_ = false;
  std::vector<Argument> arguments_;
  std::shared_ptr<Shared> shared_;
  KeptTensor* makes_ = nullptr;
  Sets sets_;
};

// Memory that a launch writes and that it, or a later one, reads.
std::vector<Hazard> hazards(const ir::Graph& graph, const Program& program) {
  const auto has_role = [&](const Argument& a, ir::Role role) {
    return a.place.tensor != ir::kNone && graph.tensor(a.place.tensor).role == role;
  };
  std::vector<Hazard> list;
  for (size_t first = 0; first < program.launches.size(); ++first)
    for (const Argument& w : program.launches[first].arguments)
      if (has_role(w, ir::Role::Output))
        for (size_t later = first + program.launches[first].elementwise; later < program.launches.size(); ++later)
          for (const Argument& r : program.launches[later].arguments)
            if (has_role(r, ir::Role::Input)) list.push_back({w.place.tensor, r.place.tensor});
  return list;
}

}  // namespace

std::unique_ptr<Executable> make_executable(const ir::Graph& graph, Program program, int threads) {
  const Threads scope(threads);
  auto shared = std::make_shared<Shared>();
  shared->constants = program.constants;
  for (const Kept& kept : program.kept) shared->kept.emplace_back(kept);
  shared->threads = threads;
  std::vector<Hazard> list = hazards(graph, program);
  std::vector<Step> steps;
  for (Launch& launch : program.launches) {
    std::string name = fmt::format("{} [{}]", launch.name, launch.implementation);
    auto runner = std::make_shared<Runner>(std::move(launch), shared);
    if (!runner->ok()) return nullptr;
    steps.push_back({std::move(name), [runner](const Bindings& b, void* workspace) { runner->run(b, workspace); }});
  }
  return std::make_unique<StepList>(std::move(steps), program.workspace_bytes, std::move(list));
}

}  // namespace tilewright::onednn
