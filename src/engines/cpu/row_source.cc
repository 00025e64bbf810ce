#include "engines/cpu/row_source.h"

#include <algorithm>

#include "base/thread_pool.h"

namespace tilewright::cpu {

template <class T>
bool RowSource<T>::prepare(const Problem& problem, const fuse::PwProgram& program, int mr) {
  mr_ = mr;
  if (!walk_.prepare(problem, 0, 'm', 'k', program)) return false;
  if constexpr (std::is_same_v<T, Bfloat16Bits>)  // pairs along the sums
    if (walk_.type() != DataType_t::BFLOAT16 || walk_.step() != 1 || walk_.length() % 2 != 0) return false;
  if constexpr (!std::is_same_v<T, Bfloat16Bits>) plan_copy(problem, program);
  zeros_.assign(size_t(walk_.length()), T(0));
  for (int64_t s = 0; s < walk_.segments(); ++s) offset_.push_back(walk_.segment_offset(s));
  if (walk_.step() == 1) return walk_.length() >= 4 || walk_.segments() == 1;
  // Along other strides rows can only be read in place, and only as one run.
  return walk_.type() == kNativeType<T> && !walk_.checked() && walk_.segments() == 1;
}

template <class T>
void RowSource<T>::plan_copy(const Problem& problem, const fuse::PwProgram& program) {
  const fuse::Access& access = program.access[0];
  int64_t elements = 1, reach = 1;
  for (size_t d = 0; d < program.domain.size(); ++d) {
    elements *= program.domain[d];
    if (access.stride[d] < 0) return;
    reach += (program.domain[d] - 1) * access.stride[d];
  }
  constexpr int64_t kReuse = 4;
  const bool again = problem.size('m') * problem.size('k') >= kReuse * elements;
  if (walk_.type() == kNativeType<T> || elements == 0 || reach > 2 * elements || !again) return;
  copied_ = reach, copied_from_ = access.offset, copied_type_ = access.type;
  walk_.moves(kNativeType<T>, copied_from_);
}

template <class T>
void RowSource<T>::copy(const void* memory, T* to) const {
  constexpr int64_t kPiece = 16 * 1024;
  parallel_for((copied_ + kPiece - 1) / kPiece, [&](int64_t piece) {
    const int64_t at = piece * kPiece;
    load_values(memory, copied_type_, copied_from_ + at, 1, std::min(kPiece, copied_ - at), to + at);
  });
}

template <class T>
std::vector<SumSlice> RowSource<T>::cut(int64_t k, int64_t target) const {
  const int64_t length = std::max<int64_t>(1, walk_.length());
  std::vector<SumSlice> list;
  if (length <= target) {
    const int64_t most = target / length, slices = (walk_.segments() + most - 1) / most;
    const int64_t runs = (walk_.segments() + slices - 1) / slices;
    for (int64_t s = 0; s < walk_.segments(); s += runs) {
      const int64_t n = std::min(runs, walk_.segments() - s);
      list.push_back({s * length, n * length, s, n, 0, length, walk_.span(s, n)});
    }
  } else {
    const int64_t pieces = (length + target - 1) / target, len = ((length + pieces - 1) / pieces + 1) / 2 * 2;
    for (int64_t s = 0; s < walk_.segments(); ++s)
      for (int64_t from = 0; from < length; from += len) {
        const int64_t n = std::min(len, length - from);
        list.push_back({s * length + from, n, s, 1, from, n, walk_.span(s, 1)});
      }
  }
  if (k == 0) list = {SumSlice()};
  return list;
}

// One row of one run: where it is, or with what lies outside replaced by zeros.
template <class T>
const T* RowSource<T>::row_of_run(const void* memory, const Spot& spot, const SumSlice& slice, int64_t r,
                                  T* stage) const {
  const Walk::Run run = walk_.run(spot, slice.segment + r);
  const int64_t from = std::clamp<int64_t>(run.from - slice.from, 0, slice.len);
  const int64_t end = std::clamp(run.to - slice.from, from, slice.len);
  if (from == end) return zeros_.data();
  if (from == 0 && end == slice.len && is_native<T>(walk_.type(), memory))
    return static_cast<const T*>(memory) + run.at + slice.from * walk_.step();
  std::fill(stage, stage + from, T(0));
  load_values(memory, walk_.type(), run.at + slice.from + from, 1, end - from, stage + from);
  std::fill(stage + end, stage + slice.len, T(0));
  return stage;
}

// Whether rows are whole, and each begins where the one before it ends: one conversion does for all.
template <class T>
bool RowSource<T>::is_stretch(const Spot* spot, int64_t rows, const SumSlice& slice) const {
  if (walk_.step() != 1 || slice.runs != 1 || !walk_.inside(spot, rows, slice.span)) return false;
  for (int64_t i = 1; i < rows; ++i)
    if (spot[i].at - spot[i - 1].at != slice.len) return false;
  return true;
}

template <class T>
RowRuns<T> RowSource<T>::point(const void* memory, const Spot* spot, int64_t rows, const SumSlice& slice, T* stage,
                               const T** out) const {
  const bool native = is_native<T>(walk_.type(), memory) && (walk_.step() == 1 || !walk_.checked());
  const T* const values = static_cast<const T*>(memory) + slice.from * walk_.step();
  if (native && rows == mr_ && walk_.inside(spot, rows, slice.span)) {
    for (int64_t i = 0; i < mr_; ++i) out[i] = values + spot[i].at;
    return {out, offset_.data() + slice.segment, slice.runs, slice.len, walk_.step()};
  }
  if (!native && is_stretch(spot, rows, slice)) {
    load_values(memory, walk_.type(), spot[0].at + offset_[size_t(slice.segment)] + slice.from, 1, rows * slice.len,
                stage);
    for (int64_t i = 0; i < mr_; ++i) out[i] = stage + (i < rows ? i : 0) * slice.len;
    return {out, nullptr, 1, slice.len, 1};
  }
  for (int64_t i = 0; i < mr_; ++i) {
    const bool inside = native && i < rows && walk_.inside(spot + i, 1, slice.span);
    for (int64_t r = 0; r < slice.runs; ++r) {
      const T*& row = out[r * mr_ + i];
      if (inside) row = values + spot[i].at + offset_[size_t(slice.segment + r)];
      else if (i >= rows) row = out[r * mr_];
      else row = row_of_run(memory, spot[i], slice, r, stage + (i * slice.runs + r) * slice.len);
    }
  }
  return {out, nullptr, slice.runs, slice.len, walk_.step()};
}

template <class T>
void RowSource<T>::fetch(const void* memory, const Spot* spot, int64_t rows, const SumSlice& slice) const {
  const int64_t bits = element_bits(walk_.type());
  if (is_native<T>(walk_.type(), memory) || walk_.checked() || walk_.step() != 1) return;
  const char* const first = static_cast<const char*>(memory) + (offset_[size_t(slice.segment)] + slice.from) * bits / 8;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t byte = 0; byte < slice.len * bits / 8; byte += 64)
      __builtin_prefetch(first + spot[i].at * bits / 8 + byte);
}

template class RowSource<float>;
template class RowSource<double>;
template class RowSource<Bfloat16Bits>;

}  // namespace tilewright::cpu
