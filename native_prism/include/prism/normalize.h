// Normalizations and softmax. See prism.h for rounding; stages are counted within one operation's words.

#ifndef PRISM_NORMALIZE_H_
#define PRISM_NORMALIZE_H_

#include <cstdint>

#include "prism/prism.h"

namespace prism {

// What the normalized elements are multiplied by and what is added; both may be null. Row r has line r % lines of each.
template <class T>
struct Affine {
  const T* weight = nullptr;
  const T* bias = nullptr;
  std::int64_t lines = 1;
};

// Each of `rows` rows of `columns` elements, to mean 0 and variance 1; row r draws the words of row first_row + r.
// Stages 0 to 4 are those of Variance (reduce.h) with correction 0, then v + epsilon (5), its square root (6), 1 / root
// (7), d * that (8), and fma(y, weight, bias), y * weight or y + bias (9). `mean` and `inverse` (stage 7's result)
// receive one element a row and may be null.
template <class T>
void NormalizeRows(const T* x, std::int64_t rows, std::int64_t columns, const Affine<T>& affine, T epsilon,
                   std::uint64_t first_row, T* out, T* mean, T* inverse, const Rounding& rounding);

// x of shape (batch, channels, length) by each channel's `mean` and `variance`, as NormalizeRows but that stages 5 to 7
// draw at row c, lane 0, and that d = x - mean is stage 10. Row (first_batch + b) channels + c has `length` elements;
// where length is 1, row first_batch + b has `channels` elements. `affine` has one element a channel.
template <class T>
void NormalizeChannels(const T* x, std::int64_t batch, std::int64_t channels, std::int64_t length, const T* mean,
                       const T* variance, const Affine<T>& affine, T epsilon, std::uint64_t first_batch, T* out,
                       const Rounding& rounding);

// With m a row's largest element: t = x - m (stage 0), e = exp(t) (1), their sum in lanes (2), e / sum (3).
// exp and log are evaluated in float64, to 2^-46 where T is float and 2^-51 where it is double, and then rounded.
template <class T>
void Softmax(const T* x, std::int64_t rows, std::int64_t columns, std::uint64_t first_row, T* out,
             const Rounding& rounding);

// t, e and their sum as in Softmax, then log(sum) (stage 3) and t - that (4).
template <class T>
void LogSoftmax(const T* x, std::int64_t rows, std::int64_t columns, std::uint64_t first_row, T* out,
                const Rounding& rounding);

}  // namespace prism

#endif  // PRISM_NORMALIZE_H_
