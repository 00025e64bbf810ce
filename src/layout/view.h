// Questions about dims and strides, as pure functions. Nothing here knows a layout by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace tilewright {

using Dims = std::vector<int64_t>;

struct View {
  Dims dim, stride;
};

std::string to_text(const Dims&);  // "[2, 3, 4]"

// Product of dims. volume_checked is empty when it does not fit 63 bits.
int64_t volume(const Dims&);
std::optional<int64_t> volume_checked(const Dims&);
// The largest element offset that the view reaches, plus one (0 when it is empty): the storage it needs.
int64_t storage_elements(const View&);
// Two different indices at one address: stride 0 over more than one element, or overlapping rows.
bool self_overlaps(const View&);

// --- strides -----------------------------------------------------------------------------------------------------
// order[i]: rank of dim i, 0 the fastest.
Dims strides_from_order(const Dims& dim, const std::vector<int64_t>& order);
Dims row_major_strides(const Dims& dim);
Dims column_major_strides(const Dims& dim);   // last two dims swapped when rank > 2
Dims channels_last_strides(const Dims& dim);  // dim 1 fastest, then the last spatial dim ..., dim 0 slowest
// Packed strides with the dims in the order of `like`'s strides; dims that `like` lacks are slowest.
Dims strides_like(const Dims& dim, const Dims& like);

// NumPy's rules, right aligned. SHAPE_DEDUCTION_FAILED when two sizes clash.
Result<Dims> broadcast_dims(const std::vector<Dims>& shapes);
// Strides for reading a tensor over the dims of a broadcast result: 0 along broadcast dims, rank extended on the left.
Dims broadcast_strides(const View& view, const Dims& to);

// --- walking -----------------------------------------------------------------------------------------------------
// Index tuple of a row-major linear index.
void unravel(int64_t linear, const Dims& dim, int64_t* index);
int64_t offset_of(const Dims& stride, const int64_t* index);
int64_t offset_of_linear(int64_t linear, const View& view);

// The common loop structure of several tensors over one domain: size-1 dims dropped, neighbouring dims merged where
// every tensor allows it. Row-major order of the domain is kept. Rank at least 1.
struct Collapsed {
  Dims dim;
  std::vector<Dims> stride;  // per tensor
};
Collapsed collapse(const Dims& domain, const std::vector<Dims>& strides);

}  // namespace tilewright
