// Operations on every element, one rounding each. To be included by prism/prism.h only.

#ifndef PRISM_ELEMENTWISE_H_
#define PRISM_ELEMENTWISE_H_

#include <cstddef>
#include <cstdint>

namespace prism {

struct Rounding;

// Element i reads data[(i / inner) % period]. `data` holds `period` values; neither number may be zero.
template <class T>
struct Operand {
  const T* data = nullptr;
  std::size_t inner = 1;
  std::size_t period = 1;

  // One value for all; one a column; one a channel that holds for `inner` elements; one an element.
  static Operand Scalar(const T* value) { return {value, 1, 1}; }
  static Operand Row(const T* values, std::size_t columns) { return {values, 1, columns}; }
  static Operand Channel(const T* values, std::size_t inner, std::size_t channels) { return {values, inner, channels}; }
  static Operand Whole(const T* values, std::size_t count) { return {values, 1, count}; }
};

enum class Elementwise : int {
  kAdd = 0,       // a + b
  kSubtract = 1,  // a - b
  kMultiply = 2,  // a b
  kDivide = 3,    // a / b
  kSqrt = 4,      // the square root of a
  kFma = 5,       // a b + c, rounded once
  // a itself as the exact result: kNearest keeps it where the precision is full, kStochastic and kRandom keep what fits
  // into the precision, kUpDown moves it.
  kRound = 6,
};

// out[i] = the operation on element i of the operands that it has, rounded, for i below `count`. Element i draws as
// element first + i, so that a part of the elements gives the bits of the whole. `out` may be the data of a Whole operand, but must not overlap one
// otherwise.
void Apply(Elementwise operation, const Operand<float>& a, const Operand<float>& b, const Operand<float>& c,
           float* out, std::size_t count, const Rounding& rounding, std::uint64_t first = 0);
void Apply(Elementwise operation, const Operand<double>& a, const Operand<double>& b, const Operand<double>& c,
           double* out, std::size_t count, const Rounding& rounding, std::uint64_t first = 0);

template <class T>
void Add(const Operand<T>& a, const Operand<T>& b, T* out, std::size_t count, const Rounding& rounding,
         std::uint64_t first = 0) {
  Apply(Elementwise::kAdd, a, b, {}, out, count, rounding, first);
}
template <class T>
void Subtract(const Operand<T>& a, const Operand<T>& b, T* out, std::size_t count, const Rounding& rounding,
              std::uint64_t first = 0) {
  Apply(Elementwise::kSubtract, a, b, {}, out, count, rounding, first);
}
template <class T>
void Multiply(const Operand<T>& a, const Operand<T>& b, T* out, std::size_t count, const Rounding& rounding,
              std::uint64_t first = 0) {
  Apply(Elementwise::kMultiply, a, b, {}, out, count, rounding, first);
}
template <class T>
void Divide(const Operand<T>& a, const Operand<T>& b, T* out, std::size_t count, const Rounding& rounding,
            std::uint64_t first = 0) {
  Apply(Elementwise::kDivide, a, b, {}, out, count, rounding, first);
}
template <class T>
void Sqrt(const Operand<T>& a, T* out, std::size_t count, const Rounding& rounding, std::uint64_t first = 0) {
  Apply(Elementwise::kSqrt, a, {}, {}, out, count, rounding, first);
}
template <class T>
void Fma(const Operand<T>& a, const Operand<T>& b, const Operand<T>& c, T* out, std::size_t count,
         const Rounding& rounding, std::uint64_t first = 0) {
  Apply(Elementwise::kFma, a, b, c, out, count, rounding, first);
}
template <class T>
void Round(const Operand<T>& a, T* out, std::size_t count, const Rounding& rounding, std::uint64_t first = 0) {
  Apply(Elementwise::kRound, a, {}, {}, out, count, rounding, first);
}

// out[i] = a[i] as a float32, rounded.
void Cast(const double* a, float* out, std::size_t count, const Rounding& rounding, std::uint64_t first = 0);

}  // namespace prism

#endif  // PRISM_ELEMENTWISE_H_
