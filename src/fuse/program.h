// The pointwise program: what a region computes at one point of its iteration domain, as a list of instructions in SSA
// form. One form for every reader: the CPU engine runs it a block of lanes at a time, a GPU generator prints it as
// code, a person reads its text. Which dims a value depends on is computed here, so that each reader can tell what is
// worth computing once, once per row, or once per element.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ops/pointwise_math.h"

namespace tilewright::fuse {

using DimMask = uint32_t;  // bit d: domain dim d
constexpr int kMaxRank = 12;

enum class PwOp : uint8_t {
  Load,       // an element of a tensor, through an access
  Scalar,     // a by-value tensor, read once per execute
  Const,      // a number
  In,         // input k that the region's anchor makes: the accumulator of a contraction
  Index,      // an index along the domain, through an access without a tensor
  Pointwise,  // a mode of pw_ops.def on up to three values
  Cast,       // rounded to a type and back: integer types, whose readers see the rounded value
  Reduce,     // over the domain's inner dims; the result depends on the outer dims only
  Store,      // a value to a tensor, through an access
};

struct Instr {
  PwOp op = PwOp::Const;
  std::array<int, 3> arg = {-1, -1, -1};  // positions of earlier instructions
  PointwiseMode_t mode = PointwiseMode_t::NOT_SET;
  PwParams params;
  ReductionMode_t reduce = ReductionMode_t::NOT_SET;
  DataType_t type = DataType_t::FLOAT;  // Cast: the type; else that of the graph's tensor, for readers
  int access = -1;                      // Load, Store, Index
  double value = 0;                     // Const
  ir::TensorId tensor = ir::kNone;      // Scalar: which; else the graph's tensor that this is the value of
  ir::NodeId origin = -1;               // the node of the graph that it came from
  DimMask dims = 0;                     // the domain dims that the value depends on
  int depth = 0;                        // reductions that lie before it on the longest path
};

// The element of a tensor that belongs to a point of the domain: offset + sum of stride * index. An index along the
// domain (no tensor) is written the same way.
struct Access {
  ir::TensorId tensor = ir::kNone;
  DataType_t type = DataType_t::FLOAT;  // storage type
  Dims stride;                          // per domain dim; 0: the same element all along
  int64_t offset = 0;                   // elements
};

struct PwProgram {
  Dims domain;
  DimMask inner = 0;  // the dims that Reduce reduces
  std::vector<Instr> code;
  std::vector<Access> access;
  int result = -1;  // of programs that make a value for their anchor instead of storing: which instruction

  int depth() const;          // reductions on the longest path
  bool needs_double() const;  // a type that float does not hold exactly
  int64_t inner_size() const;
};

// Appends and fills what follows from the arguments: dims, depth.
int append(PwProgram&, Instr);

// One instruction per line: `%4 = MUL %1 %3          ; "scale"`.
std::string program_text(const PwProgram&, const ir::Graph&);

// A reduction as a fold: where it starts, how an element and a partial result join it, how it ends.
double reduction_start(ReductionMode_t);
bool reduction_is_sum(ReductionMode_t);
double reduction_element(ReductionMode_t, double x);  // what is folded: |x|, x * x, ...
double reduction_join(ReductionMode_t, double a, double b);
double reduction_finish(ReductionMode_t, double total, int64_t count);

// Runs a program point by point in double: slow and plain, to test the builder and the engines against.
using ElementIo = std::function<void*(ir::TensorId)>;
// `visit` sees every point with the values of all instructions, once they are final.
using Visit = std::function<void(const int64_t* index, const std::vector<double>& values)>;
void walk(const PwProgram&, const ElementIo& memory, const std::function<double(const int64_t* index)>& in = {},
          const Visit& visit = {});

}  // namespace tilewright::fuse
