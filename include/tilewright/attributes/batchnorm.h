// Batch normalisation: statistics per channel (dim 1) over all other dims.
#pragma once

#include "tilewright/attributes/base.h"

namespace tilewright::graph {

class Genstats_attributes : public Attributes<Genstats_attributes> {};
class Batchnorm_inference_attributes : public Attributes<Batchnorm_inference_attributes> {};
class DBN_weight_attributes : public Attributes<DBN_weight_attributes> {};

template <class Self>
class Running_stats_attributes : public Attributes<Self> {
 public:
  // next = (1 - momentum) * previous + momentum * batch; the running variance takes the unbiased estimate.
  Self& set_previous_running_stats(TensorPtr mean, TensorPtr variance, TensorPtr momentum) {
    this->port("PREV_RUNNING_MEAN", std::move(mean)), this->port("PREV_RUNNING_VAR", std::move(variance));
    return this->port("MOMENTUM", std::move(momentum));
  }
};

template <class Self>
class Peer_stats {
 public:
  // Exchange buffers of several devices; one device accepts and ignores them.
  Self& set_peer_stats(const std::vector<TensorPtr>& v) { return peer_stats = v, static_cast<Self&>(*this); }
  std::vector<TensorPtr> peer_stats;
};

class BN_finalize_attributes : public Running_stats_attributes<BN_finalize_attributes> {};

class Batchnorm_attributes : public Running_stats_attributes<Batchnorm_attributes>,
                             public Peer_stats<Batchnorm_attributes> {
 public:
  Batchnorm_attributes& set_epsilon(TensorPtr v) { return port("EPSILON", std::move(v)); }
};

class Batchnorm_backward_attributes : public Attributes<Batchnorm_backward_attributes>,
                                      public Peer_stats<Batchnorm_backward_attributes> {
 public:
  Batchnorm_backward_attributes& set_saved_mean_and_inv_variance(TensorPtr mean, TensorPtr inv_variance) {
    return port("MEAN", std::move(mean)), port("INV_VARIANCE", std::move(inv_variance));
  }
};

}  // namespace tilewright::graph
