// The vocabulary of the rows, out of NVIDIA's front end.
#pragma once

#include <cudnn_frontend.h>

namespace tilewright {

namespace graph = cudnn_frontend::graph;
using cudnn_frontend::DataType_t;
using cudnn_frontend::HeurMode_t;
using cudnn_frontend::NormFwdPhase_t;
using cudnn_frontend::NumericalNote_t;
using cudnn_frontend::PointwiseMode_t;
using cudnn_frontend::ReductionMode_t;

}  // namespace tilewright
