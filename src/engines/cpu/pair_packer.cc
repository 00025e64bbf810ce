#include "engines/cpu/pair_packer.h"

#include <algorithm>
#include <cstring>

namespace tilewright::cpu {

bool PairPacker::prepare(const Problem& p, int operand, char side, const fuse::PwProgram& program, int panel) {
  program_ = program;
  panel_ = panel;
  if (program.code.size() != 1 || program.access[0].type != DataType_t::BFLOAT16) return false;
  along_sums_ = walk_.prepare(p, operand, side, 'k', program) && walk_.step() == 1;
  if (along_sums_) return true;
  walk_ = Walk();
  return walk_.prepare(p, operand, 'k', side, program) && walk_.step() == 1;
}

void PairPacker::cut(Cutter& c, int64_t kc, Work& w) const {
  w.spot = c.template take<Spot>(std::max<int64_t>(panel_, kc));
  w.line = c.template take<Bfloat16Bits>(int64_t(panel_) * std::max<int64_t>(kc, 2));
  w.row = c.template take<const Bfloat16Bits*>(panel_);
}

int64_t PairPacker::scratch_bytes(int64_t, int64_t kc) const {
  Cutter c(nullptr);
  Work w;
  cut(c, kc, w);
  return c.bytes();
}

void PairPacker::pack(const Memory&, void* const* base, const Range& r, float, int64_t* index, char* scratch,
                      Bfloat16Bits* panels) const {
  Work w;
  Cutter cutter(scratch);
  cut(cutter, r.ks, w);
  const int64_t batch = walk_.batch_offset(index);
  if (along_sums_) return pack_along_sums(base[0], r, batch, w, panels);
  walk_.points(r.k, r.ks, batch, w.spot);
  pack_along_rows(base[0], r, w, panels);
}

const Bfloat16Bits* PairPacker::lanes(const void* memory, const Spot& spot, int64_t segment, int64_t lane, int64_t n,
                                      Bfloat16Bits* to) const {
  const Walk::Run run = walk_.run(spot, segment);
  const int64_t from = std::clamp(run.from - lane, int64_t{0}, n), end = std::clamp(run.to - lane, from, n);
  if (end > from && from == 0 && end == n && is_native<Bfloat16Bits>(walk_.type(), memory))
    return static_cast<const Bfloat16Bits*>(memory) + run.at + lane;
  std::fill(to, to + from, Bfloat16Bits(0));
  if (end > from) load_values(memory, walk_.type(), run.at + lane + from, 1, end - from, to + from);
  std::fill(to + end, to + n, Bfloat16Bits(0));
  return to;
}

// Two rows of the sums at a time, interleaved, for the pieces that lie in one panel and one segment.
void PairPacker::pack_along_rows(const void* memory, const Range& r, Work& w, Bfloat16Bits* panels) const {
  const int64_t length = walk_.length();
  for (int64_t i = 0; i < r.rows;) {
    const int64_t segment = (r.row + i) / length, lane = (r.row + i) % length;
    const int64_t n = std::min({r.rows - i, length - lane, panel_ - i % panel_});
    Bfloat16Bits* to = panels + i / panel_ * panel_ * r.ks + 2 * (i % panel_);
    i += n;
    for (int64_t k = 0; k < r.ks; k += 2, to += 2 * panel_) {
      const Bfloat16Bits* const even = lanes(memory, w.spot[k], segment, lane, n, w.line);
      const Bfloat16Bits* const odd = lanes(memory, w.spot[k + 1], segment, lane, n, w.line + panel_);
      for (int64_t j = 0; j < n; ++j) {
        const uint32_t pair = uint32_t(even[j]) | uint32_t(odd[j]) << 16;
        std::memcpy(to + 2 * j, &pair, 4);
      }
    }
  }
  if (const int64_t rest = r.rows % panel_) {
    Bfloat16Bits* to = panels + r.rows / panel_ * panel_ * r.ks;
    for (int64_t k = 0; k < r.ks; k += 2, to += 2 * panel_) std::fill(to + 2 * rest, to + 2 * panel_, Bfloat16Bits(0));
  }
}

// The rows of a panel, then their transpose by pairs.
void PairPacker::pack_along_sums(const void* memory, const Range& r, int64_t batch, Work& w,
                                 Bfloat16Bits* panels) const {
  const int64_t length = walk_.length();
  for (int64_t p = 0; p < r.rows; p += panel_, panels += panel_ * r.ks) {
    const int64_t rows = std::min<int64_t>(panel_, r.rows - p);
    walk_.points(r.row + p, rows, batch, w.spot);
    for (int64_t i = 0; i < rows; ++i) {
      Bfloat16Bits* const line = w.line + i * r.ks;
      w.row[i] = line;
      for (int64_t k = 0; k < r.ks;) {
        const int64_t lane = (r.k + k) % length, n = std::min(r.ks - k, length - lane);
        const Bfloat16Bits* const from = lanes(memory, w.spot[i], (r.k + k) / length, lane, n, line + k);
        if (n == r.ks) w.row[i] = from;
        else if (from != line + k) std::copy_n(from, n, line + k);
        k += n;
      }
    }
    transpose(w.row, rows, r.ks, panels, panel_);
    for (int64_t k = 0; k < r.ks && rows < panel_; k += 2)
      std::fill(panels + k * panel_ + 2 * rows, panels + (k + 2) * panel_, Bfloat16Bits(0));
  }
}

}  // namespace tilewright::cpu
