// Sums over rows. See prism.h for rounding and README.md for the order of the random words.

#ifndef PRISM_REDUCE_H_
#define PRISM_REDUCE_H_

#include <cstdint>

#include "prism/prism.h"

namespace prism {

// Every addition of a sum is rounded; a sum of n elements has n - 1 of them.
enum class Order : int {
  // Lane l of 16 starts from element l and adds elements l + 16, l + 32, ... in turn. Then lane l adds lane l + 8, of
  // what is left l + 4, l + 2 and l + 1, where there is such a lane.
  kLanes = 0,
  // One element after another.
  kSequential = 1,
};

// `rows` rows of `columns` elements, one after another in memory, each to one element of `out`. Row r draws the words
// of row first_row + r, so that a batch can be split. T is float or double. Throws std::invalid_argument where there
// are no columns.
template <class T>
void Sum(const T* x, std::int64_t rows, std::int64_t columns, Order order, std::uint64_t first_row, T* out,
         const Rounding& rounding);

// A chain of fma(a, b, sum) from zero, in the same orders.
template <class T>
void Dot(const T* a, const T* b, std::int64_t rows, std::int64_t columns, Order order, std::uint64_t first_row, T* out,
         const Rounding& rounding);

// The sum (stage 0), then one division by the number of columns (stage 1).
template <class T>
void Mean(const T* x, std::int64_t rows, std::int64_t columns, Order order, std::uint64_t first_row, T* out,
          const Rounding& rounding);

// After the mean, d = x - mean (stage 2), the chain of fma(d, d, sum) (stage 3) and one division by columns -
// `correction`, or by zero where that is negative (stage 4). `mean` may be null.
template <class T>
void Variance(const T* x, std::int64_t rows, std::int64_t columns, double correction, Order order,
              std::uint64_t first_row, T* out, T* mean, const Rounding& rounding);

}  // namespace prism

#endif  // PRISM_REDUCE_H_
