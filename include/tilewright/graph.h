// Graph: describe a computation, build it, choose among its plans, execute it.
//
//   validate -> build_operation_graph -> create_execution_plans -> check_support -> build_plans -> execute
//
// or build() for all but the last. Op methods only describe; shapes and types are inferred, and rules checked, by
// validate(), which also writes inferred dims, strides and types back into the tensors. Every call returns a status.
#pragma once

#include <array>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tilewright/attributes/batchnorm.h"
#include "tilewright/attributes/block_scale.h"
#include "tilewright/attributes/convolution.h"
#include "tilewright/attributes/data_movement.h"
#include "tilewright/attributes/matmul.h"
#include "tilewright/attributes/norm.h"
#include "tilewright/attributes/pointwise.h"
#include "tilewright/attributes/reduction.h"
#include "tilewright/attributes/resample.h"
#include "tilewright/attributes/rng.h"
#include "tilewright/attributes/sdpa.h"
#include "tilewright/attributes/softmax.h"
#include "tilewright/device.h"
#include "tilewright/device_properties.h"
#include "tilewright/json.h"
#include "tilewright/kernel_cache.h"
#include "tilewright/launch_list.h"
#include "tilewright/plan.h"

#pragma GCC visibility push(default)
namespace tilewright::graph {

class Graph {
  using T = TensorPtr;
  using TensorMap = std::unordered_map<TensorPtr, void*>;
  using UidMap = std::unordered_map<int64_t, void*>;
  using Shapes = std::vector<std::vector<int64_t>>;

 public:
  Graph();
  Graph(const Graph&);
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph);
  ~Graph();

  // --- properties -----------------------------------------------------------------------------------------------
  Graph& set_name(const std::string&);
  Graph& set_io_data_type(DataType_t);            // real tensors with no type
  Graph& set_intermediate_data_type(DataType_t);  // virtual tensors with no type
  Graph& set_compute_data_type(DataType_t);       // ops with no compute type
  Graph& set_dynamic_shape_enabled(bool);
  Graph& set_override_shape_enabled(bool);
  Graph& set_kernel_cache(std::shared_ptr<KernelCache>);
  Graph& set_device_properties(std::shared_ptr<const DeviceProperties>);
  Graph& set_sm_count(int32_t);
  Graph& set_sm_version(int32_t);
  // Verify mode: each execute() runs on guarded, poisoned copies of the outputs and the workspace, is compared with
  // the exact reference, and fails with GRAPH_EXECUTION_FAILED where it differs. TILEWRIGHT_VERIFY=1 does the same.
  Graph& set_verify_enabled(bool);

  // --- tensors --------------------------------------------------------------------------------------------------
  T tensor(const Tensor_attributes&);  // also a scalar: graph.tensor(0.5f)
  T tensor(const Tensor_attributes& scalar, ScalarType);
  T tensor_like(const T&, const std::string& name = std::string{});
  error_t query_tensor_attributes_of_uid(int64_t uid, Tensor_attributes&) const;

  // --- ops: outputs are virtual until set_output(true) ------------------------------------------------------------
  T pointwise(T a, Pointwise_attributes attr) { return add("pointwise", std::move(attr), {{"IN_0", a}})[0]; }
  T pointwise(T a, T b, Pointwise_attributes attr) {
    return add("pointwise", std::move(attr), {{"IN_0", a}, {"IN_1", b}})[0];
  }
  T pointwise(T a, T b, T c, Pointwise_attributes attr) {
    return add("pointwise", std::move(attr), {{"IN_0", a}, {"IN_1", b}, {"IN_2", c}})[0];
  }
  T reduction(T x, Reduction_attributes attr) { return add("reduction", std::move(attr), {{"X", x}})[0]; }
  T matmul(T a, T b, Matmul_attributes attr) { return add("matmul", std::move(attr), {{"A", a}, {"B", b}})[0]; }
  T conv_fprop(T x, T w, Conv_fprop_attributes attr) {
    return add("conv_fprop", std::move(attr), {{"X", x}, {"W", w}})[0];
  }
  T conv_dgrad(T dy, T w, Conv_dgrad_attributes attr) {
    return add("conv_dgrad", std::move(attr), {{"DY", dy}, {"W", w}})[0];
  }
  T conv_wgrad(T dy, T x, Conv_wgrad_attributes attr) {
    return add("conv_wgrad", std::move(attr), {{"DY", dy}, {"X", x}})[0];
  }
  std::array<T, 2> resample(T x, Resample_attributes attr) {  // {Y, Index}
    return pack<2>(add("resample", std::move(attr), {{"X", x}}));
  }
  T resample_backward(T dy, Resample_backward_attributes attr) {
    return add("resample_backward", std::move(attr), {{"DY", dy}})[0];
  }
  T reshape(T x, Reshape_attributes attr) { return add("reshape", std::move(attr), {{"X", x}})[0]; }
  T slice(T x, Slice_attributes attr) { return add("slice", std::move(attr), {{"X", x}})[0]; }
  T transpose(T x, Transpose_attributes attr) { return add("transpose", std::move(attr), {{"X", x}})[0]; }
  T concatenate(const std::vector<T>& x, Concatenate_attributes attr);
  T rng(T seed, T offset, Rng_attributes attr) {
    return add("rng", std::move(attr), {{"Seed", seed}, {"Offset", offset}})[0];
  }
  T softmax(T x, Softmax_attributes attr) { return add("softmax", std::move(attr), {{"X", x}})[0]; }
  std::array<T, 2> softmax_with_stats(T x, Softmax_attributes attr) {  // {Y, Stats}
    return pack<2>(add("softmax", attr.set_generate_stats(true), {{"X", x}}));
  }
  std::array<T, 2> genstats(T x, Genstats_attributes attr) {  // {SUM, SQ_SUM}
    return pack<2>(add("genstats", std::move(attr), {{"X", x}}));
  }
  // {EQ_SCALE, EQ_BIAS, MEAN, INV_VARIANCE, NEXT_RUNNING_MEAN, NEXT_RUNNING_VAR}
  std::array<T, 6> bn_finalize(T sum, T sq_sum, T scale, T bias, T epsilon, T accum_count,
                               BN_finalize_attributes attr) {
    return pack<6>(add("bn_finalize", std::move(attr),
                       {{"SUM", sum},
                        {"SQ_SUM", sq_sum},
                        {"SCALE", scale},
                        {"BIAS", bias},
                        {"EPSILON", epsilon},
                        {"ACCUM_COUNT", accum_count}}));
  }
  // {Y, MEAN, INV_VARIANCE, NEXT_RUNNING_MEAN, NEXT_RUNNING_VAR}; the last two null without running stats
  std::array<T, 5> batchnorm(T x, T scale, T bias, Batchnorm_attributes attr);
  T batchnorm_inference(T x, T mean, T inv_variance, T scale, T bias, Batchnorm_inference_attributes attr) {
    return add("batchnorm_inference", std::move(attr),
               {{"X", x}, {"MEAN", mean}, {"INV_VARIANCE", inv_variance}, {"SCALE", scale}, {"BIAS", bias}})[0];
  }
  std::array<T, 3> batchnorm_backward(T dy, T x, T scale, Batchnorm_backward_attributes attr);  // {DX, DSCALE, DBIAS}
  // {DSCALE, DBIAS, EQ_SCALE_DY, EQ_SCALE_X, EQ_BIAS}: DX = EQ_SCALE_DY * dy + EQ_SCALE_X * x + EQ_BIAS
  std::array<T, 5> dbn_weight(T dy, T x, T mean, T inv_variance, T scale, DBN_weight_attributes attr) {
    return pack<5>(add("dbn_weight", std::move(attr),
                       {{"DY", dy}, {"X", x}, {"MEAN", mean}, {"INV_VARIANCE", inv_variance}, {"SCALE", scale}}));
  }
  // {Y, MEAN, INV_VARIANCE}; the statistics null unless TRAINING
  std::array<T, 3> layernorm(T x, T scale, T bias, Layernorm_attributes attr) {
    return pack<3>(add("layernorm", std::move(attr), {{"X", x}, {"SCALE", scale}, {"BIAS", bias}}));
  }
  std::array<T, 3> adalayernorm(T x, T scale, T bias, AdaLayernorm_attributes attr) {
    return pack<3>(add("adalayernorm", std::move(attr), {{"X", x}, {"SCALE", scale}, {"BIAS", bias}}));
  }
  std::array<T, 3> instancenorm(T x, T scale, T bias, Instancenorm_attributes attr) {
    return pack<3>(add("instancenorm", std::move(attr), {{"X", x}, {"SCALE", scale}, {"BIAS", bias}}));
  }
  std::array<T, 2> rmsnorm(T x, T scale, Rmsnorm_attributes attr) {  // {Y, INV_VARIANCE}
    return pack<2>(add("rmsnorm", std::move(attr), {{"X", x}, {"SCALE", scale}}));
  }
  // {DX, DSCALE, DBIAS}
  std::array<T, 3> layernorm_backward(T dy, T x, T scale, Layernorm_backward_attributes attr) {
    return pack<3>(add("layernorm_backward", std::move(attr), {{"DY", dy}, {"X", x}, {"SCALE", scale}}));
  }
  std::array<T, 3> adalayernorm_backward(T dy, T x, T scale, AdaLayernorm_backward_attributes attr) {
    return pack<3>(add("adalayernorm_backward", std::move(attr), {{"DY", dy}, {"X", x}, {"SCALE", scale}}));
  }
  std::array<T, 3> instancenorm_backward(T dy, T x, T scale, Instancenorm_backward_attributes attr) {
    return pack<3>(add("instancenorm_backward", std::move(attr), {{"DY", dy}, {"X", x}, {"SCALE", scale}}));
  }
  std::array<T, 3> rmsnorm_backward(T dy, T x, T scale, T inv_variance, Rmsnorm_backward_attributes attr) {
    return pack<3>(add("rmsnorm_backward", std::move(attr),
                       {{"DY", dy}, {"X", x}, {"SCALE", scale}, {"INV_VARIANCE", inv_variance}}));
  }
  std::array<T, 2> sdpa(T q, T k, T v, SDPA_attributes attr);                                         // {O, Stats}
  std::array<T, 3> sdpa_backward(T q, T k, T v, T o, T d_o, T stats, SDPA_backward_attributes attr);  // {dQ, dK, dV}
  std::array<T, 2> scaled_dot_product_flash_attention(T q, T k, T v, SDPA_attributes attr) {
    return sdpa(q, k, v, std::move(attr));
  }
  std::array<T, 3> scaled_dot_product_flash_attention_backward(T q, T k, T v, T o, T d_o, T stats,
                                                               SDPA_backward_attributes attr) {
    return sdpa_backward(q, k, v, o, d_o, stats, std::move(attr));
  }
  // Ops of the vocabulary that this version cannot run yet: they can be described, and validate() says so.
  std::array<T, 4> sdpa_fp8(T q, T k, T v, T descale_q, T descale_k, T descale_v, T descale_s, T scale_s, T scale_o,
                            SDPA_fp8_attributes attr);
  std::array<T, 3> sdpa_fp8(T q, T k, T v, T descale_q, T descale_k, T descale_v, SDPA_fp8_attributes attr);
  std::array<T, 7> sdpa_fp8_backward(T q, T k, T v, T o, T d_o, T stats, T descale_q, T descale_k, T descale_v,
                                     T descale_o, T descale_do, T descale_s, T descale_dp, T scale_s, T scale_dq,
                                     T scale_dk, T scale_dv, T scale_dp, SDPA_fp8_backward_attributes attr);
  std::array<T, 6> sdpa_fp8_backward(T q, T q_t, T k, T k_t, T v, T o_f16, T do_f16, T d_o, T do_t, T stats,
                                     T descale_q, T descale_q_t, T descale_k, T descale_k_t, T descale_v, T descale_do,
                                     T descale_do_t, SDPA_fp8_backward_attributes attr);
  std::array<T, 2> block_scale_quantize(T x, Block_scale_quantize_attributes attr) {
    return pack<2>(add("block_scale_quantize", std::move(attr), {{"X", x}}));
  }
  T block_scale_dequantize(T x, T scale, Block_scale_dequantize_attributes attr) {
    return add("block_scale_dequantize", std::move(attr), {{"X", x}, {"scale", scale}})[0];
  }
  T moe_grouped_matmul(T token, T weight, T first_token_offset, T token_index, T token_ks,
                       Moe_grouped_matmul_attributes attr) {
    return add("moe_grouped_matmul", std::move(attr),
               {{"Token", token},
                {"Weight", weight},
                {"FirstTokenOffset", first_token_offset},
                {"TokenIndex", token_index},
                {"TokenKs", token_ks}})[0];
  }
  T moe_grouped_matmul_bwd(T doutput, T token, T first_token_offset, Moe_grouped_matmul_bwd_attributes attr) {
    return add("moe_grouped_matmul_bwd", std::move(attr),
               {{"DOutput", doutput}, {"Token", token}, {"FirstTokenOffset", first_token_offset}})[0];
  }
  // Any op by its name with ports by name: what JSON, the C API and Python use. One entry per declared output, null
  // where the attributes do not ask for it.
  std::vector<T> add(const std::string& op, Attributes_base attr, const std::vector<std::pair<std::string, T>>& inputs);

  // --- build ----------------------------------------------------------------------------------------------------
  error_t validate();
  error_t build_operation_graph();
  error_t build_operation_graph(Handle);
  error_t create_execution_plans(const std::vector<HeurMode_t>&);
  error_t create_execution_plan(int64_t engine_id, const std::unordered_map<KnobType_t, int64_t>& knobs);
  error_t check_support();
  error_t check_support(Handle) { return check_support(); }
  error_t build_plans(BuildPlanPolicy_t = BuildPlanPolicy_t::HEURISTICS_CHOICE, bool multithreaded = false);
  error_t build_plans(Handle, BuildPlanPolicy_t policy = BuildPlanPolicy_t::HEURISTICS_CHOICE, bool mt = false) {
    return build_plans(policy, mt);
  }
  error_t build_plan_at_index(int64_t index);
  error_t build_plan_at_index(Handle, int64_t index) { return build_plan_at_index(index); }
  error_t build(Handle, const std::vector<HeurMode_t>&, BuildPlanPolicy_t = BuildPlanPolicy_t::HEURISTICS_CHOICE,
                bool multithreaded = false);
  error_t build(const std::vector<HeurMode_t>& modes, BuildPlanPolicy_t policy = BuildPlanPolicy_t::HEURISTICS_CHOICE,
                bool multithreaded = false) {
    return build(Handle{}, modes, policy, multithreaded);
  }

  // --- the plan list ----------------------------------------------------------------------------------------------
  // Rows never move and never vanish: what cannot serve, or was filtered out, stays with its reasons.
  std::vector<PlanInfo> plans() const;
  std::string explain() const;  // regions, and for each engine yes or every reason why not
  int64_t get_execution_plan_count() const;
  error_t get_engine_count(int64_t&);
  error_t get_knobs_for_engine(int64_t engine_id, std::vector<Knob>&);
  error_t get_plan_name(std::string&) const;
  error_t get_plan_name_at_index(int64_t index, std::string&) const;
  error_t get_workspace_size(int64_t& bytes) const;
  int64_t get_workspace_size() const;
  error_t get_workspace_size_plan_at_index(int64_t index, int64_t& bytes) const;
  int64_t get_workspace_size_plan_at_index(int64_t index) const;
  int64_t get_autotune_workspace_size() const;
  error_t get_behavior_notes(std::vector<BehaviorNote_t>&) const;
  error_t get_behavior_notes_for_plan_at_index(int64_t index, std::vector<BehaviorNote_t>&) const;
  Graph& deselect_workspace_greater_than(int64_t bytes);
  Graph& deselect_shared_mem_greater_than(int64_t bytes);
  Graph& deselect_engines(const std::vector<std::string>& name_fragments);
  Graph& select_behavior_notes(const std::vector<BehaviorNote_t>&);
  Graph& deselect_behavior_notes(const std::vector<BehaviorNote_t>&);
  Graph& select_numeric_notes(const std::vector<NumericalNote_t>&);
  Graph& deselect_numeric_notes(const std::vector<NumericalNote_t>&);

  // --- execute ----------------------------------------------------------------------------------------------------
  error_t execute(Handle, TensorMap&, void* workspace) const;
  error_t execute(Handle, UidMap&, void* workspace) const;
  error_t execute(Handle, UidMap&, void* workspace, const std::vector<int64_t>& override_uids,
                  const Shapes& override_shapes, const Shapes& override_strides) const;
  error_t execute(Handle, void** pointers_by_ascending_uid, int count, void* workspace) const;
  error_t execute_plan_at_index(Handle, TensorMap&, void* workspace, int64_t index) const;
  error_t execute_plan_at_index(Handle, UidMap&, void* workspace, int64_t index,
                                const std::vector<int64_t>& override_uids = {}, const Shapes& override_shapes = {},
                                const Shapes& override_strides = {}) const;
  error_t execute_plan_at_index(Handle, void** pointers_by_ascending_uid, int count, void* workspace, int64_t index,
                                const std::vector<int64_t>& override_uids = {}, const Shapes& override_shapes = {},
                                const Shapes& override_strides = {}) const;
  std::vector<int64_t> get_variant_pack_uids_sorted();
  error_t prepare_variant_pack_template();
  // Times every built plan and makes the fastest one the chosen plan; rows keep their places.
  error_t autotune(Handle, UidMap&, void* workspace, void* user_impl = nullptr);
  error_t autotune(Handle, TensorMap&, void* workspace, void* user_impl = nullptr);
  error_t warmup(Handle);
  // The chosen plan's launches with these pointers bound; update rebinds a recorded list.
  error_t record(Handle, UidMap&, void* workspace, LaunchList&) const;
  error_t record(Handle, TensorMap&, void* workspace, LaunchList&) const;
  error_t update(Handle, UidMap&, void* workspace, LaunchList&) const;
  error_t populate_cuda_graph(Handle, UidMap&, void* workspace, CUgraph_st*);
  error_t populate_cuda_graph(Handle, TensorMap&, void* workspace, CUgraph_st*);
  error_t update_cuda_graph(Handle, UidMap&, void* workspace, CUgraph_st*);
  error_t update_cuda_graph(Handle, TensorMap&, void* workspace, CUgraph_st*);

  // --- text, keys, files --------------------------------------------------------------------------------------------
  size_t key();  // of the content: names do not enter; with dynamic shapes, neither do dims and strides
  std::string print() const;
  operator Json() const;
  void serialize(Json&) const;
  error_t serialize(std::vector<uint8_t>&) const;  // the graph and the chosen plan
  error_t deserialize(const Json&);                // the description
  error_t deserialize(Handle, const std::vector<uint8_t>&);

  struct Impl;
  Impl& impl() { return *impl_; }
  const Impl& impl() const { return *impl_; }

 private:
  template <size_t N>
  static std::array<T, N> pack(const std::vector<T>& v) {
    std::array<T, N> r;
    for (size_t i = 0; i < N && i < v.size(); ++i) r[i] = v[i];
    return r;
  }
  std::unique_ptr<Impl> impl_;
};

std::ostream& operator<<(std::ostream&, const Graph&);

}  // namespace tilewright::graph
#pragma GCC visibility pop
