// What the families over rows share outside of the vector code.

#ifndef PRISM_SRC_REDUCE_ROWS_H_
#define PRISM_SRC_REDUCE_ROWS_H_

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

#include "exact.h"
#include "rounding_check.h"
#include "threads.h"

namespace prism {

template <class T>
constexpr int kBitsOf = sizeof(T) == 4 ? 24 : 53;

// x, a number of type T, and the quiet NaN for any NaN.
template <class T>
T CanonicalElement(double x) {
  if (x == x) return static_cast<T>(x);
  if constexpr (sizeof(T) == 4) {
    return BitsOf<float>(kCanonicalNan);
  } else {
    return BitsOf<double>(kCanonicalNan64);
  }
}

inline void CheckRows(std::int64_t rows, std::int64_t columns) {
  if (rows < 0) throw std::invalid_argument("rows: expected at least 0, got " + std::to_string(rows) + ".");
  if (columns < 1) throw std::invalid_argument("columns: expected at least 1, got " + std::to_string(columns) + ".");
}

// Calls `body(begin, end)` for pieces of `rows` rows of `operations` operations each, a piece worth a thread's while.
inline void ForPieces(std::int64_t rows, std::int64_t operations, int threads,
                      const std::function<void(std::int64_t, std::int64_t)>& body) {
  constexpr std::int64_t kPiece = 65536;
  const std::int64_t grain = operations >= kPiece ? 1 : (kPiece + operations - 1) / operations;
  // Whole blocks of rows that are done together.
  ParallelFor(rows, (grain + 3) / 4 * 4, threads, body);
}

}  // namespace prism

#endif  // PRISM_SRC_REDUCE_ROWS_H_
