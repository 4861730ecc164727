// The matrix product behind gemm, batched gemm and convolutions.

#ifndef PRISM_SRC_GEMM_H_
#define PRISM_SRC_GEMM_H_

#include <cstddef>
#include <cstdint>

#include "extent.h"
#include "prism/prism.h"

namespace prism {

// Copies a part of an operand for the kernel: `lines` lines (rows of A or columns of B) from `line`, `depth` steps from
// `step`, to to[s * width + l]; lines that are not there are zero.
template <class T>
class Source {
 public:
  virtual ~Source() = default;
  virtual void Pack(std::int64_t line, int lines, std::int64_t step, int depth, int width, float* to) const = 0;
  virtual void Pack(std::int64_t line, int lines, std::int64_t step, int depth, int width, double* to) const = 0;
};

template <class T>
struct Product {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t depth = 0;
  const Source<T>* a = nullptr;  // lines are rows
  const Source<T>* b = nullptr;  // lines are columns
  Extent a_extent;
  Extent b_extent;
  // What the sums start from: nothing (zero), one value a column, or what `out` holds. A start of -0 counts as 0.
  const T* bias = nullptr;
  bool accumulate = false;
  Extent start_extent;
  T* out = nullptr;
  std::int64_t out_row_stride = 0;
  std::int64_t out_column_stride = 0;
  // The stream's row of the first row here, of 16 columns each: (first_row + row) * groups_per_row + group.
  std::uint64_t first_row = 0;
  std::uint64_t groups_per_row = 0;
  std::uint64_t first_group = 0;
  // The steps of a stream's row where other products with fewer or more share the stream, else 0: then it is the depth.
  std::int64_t stream_steps = 0;
};

// Whether the kernels without guards give the definition's bits. Of the product only depth and extents matter.
template <class T>
bool FastKernelsApply(const Product<T>& product, const Rounding& rounding);

// out[i, j] = the sum over k in ascending order, rounded at every step, of fma(a[i, k], b[k, j], sum).
template <class T>
void Multiply(const Product<T>& product, const Rounding& rounding);

// to[s * width + l] = from[l * line_stride + s] for l < lines, s < depth.
void TransposeLines(const float* from, std::int64_t line_stride, int lines, int depth, int width, float* to);
void TransposeLines(const float* from, std::int64_t line_stride, int lines, int depth, int width, double* to);
void TransposeLines(const double* from, std::int64_t line_stride, int lines, int depth, int width, double* to);
void TransposeLines(const double* from, std::int64_t line_stride, int lines, int depth, int width, float* to);

}  // namespace prism

#endif  // PRISM_SRC_GEMM_H_
