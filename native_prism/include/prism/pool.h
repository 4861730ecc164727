// Average pooling. See prism.h for rounding.

#ifndef PRISM_POOL_H_
#define PRISM_POOL_H_

#include <cstdint>
#include <vector>

#include "prism/prism.h"

namespace prism {

// What one axis of the output averages: output o has the positions begin[o] to begin[o] + extent[o] - 1, of which those
// outside of the input are left out.
struct Windows {
  std::vector<std::int64_t> begin;
  std::vector<std::int64_t> extent;
};

// `planes` planes of height x width, each to one of down.begin.size() x across.begin.size(). A window's elements are
// added in row-major order (stage 0, one step for each position of the largest window) and the sum divided by
// divisors[output] (stage 1). 16 outputs in turn are a group: group g of plane p is row (first_plane + p) groups + g.
// T is float or double. Throws std::invalid_argument where a window has no element.
template <class T>
void AveragePool(const T* x, std::int64_t planes, std::int64_t height, std::int64_t width, const Windows& down,
                 const Windows& across, const std::vector<std::int64_t>& divisors, std::uint64_t first_plane, T* out,
                 const Rounding& rounding);

}  // namespace prism

#endif  // PRISM_POOL_H_
