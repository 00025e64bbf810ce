// Running a program: for each plan a variant pack with this execution's pointers.
#include <algorithm>
#include <array>
#include <atomic>

#include "device/cuda/gpu.h"
#include "engines/cudnn/program.h"
#include "ir/op_def.h"
#include "plan/captured_node.h"

namespace tilewright::cudnn {

using ir::kNone;
using ir::NodeId;
using ir::Role;
using ir::TensorId;

namespace {

Status launch_failure(const char* what, const std::string& step, StatusCode code) {
  return error(error_code_t::GRAPH_EXECUTION_FAILED, "cuDNN cannot {} {}: {}", what, step, failure_text(code));
}

// By the notes of the plan's engine.
bool makes_cuda_graphs(const Descriptor& plan) {
  const auto config = plan.get_descriptors(Attr::EXECUTION_PLAN_ENGINE_CONFIG, Kind::ENGINECFG, 1);
  if (!config || config->empty()) return false;
  const auto engine = (*config)[0].get_descriptors(Attr::ENGINECFG_ENGINE, Kind::ENGINE, 1);
  if (!engine || engine->empty()) return false;
  const auto notes = (*engine)[0].get_values(Attr::ENGINE_BEHAVIOR_NOTE, AttrType::BEHAVIOR_NOTE, 32);
  return notes && std::any_of(notes->begin(), notes->end(), [](int note) {
           return behavior_note(note) == BehaviorNote_t::SUPPORTS_CUDA_GRAPH_NATIVE_API;
         });
}

// Outputs that a later plan's inputs must not lie in; and operands that a contraction reads again and again while it
// writes its result.
std::vector<Hazard> hazards_of(const Program& p) {
  const auto has_role = [&](TensorId t, Role role) {
    return size_t(t) < p.intermediate.size() && p.graph().tensor(t).role == role;
  };
  std::vector<Hazard> list;
  const auto pair = [&](TensorId w, TensorId r) {
    if (r != kNone && has_role(w, Role::Output) && has_role(r, Role::Input)) list.push_back({w, r});
  };
  for (size_t i = 0; i < p.segments.size(); ++i)
    for (TensorId w : p.segments[i].segment.lowered->writes) {
      for (size_t j = i + 1; j < p.segments.size(); ++j)
        for (TensorId r : p.segments[j].segment.lowered->reads) pair(w, r);
      for (NodeId id : p.segments[i].segment.nodes) {
        const ir::Node& n = p.graph().nodes[size_t(id)];
        const std::string_view op = n.op->name;
        if (op == "matmul" || op.rfind("conv_", 0) == 0 || op.rfind("sdpa", 0) == 0)
          for (TensorId r : n.in) pair(w, r);
      }
    }
  return list;
}

// A variant pack, and the pointers that it was made of: an execution with the same ones takes it again, since cuDNN
// takes no other pointers once it is finalized.
struct Pack {
  std::vector<void*> pointers, wanted;  // the workspace first
  Descriptor descriptor;
};

// Packs that wait to be used, one per thread that executes at once. No lock: each slot is emptied and filled
// atomically.
class Packs {
 public:
  ~Packs() {
    for (auto& slot : slots_) delete slot.load();
  }
  std::unique_ptr<Pack> take() {
    for (auto& slot : slots_)
      if (slot.load(std::memory_order_relaxed))
        if (Pack* pack = slot.exchange(nullptr)) return std::unique_ptr<Pack>(pack);
    return std::make_unique<Pack>();
  }
  void give(std::unique_ptr<Pack> pack) {
    for (auto& slot : slots_) {
      Pack* none = nullptr;
      if (slot.compare_exchange_strong(none, pack.get())) return void(pack.release());
    }
  }

 private:
  std::array<std::atomic<Pack*>, 16> slots_ = {};
};

class PlanExecutable : public Executable {
 public:
  explicit PlanExecutable(std::shared_ptr<const Program> program)
      : program_(std::move(program)), hazards_(hazards_of(*program_)), packs_(program_->segments.size()) {
    for (const PlannedSegment& s : program_->segments) {
      steps_.push_back(
          {fmt::format("{} [{}]", segment_name(program_->graph(), s.segment.nodes), s.config.plan_name()), {}});
      uids_.emplace_back();
      for (const Bound& b : s.segment.lowered->bound) uids_.back().push_back(b.uid);
    }
  }

  int64_t workspace_bytes() const override { return program_->workspace_bytes; }
  const std::vector<Step>& steps() const override { return steps_; }
  const std::vector<Hazard>& hazards() const override { return hazards_; }

  Status run(const Bindings& bindings, void* workspace, const Queue& queue) const override {
    TW_RETURN_IF_BAD(check_queue(queue));
    for (size_t i = 0; i < steps_.size(); ++i) {
      TW_RETURN_IF_BAD(fill(i, workspace, queue));
      TW_RETURN_IF_BAD(with_pack(i, bindings, workspace, "run", [&](RawDescriptor pack) {
        return library().backend_execute(static_cast<Handle>(queue.cudnn), program_->segments[i].plan.raw(), pack);
      }));
    }
    return {};
  }

  Status populate_cuda_graph(void* graph, const Bindings& bindings, void* workspace,
                             const Queue& queue) const override {
    TW_RETURN_IF_BAD(check_queue(queue));
    if (!native()) return capture_into(graph, *this, bindings, workspace, queue);
    return on_graph(library().backend_populate_cuda_graph, "make a CUDA graph of", graph, bindings, workspace, queue);
  }
  Status update_cuda_graph(void* graph, const Bindings& bindings, void* workspace, const Queue& queue) const override {
    TW_RETURN_IF_BAD(check_queue(queue));
    if (native())
      return on_graph(library().backend_update_cuda_graph, "update the CUDA graph of", graph, bindings, workspace,
                      queue);
    return capture_again(graph, *this, bindings, workspace, queue);
  }

  Result<std::vector<uint8_t>> saved() const override { return to_bytes(*program_); }

 private:
  Status check_queue(const Queue& queue) const {
    if (queue.cudnn) return {};
    return error(error_code_t::HANDLE_ERROR, "a plan of cuDNN runs on a handle of an NVIDIA GPU; this handle is of {}",
                 queue.ordinal < 0 ? std::string("the CPU") : fmt::format("GPU {} and has no cuDNN", queue.ordinal));
  }

  void* address(const Lowered& l, const Place& p, const Bindings& bindings, char* workspace) const {
    switch (p.where) {
      case Place::Constant: return const_cast<uint8_t*>(l.constants[size_t(p.offset)].data());
      case Place::Workspace: return workspace + program_->scratch + p.offset;
      default: break;
    }
    const int64_t between = program_->intermediate[size_t(p.tensor)];
    char* base = between >= 0 ? workspace + between : static_cast<char*>(bindings[size_t(p.tensor)]);
    return base ? base + p.offset : nullptr;
  }

  // Calls with a finalized variant pack of these pointers.
  template <class Call>
  Status with_pack(size_t i, const Bindings& bindings, void* workspace, const char* what, Call&& call) const {
    const Lowered& l = *program_->segments[i].segment.lowered;
    char* const base = static_cast<char*>(workspace);
    std::unique_ptr<Pack> pack = packs_[i].take();
    pack->wanted.clear();
    pack->wanted.push_back(base ? base + program_->scratch + l.workspace_bytes : nullptr);
    for (const Bound& b : l.bound) pack->wanted.push_back(address(l, b.place, bindings, base));
    if (pack->wanted != pack->pointers) {
      pack->descriptor = Descriptor(Kind::VARIANT_PACK);
      pack->descriptor.pointer(Attr::VARIANT_PACK_WORKSPACE, pack->wanted[0])
          .pointers(Attr::VARIANT_PACK_DATA_POINTERS, pack->wanted.data() + 1, int64_t(uids_[i].size()))
          .integers(Attr::VARIANT_PACK_UNIQUE_IDS, uids_[i]);
      TW_RETURN_IF_BAD(pack->descriptor.finalize());
      pack->pointers = pack->wanted;
    }
    const StatusCode code = call(pack->descriptor.raw());
    packs_[i].give(std::move(pack));
    return code == kSuccess ? Status{} : launch_failure(what, steps_[i].name, code);
  }

  Status fill(size_t i, void* workspace, const Queue& queue) const {
    for (const WorkspaceFill& f : program_->segments[i].segment.lowered->fills) {
      const auto at = reinterpret_cast<cuda::CUdeviceptr>(static_cast<char*>(workspace) + program_->scratch + f.offset);
      const auto stream = static_cast<cuda::CUstream>(queue.stream);
      TW_RETURN_IF_BAD(
          f.data.empty()
              ? cuda::check(cuda::driver().memset_d8_async(at, 0, size_t(f.bytes), stream), "cuMemsetD8Async")
              : cuda::check(cuda::driver().memcpy_htod_async(at, f.data.data(), f.data.size(), stream),
                            "cuMemcpyHtoDAsync"));
    }
    return {};
  }

  using OnGraph = StatusCode (*)(Handle, RawDescriptor plan, RawDescriptor pack, CudaGraph);
  // Whether cuDNN makes the nodes itself; else an execution is captured into one node.
  bool native() const {
    return steps_.size() == 1 && program_->segments[0].segment.lowered->fills.empty() &&
           library().backend_populate_cuda_graph && library().backend_update_cuda_graph &&
           makes_cuda_graphs(program_->segments[0].plan);
  }
  Status on_graph(OnGraph call, const char* what, void* graph, const Bindings& bindings, void* workspace,
                  const Queue& queue) const {
    return with_pack(0, bindings, workspace, what, [&](RawDescriptor pack) {
      return call(static_cast<Handle>(queue.cudnn), program_->segments[0].plan.raw(), pack,
                  static_cast<CudaGraph>(graph));
    });
  }

  std::shared_ptr<const Program> program_;
  std::vector<Step> steps_;
  std::vector<std::vector<int64_t>> uids_;  // by segment
  std::vector<Hazard> hazards_;
  mutable std::vector<Packs> packs_;  // by segment
};

}  // namespace

std::unique_ptr<Executable> make_executable(std::shared_ptr<const Program> program) {
  return std::make_unique<PlanExecutable>(std::move(program));
}

}  // namespace tilewright::cudnn
