#include "prism/prism.h"

#include <algorithm>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "exact.h"
#include "gemm.h"
#include "rounding_check.h"
#include "stream.h"
#include "strided_source.h"
#include "targets.h"
#include "threads.h"

namespace prism {
namespace {

// Element (i, j) of a product draws for its scaling as that of a sum of one step would.
enum Stage : int { kSum = 0, kBeta = 1, kAlpha = 2 };

// out = scale x + addend (where there is one, as contiguous rows), rounded once. These are few beside the sums, so that
// the definition itself is fast enough.
template <class T>
void Scale(const Matrix<T>& x, T scale, const T* addend, const GemmArguments<T>& arguments, std::int64_t batch,
           const Rounding& rounding, Stage stage, T* out) {
  const Stream stream = MakeStream(rounding, stage);
  const Format format = sizeof(T) == 4 ? Float32Format(rounding.precision) : Float64Format(rounding.precision);
  const std::int64_t groups = (arguments.columns + kGroup - 1) / kGroup;
  ParallelFor(arguments.rows, 16, rounding.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::uint64_t stream_row =
          (arguments.first_row + static_cast<std::uint64_t>(batch * arguments.rows + row)) *
          static_cast<std::uint64_t>(groups);
      for (std::int64_t column = 0; column < arguments.columns; ++column) {
        const TileArray words = ScalarTile(stream, stream_row + static_cast<std::uint64_t>(column / kGroup));
        const int lane = static_cast<int>(column % kGroup);
        const Random random{LaneWord(words, lane), LaneBits29(words, lane), LaneBit(words, lane, 0)};
        const double value = static_cast<double>(x.data[row * x.row_stride + column * x.column_stride]);
        const std::int64_t place = row * arguments.columns + column;
        const Exact exact = addend == nullptr
                                ? ExactMultiply(static_cast<double>(scale), value)
                                : ExactMultiplyAdd(static_cast<double>(scale), value, static_cast<double>(addend[place]));
        out[place] = static_cast<T>(Round(exact, format, rounding.mode, random));
      }
    }
  });
}

template <class T>
Extent MatrixExtent(const Matrix<T>& matrix, std::int64_t rows, std::int64_t columns) {
  Extent extent;
  if (rows == 0 || columns == 0) return extent;
  if (matrix.column_stride == 1 && matrix.row_stride == columns) return ExtentOf(matrix.data, rows * columns);
  if (matrix.row_stride == 1 && matrix.column_stride == rows) return ExtentOf(matrix.data, rows * columns);
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* line = matrix.data + row * matrix.row_stride;
    if (matrix.column_stride == 1) {
      extent.Join(ExtentOf(line, columns));
      continue;
    }
    for (std::int64_t column = 0; column < columns; ++column) {
      extent.Join(ExtentOf(line + column * matrix.column_stride, 1));
    }
  }
  return extent;
}

template <class T>
void GemmOf(const GemmArguments<T>& arguments, const Rounding& rounding) {
  CheckRounding(rounding, std::is_same_v<T, float> ? 24 : 53);
  const std::int64_t rows = arguments.rows;
  const std::int64_t columns = arguments.columns;
  if (rows < 0 || columns < 0 || arguments.depth < 0 || arguments.batches < 0) {
    throw std::invalid_argument("gemm: expected sizes of at least 0.");
  }
  if (arguments.bias != nullptr && arguments.c.data != nullptr) {
    throw std::invalid_argument("gemm: expected bias or c, got both.");
  }
  // One batch after another, unless they are products by the same matrix: then all are one.
  GemmArguments<T> one = arguments;
  if (arguments.b_batch == 0 && arguments.c.data == nullptr && arguments.a_batch == rows * arguments.a.row_stride) {
    one.rows = rows * arguments.batches;
    one.batches = 1;
  }
  Extent b_extent;
  std::vector<T> added;
  for (std::int64_t batch = 0; batch < one.batches; ++batch) {
    Matrix<T> a = one.a;
    Matrix<T> b = one.b;
    a.data += batch * one.a_batch;
    b.data += batch * one.b_batch;
    T* out = one.out + batch * one.rows * columns;
    Product<T> product;
    product.rows = one.rows;
    product.columns = columns;
    product.depth = one.depth;
    const StridedSource<T> a_source(a.data, a.row_stride, a.column_stride);
    const StridedSource<T> b_source(b.data, b.column_stride, b.row_stride);
    product.a = &a_source;
    product.b = &b_source;
    product.a_extent = MatrixExtent(a, one.rows, one.depth);
    if (batch == 0 || one.b_batch != 0) b_extent = MatrixExtent(b, one.depth, columns);
    product.b_extent = b_extent;
    product.out = out;
    product.out_row_stride = columns;
    product.out_column_stride = 1;
    product.first_row = one.first_row + static_cast<std::uint64_t>(batch * one.rows);
    product.groups_per_row = static_cast<std::uint64_t>((columns + kGroup - 1) / kGroup);
    if (one.bias != nullptr) {
      product.bias = one.bias;
      product.start_extent = ExtentOf(one.bias, columns);
    } else if (one.c.data != nullptr && one.beta != T{0}) {
      // What is added: in `out` itself where the sums start from it, apart from it where they are scaled first.
      T* start = out;
      if (one.alpha != T{1}) {
        added.resize(static_cast<std::size_t>(rows * columns));
        start = added.data();
      }
      Matrix<T> c = one.c;
      c.data += batch * one.c_batch;
      if (one.beta != T{1}) {
        Scale(c, one.beta, static_cast<const T*>(nullptr), one, batch, rounding, kBeta, start);
      } else if (c.data != start) {
        for (std::int64_t i = 0; i < rows; ++i) {
          for (std::int64_t j = 0; j < columns; ++j) {
            start[i * columns + j] = c.data[i * c.row_stride + j * c.column_stride];
          }
        }
      }
      if (one.alpha == T{1}) {
        product.accumulate = true;
        product.start_extent = ExtentOf(out, rows * columns);
      }
    }
    Multiply(product, rounding);
    if (one.alpha != T{1}) {
      const T* addend = added.empty() ? nullptr : added.data();
      Scale({out, columns, 1}, one.alpha, addend, one, batch, rounding, kAlpha, out);
    }
  }
}

}  // namespace

void Gemm(const GemmArguments<float>& arguments, const Rounding& rounding) { GemmOf(arguments, rounding); }
void Gemm(const GemmArguments<double>& arguments, const Rounding& rounding) { GemmOf(arguments, rounding); }

}  // namespace prism
