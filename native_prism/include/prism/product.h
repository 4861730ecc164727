// Matrix products. To be included by prism/prism.h only.

#ifndef PRISM_PRODUCT_H_
#define PRISM_PRODUCT_H_

#include <cstdint>

namespace prism {

struct Rounding;

template <class T>
struct Matrix {
  const T* data = nullptr;
  std::int64_t row_stride = 0;  // in elements
  std::int64_t column_stride = 0;
};

// out = alpha a b + beta c, each of `batches` times, `*_batch` elements apart:
//
//   start = beta c[i, j] (rounded; c itself where beta is 1), bias[j], or 0;
//   sum = fma(a[i, k], b[k, j], sum), rounded, for k = 0, 1, ..., depth - 1, from `start` where alpha is 1, else from
//   bias[j] or 0;
//   out[i, j] = sum where alpha is 1, else alpha sum + start, rounded once (alpha times the sum where c is not there).
//
// Row i of batch n draws as row first_row + n rows + i, so that a part of the rows or batches gives the bits of the
// whole. A start of -0 counts as 0. `out` must not overlap the operands, but may be c where its strides are c's.
template <class T>
struct GemmArguments {
  std::int64_t batches = 1;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t depth = 0;
  Matrix<T> a;
  std::int64_t a_batch = 0;
  Matrix<T> b;
  std::int64_t b_batch = 0;
  const T* bias = nullptr;  // one value a column; not together with c
  Matrix<T> c;              // data may be null
  std::int64_t c_batch = 0;
  T alpha = 1;
  T beta = 1;
  T* out = nullptr;  // rows after one another
  std::uint64_t first_row = 0;
};

void Gemm(const GemmArguments<float>& arguments, const Rounding& rounding);
void Gemm(const GemmArguments<double>& arguments, const Rounding& rounding);

}  // namespace prism

#endif  // PRISM_PRODUCT_H_
