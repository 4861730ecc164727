// One operation on one element, by integers: the definition that every vector kernel must match bit for bit.
//
// Operands and results are float64 values; a float32 is one of them.

#ifndef PRISM_SRC_EXACT_H_
#define PRISM_SRC_EXACT_H_

#include <cstdint>
#include <cstring>

#include "prism/prism.h"

namespace prism {

template <class To, class From>
inline To BitsOf(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

constexpr std::uint32_t kCanonicalNan = 0x7FC00000u;
constexpr std::uint64_t kCanonicalNan64 = 0x7FF8000000000000u;

struct Format {
  int precision;     // significand bits of a result
  int min_exponent;  // of the smallest normal number
  int max_exponent;  // of the largest number
  bool narrow;       // a float32 or a part of one, for which SR works on x rounded to 53 bits
};

constexpr Format Float32Format(int precision) { return {precision == 0 ? 24 : precision, -126, 127, true}; }
constexpr Format Float64Format(int precision) { return {precision == 0 ? 53 : precision, -1022, 1023, false}; }

// What one lane draws for one step. See stream.h.
struct Random {
  std::uint32_t word;    // SR in float64: x moves up where floor(2^32 fraction) + word >= 2^32
  std::uint32_t bits29;  // SR in float32: the same with 2^29
  bool bit;              // UD: towards zero; RR: down
};

// x = (-1)^negative (significand + less than one where `sticky`) 2^exponent.
struct Exact {
  enum class Kind { kZero, kFinite, kInfinite, kNan };
  Kind kind = Kind::kZero;
  bool negative = false;
  unsigned __int128 significand = 0;
  int exponent = 0;
  bool sticky = false;
};

Exact ExactValue(double x);
Exact ExactAdd(double a, double b);
Exact ExactMultiply(double a, double b);
Exact ExactMultiplyAdd(double a, double b, double c);
Exact ExactDivide(double a, double b);
Exact ExactSqrt(double a);

double Round(const Exact& x, const Format& format, Mode mode, const Random& random);

}  // namespace prism

#endif  // PRISM_SRC_EXACT_H_
