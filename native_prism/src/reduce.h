#ifndef PRISM_SRC_REDUCE_H_
#define PRISM_SRC_REDUCE_H_

#include <cstdint>

#include "prism/prism.h"
#include "prism/reduce.h"

namespace prism {

enum class Reduction : int { kSum, kDot, kMean, kVariance };

// See the functions of prism/reduce.h.
template <class T>
struct ReduceArguments {
  Reduction reduction;
  const T* a;
  const T* b;
  std::int64_t columns;
  double divisor;  // of kMean and kVariance
  std::uint64_t first_row;
  T* out;
  T* mean;
};

// Rows begin to end, in sequential order.
template <class T>
void ReduceSequentially(const ReduceArguments<T>& arguments, const Rounding& rounding, std::int64_t begin,
                        std::int64_t end);

}  // namespace prism

#endif  // PRISM_SRC_REDUCE_H_
