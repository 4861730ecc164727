#ifndef PRISM_SRC_POOL_H_
#define PRISM_SRC_POOL_H_

#include <cstdint>

#include "prism/pool.h"
#include "prism/prism.h"

namespace prism {

// See AveragePool in prism/pool.h.
template <class T>
struct PoolArguments {
  const T* x;
  std::int64_t height;
  std::int64_t width;
  const std::int64_t* down_begin;
  const std::int64_t* down_extent;
  const std::int64_t* across_begin;
  const std::int64_t* across_extent;
  std::int64_t down;    // outputs
  std::int64_t across;  // outputs
  std::int64_t down_steps;
  std::int64_t across_steps;
  std::int64_t groups;  // a plane
  const std::int64_t* divisors;
  std::uint64_t first_plane;
  T* out;

  std::int64_t outputs() const { return down * across; }
  std::int64_t steps() const { return down_steps * across_steps; }
};

}  // namespace prism

#endif  // PRISM_SRC_POOL_H_
