#include "engines/cpu/lane_program.h"

#include <algorithm>

#include "base/numeric_types.h"

namespace tilewright::cpu {

using fuse::PwOp;
using Kind = LaneStepKind;
using Lanes = LaneStep::Lanes;

namespace {

constexpr size_t kMaxPointers = 256;

bool is_arithmetic(const BlockOp<float>& op) {
  return op.op == PwOp::Pointwise && op.arg[2] < 0 &&
         (op.mode == PointwiseMode_t::ADD || op.mode == PointwiseMode_t::SUB || op.mode == PointwiseMode_t::MUL);
}
// The three kinds that a 32-bit step has for the narrower types.
Kind kind_of(Kind float_kind, DataType_t type) {
  return Kind(int(float_kind) + (type == DataType_t::FLOAT ? 0 : type == DataType_t::HALF ? 1 : 2));
}
bool has_steps(DataType_t type) {
  return type == DataType_t::FLOAT ||
         ((type == DataType_t::HALF || type == DataType_t::BFLOAT16) && lane_steps_convert());
}

}  // namespace

class LaneProgram::Maker {
 public:
  Maker(LaneProgram& p, BlockOps<float>& ops, const What& what)
      : p_(p), ops_(ops), what_(what), read_(what.read), uses_(what.one.size()), place_(what.one.size()) {}

  bool make() {
    if (what_.totals.size() > size_t(kMaxTotals)) return false;
    for (const BlockOp<float>& op : ops_) {
      if (op.op != PwOp::Load && op.op != PwOp::Index && op.op != PwOp::Pointwise && op.op != PwOp::Store) return false;
      if (op.op == PwOp::Store && !is_step(op)) {
        if (what_.one[size_t(op.arg[0])]) p_.spread_.push_back(op.arg[0]);
        else read_[size_t(op.arg[0])] = true;
        continue;
      }
      for (int a : op.arg) use(a);
    }
    for (const auto* list : {&what_.totals, &what_.sums})
      for (const Sum& s : *list) {
        if (is_one(s.arg) || (s.factor >= 0 && is_one(s.factor))) return false;
        use(s.arg), use(s.factor);
      }
    pending_[0].assign(what_.totals.size(), true), pending_[1].assign(what_.sums.size(), true);
    for (now_ = 0; now_ < ops_.size(); ++now_)
      if (ops_[now_].op != PwOp::Store) take(ops_[now_]);
    // Every load of a block comes before the stores to it.
    for (int list : {0, 1})
      for (size_t k = 0; k < pending_[list].size(); ++k)
        if (pending_[list][k]) to_hand(sums(list)[k].arg), fold(list, k, sums(list)[k].arg);
    const bool streams = std::any_of(ops_.begin(), ops_.end(), [](const BlockOp<float>& op) { return op.stream; });
    for (; !streams && fetched_ < what_.fetched.size(); ++fetched_) fetch(fetched_);
    for (now_ = 0; now_ < ops_.size(); ++now_)
      if (ops_[now_].op == PwOp::Store) store(ops_[now_]);
    p_.totals_ = int(what_.totals.size());
    for (const Sum& s : what_.sums) p_.sums_access_.push_back(s.access);
    return !p_.steps_.empty() && p_.pointers_.size() <= kMaxPointers;
  }

 private:
  // Where a value is: lanes or, of size 0 and `one`, a number.
  struct Place {
    Lanes lanes;
    bool one = false;
    DataType_t type = DataType_t::FLOAT;
    bool known() const { return lanes.pointer >= 0; }
  };

  void use(int id) {
    if (id >= 0) ++uses_[size_t(id)];
  }
  const std::vector<Sum>& sums(int list) const { return list == 0 ? what_.totals : what_.sums; }
  bool is_step(const BlockOp<float>& op) const {
    const int64_t stride = what_.lane_stride[op.access];
    if (op.op == PwOp::Load)
      return (stride == 1 && has_steps(op.type)) || (stride == 0 && op.type == DataType_t::FLOAT);
    return op.op == PwOp::Store && stride == 1 && has_steps(op.type) && what_.plain[size_t(op.access)];
  }

  LaneStep& step(Kind kind) {
    p_.steps_.push_back({});
    p_.steps_.back().kind = kind;
    return p_.steps_.back();
  }
  Lanes ahead(size_t k) { return {pointer(Where::Ahead, int(k), 0), what_.fetched[k]}; }
  void fetch(size_t k) {
    LaneStep& s = step(Kind::Fetch);
    s.lanes = ahead(k);
    s.fetched = what_.fetched_vectors;
  }
  int pointer(Where where, int index, int size, int id = -1) {
    p_.pointers_.push_back({where, index, size, id});
    return int(p_.pointers_.size()) - 1;
  }

  Place& place(int id) {
    Place& place = place_[size_t(id)];
    if (!place.known()) {  // computed before the block
      place.one = what_.one[size_t(id)];
      place.lanes = {pointer(Where::Value, id, 0), place.one ? 0 : 4};
    }
    return place;
  }
  bool available(int id) const {
    return hand_ == id || place_[size_t(id)].known() ||
           std::none_of(ops_.begin(), ops_.end(), [&](const BlockOp<float>& o) { return o.id == id; });
  }
  void to_hand(int id) {
    if (hand_ == id) return;
    const Place from = place(id);
    step(from.one ? Kind::Spread : kind_of(Kind::Load, from.type)).lanes = from.lanes;
    hand_ = id;
  }
  void save(Where where, int index, int id) {
    const Lanes to = {pointer(where, index, 4, id), where == Where::Local ? 0 : 4};
    step(Kind::Store).lanes = to;
    place_[size_t(id)] = {to};
  }

  void fold(int list, size_t k, int id) {
    const Sum& s = sums(list)[k];
    const int other = s.factor < 0 ? -1 : s.arg == id ? s.factor : s.arg;
    LaneStep now;
    if (list == 0) {
      now.kind = other < 0 ? Kind::Sum : other == id ? Kind::SumSquares : Kind::SumProducts;
      now.total = int(k);
      if (other >= 0 && other != id) now.lanes = place(other).lanes;
    } else {
      now.kind = other < 0 ? Kind::AddTo : Kind::AddProductTo;
      now.lanes = {pointer(Where::Sums, int(k), 4), 4};
      if (other >= 0) now.second = place(other).lanes;
    }
    p_.steps_.push_back(now);
    pending_[list][k] = false;
    --uses_[size_t(s.arg)];
    if (s.factor >= 0) --uses_[size_t(s.factor)];
  }

  // A value has just come to hand.
  void came(const BlockOp<float>& op) {
    hand_ = op.id;
    const size_t id = size_t(op.id);
    for (int list : {0, 1})
      for (size_t k = 0; k < pending_[list].size(); ++k) {
        const Sum& s = sums(list)[k];
        if (!pending_[list][k] || (s.arg != op.id && s.factor != op.id)) continue;
        const int other = s.factor < 0 ? -1 : s.arg == op.id ? s.factor : s.arg;
        if (list == 1 && other == op.id) continue;  // needs it as lanes
        if (other < 0 || other == op.id || (available(other) && place_[size_t(other)].type == DataType_t::FLOAT))
          fold(list, k, op.id);
      }
    if (op.kept >= 0) save(Where::Row, op.kept, op.id);
    if (read_[id]) save(Where::Buffer, op.id, op.id), ops_[now_].keep = true;
    if (uses_[id] > 0 && !place_[id].known() && !(uses_[id] == 1 && next_takes(op.id)))
      save(Where::Local, p_.locals_++, op.id);
  }

  // Whether the next operation takes the value from the hand.
  bool next_takes(int id) const {
    size_t k = now_ + 1;
    while (k < ops_.size() && ops_[k].op == PwOp::Load && is_lazy(ops_[k])) ++k;
    if (k == ops_.size() || ops_[k].op != PwOp::Pointwise) return false;
    const BlockOp<float>& op = ops_[k];
    if (!is_arithmetic(op))
      for (int a : op.arg)
        if (a >= 0 && is_one(a)) return false;
    return std::count(op.arg, op.arg + 3, id) == 1;
  }
  bool is_one(int id) const {
    if (what_.one[size_t(id)] || place_[size_t(id)].one) return true;
    for (const BlockOp<float>& op : ops_)
      if (op.id == id && op.op == PwOp::Load && is_step(op) && is_lazy(op)) return what_.lane_stride[op.access] == 0;
    return false;
  }
  // A load that the step which needs it makes.
  bool is_lazy(const BlockOp<float>& op) const {
    return is_step(op) && op.type == DataType_t::FLOAT && op.kept < 0 && !op.copy && !read_[size_t(op.id)];
  }

  void take(BlockOp<float>& op) {
    if (op.op == PwOp::Pointwise) return compute(op);
    Place& at = place_[size_t(op.id)];
    if (op.op == PwOp::Load && is_step(op)) {
      const int64_t stride = what_.lane_stride[op.access];
      const int size = element_bits(op.type) / 8;
      Place memory;
      memory.lanes = {pointer(Where::Memory, op.access, size), stride == 0 ? 0 : size};
      memory.one = stride == 0;
      memory.type = op.type;
      if (is_lazy(op)) {
        at = memory;
        return;
      }
      step(memory.one ? Kind::Spread : kind_of(Kind::Load, op.type)).lanes = memory.lanes;
      return came(op);
    }
    op.keep = true;
    p_.before_at_.push_back(int(now_));
    at.lanes = {pointer(Where::Value, op.id, 0), 4};
  }

  void compute(BlockOp<float>& op) {
    for (int a : op.arg)
      if (a >= 0) --uses_[size_t(a)];
    if (!is_arithmetic(op)) {
      call(op);
    } else {
      int first = op.arg[0], second = op.arg[1];
      const bool turned = first != second && hand_ != first && (hand_ == second || (is_one(first) && !is_one(second)));
      if (turned) std::swap(first, second);
      to_hand(first);
      const bool square = first == second && op.mode == PointwiseMode_t::MUL;
      const Place with = square ? Place() : lanes_of(second);
      LaneStep& s = step(square                            ? Kind::Square
                         : op.mode == PointwiseMode_t::ADD ? (with.one ? Kind::AddOne : Kind::Add)
                         : op.mode == PointwiseMode_t::MUL ? (with.one ? Kind::MultiplyOne : Kind::Multiply)
                         : turned                          ? (with.one ? Kind::SubtractFromOne : Kind::SubtractFrom)
                                                           : (with.one ? Kind::SubtractOne : Kind::Subtract));
      s.lanes = with.lanes;
    }
    came(op);
  }
  // As lanes of float in memory, or one number.
  Place lanes_of(int id) {
    if (hand_ == id && !place_[size_t(id)].known()) save(Where::Local, p_.locals_++, id);
    return place(id);
  }

  void call(BlockOp<float>& op) {
    LaneStep s;
    s.kind = Kind::Call;
    s.function = op.function;
    s.params = op.params;
    Lanes* const to[3] = {&s.lanes, &s.second, &s.third};
    for (int k = 0; k < 3; ++k)
      if (op.arg[k] >= 0 && is_one(op.arg[k]) && !(hand_ == op.arg[k])) {
        to_hand(op.arg[k]);
        const Lanes lanes = {pointer(Where::Local, p_.locals_++, 4), 0};
        step(Kind::Store).lanes = lanes;
        *to[k] = lanes;
        hand_ = -1;
      }
    for (int k = 0; k < 3; ++k)  // what is in hand needs no place
      if (op.arg[k] >= 0 && to[k]->pointer < 0 && hand_ != op.arg[k]) *to[k] = place(op.arg[k]).lanes;
    p_.steps_.push_back(s);
  }

  void store(const BlockOp<float>& op) {
    if (!is_step(op)) {
      p_.after_at_.push_back(int(now_));
      return;
    }
    to_hand(op.arg[0]);
    const int size = element_bits(op.type) / 8;
    LaneStep& s = step(kind_of(op.stream ? Kind::Stream : Kind::Store, op.type));
    s.lanes = {pointer(Where::Memory, op.access, size), size};
    for (Lanes* beside : {&s.second, &s.third})
      if (op.stream && fetched_ < what_.fetched.size()) *beside = ahead(fetched_++);
    s.fetched = what_.fetched_vectors;
  }

  LaneProgram& p_;
  BlockOps<float>& ops_;
  const What& what_;
  std::vector<bool> read_;
  std::vector<int> uses_;
  std::vector<Place> place_;
  std::vector<bool> pending_[2];
  int hand_ = -1;
  size_t now_ = 0, fetched_ = 0;
};

bool LaneProgram::make(BlockOps<float>& ops, const What& what) {
  LaneProgram made;
  if (!Maker(made, ops, what).make()) return false;
  *this = std::move(made);
  return true;
}

bool LaneProgram::calls_functions() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const LaneStep& s) { return s.kind == Kind::Call; });
}

bool LaneProgram::needs_no_buffers() const {
  return before_at_.empty() && after_at_.empty() && spread_.empty() &&
         std::none_of(pointers_.begin(), pointers_.end(), [](const Pointer& p) { return p.where == Where::Buffer; });
}

void LaneProgram::finish(const BlockOps<float>& ops) {
  for (int k : before_at_) before_.push_back(ops[size_t(k)]);
  for (int k : after_at_) after_.push_back(ops[size_t(k)]);
  for (const BlockOp<float>& op : ops) {
    if (slot_.size() <= size_t(op.id)) slot_.resize(size_t(op.id) + 1, 0);
    slot_[size_t(op.id)] = op.slot;
  }
}

void LaneProgram::run(Frame<float>& f, const Run& r) const {
  run_ops(before_, f);
  char* at[kMaxPointers];
  const LaneStepList steps = list(f, r, at);
  run_lane_steps(&steps, 1, f.n);
  run_ops(after_, f);
}

void LaneProgram::run_both(const LaneProgram& a, Frame<float>& f, const Run& r, const LaneProgram& b, Frame<float>& g,
                           const Run& s) {
  char *at[kMaxPointers], *beside[kMaxPointers];
  const LaneStepList lists[] = {a.list(f, r, at), b.list(g, s, beside)};
  run_lane_steps(lists, 2, f.n);
}

LaneStepList LaneProgram::list(Frame<float>& f, const Run& r, char** at) const {
  const auto bytes = [](const void* p) { return const_cast<char*>(static_cast<const char*>(p)); };
  for (size_t k = 0; k < pointers_.size(); ++k) {
    const Pointer& p = pointers_[k];
    switch (p.where) {
      case Where::Value: at[k] = bytes(f.value[p.index]); break;
      case Where::Memory: at[k] = static_cast<char*>(f.memory[p.index]) + f.offset[p.index] * p.size; break;
      case Where::Local: at[k] = bytes(r.local + p.index * kStepLanes); break;
      case Where::Row: at[k] = bytes(f.rows + (int64_t(p.index) * f.row_steps + f.step) * f.pitch); break;
      case Where::Buffer: at[k] = bytes(f.buffers + int64_t(slot_[size_t(p.index)]) * f.pitch); break;
      case Where::Sums: at[k] = bytes(r.sums[p.index] + f.offset[sums_access_[size_t(p.index)]]); break;
      case Where::Ahead: at[k] = bytes(r.ahead[p.index]); break;
    }
    if (p.where == Where::Buffer || p.where == Where::Row) f.value[p.id] = reinterpret_cast<const float*>(at[k]);
  }
  return {steps_.data(), int64_t(steps_.size()), at, r.totals, totals_};
}

}  // namespace tilewright::cpu
