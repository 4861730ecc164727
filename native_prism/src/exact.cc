#include "exact.h"

#include <cmath>
#include <limits>
#include <utility>

namespace prism {
namespace {

using Wide = unsigned __int128;
using Kind = Exact::Kind;

int BitLength(Wide x) {
  const auto high = static_cast<std::uint64_t>(x >> 64);
  const auto low = static_cast<std::uint64_t>(x);
  if (high != 0) return 128 - __builtin_clzll(high);
  return low == 0 ? 0 : 64 - __builtin_clzll(low);
}

bool Odd(Wide x) { return (x & 1) != 0; }

Exact Special(Kind kind, bool negative) {
  Exact x;
  x.kind = kind;
  x.negative = negative;
  return x;
}

Exact Nan() { return Special(Kind::kNan, false); }

// x / 2^bits, what is cut off in `sticky`.
Exact ShiftedRight(Exact x, int bits) {
  if (bits <= 0) return x;
  if (bits >= 128) {
    x.sticky = x.sticky || x.significand != 0;
    x.significand = 0;
  } else {
    x.sticky = x.sticky || (x.significand & ((Wide{1} << bits) - 1)) != 0;
    x.significand >>= bits;
  }
  x.exponent += bits;
  return x;
}

// With the top bit at place 125, which leaves room for a carry.
Exact Normalized(Exact x) {
  const int shift = 126 - BitLength(x.significand);
  x.significand <<= shift;
  x.exponent -= shift;
  return x;
}

// Two finite values without sticky bits, of at most 106 bits each.
Exact Sum(Exact a, Exact b) {
  a = Normalized(a);
  b = Normalized(b);
  if (a.exponent < b.exponent || (a.exponent == b.exponent && a.significand < b.significand)) std::swap(a, b);
  b = ShiftedRight(b, a.exponent - b.exponent);
  if (a.negative == b.negative) {
    a.significand += b.significand;
  } else {
    a.significand -= b.significand + (b.sticky ? 1 : 0);
  }
  a.sticky = b.sticky;
  if (a.significand == 0 && !a.sticky) return Special(Kind::kZero, false);
  return a;
}

Exact AddValues(const Exact& a, const Exact& b) {
  if (a.kind == Kind::kNan || b.kind == Kind::kNan) return Nan();
  if (a.kind == Kind::kInfinite && b.kind == Kind::kInfinite && a.negative != b.negative) return Nan();
  if (a.kind == Kind::kInfinite) return a;
  if (b.kind == Kind::kInfinite) return b;
  if (a.kind == Kind::kZero && b.kind == Kind::kZero) return Special(Kind::kZero, a.negative && b.negative);
  if (a.kind == Kind::kZero) return b;
  if (b.kind == Kind::kZero) return a;
  return Sum(a, b);
}

// The magnitude of x as a multiple of 2^exponent, ties to even; x.exponent must not be above it with a sticky bit.
Exact NearestMultiple(Exact x, int exponent) {
  const int bits = exponent - x.exponent;
  if (bits <= 0) {
    if (bits < 0 && BitLength(x.significand) - bits <= 127) {
      x.significand <<= -bits;
      x.exponent = exponent;
    }
    return x;
  }
  if (bits > 127) return Special(Kind::kZero, x.negative);
  const Wide half = Wide{1} << (bits - 1);
  const Wide rest = x.significand & ((half << 1) - 1);
  const bool sticky = x.sticky;
  x.significand >>= bits;
  if (rest > half || (rest == half && (sticky || Odd(x.significand)))) x.significand += 1;
  x.exponent = exponent;
  x.sticky = false;
  if (x.significand == 0) return Special(Kind::kZero, x.negative);
  return x;
}

int TopExponent(const Exact& x) { return x.exponent + BitLength(x.significand) - 1; }

double Value(Wide significand, int exponent, bool negative) {
  const double magnitude = std::ldexp(static_cast<double>(significand), exponent);
  return negative ? -magnitude : magnitude;
}

double Infinity(bool negative) {
  const double infinity = std::numeric_limits<double>::infinity();
  return negative ? -infinity : infinity;
}

// The exponent of the spacing of the format's numbers at x.
int Quantum(const Exact& x, const Format& format) {
  const int top = TopExponent(x);
  return (top > format.min_exponent ? top : format.min_exponent) - format.precision + 1;
}

// Whether `significand` 2^exponent, a multiple of the format's spacing, is beyond the largest number.
bool Beyond(Wide significand, int exponent, const Format& format) {
  return exponent + BitLength(significand) - 1 > format.max_exponent;
}

struct Parts {
  Wide lower;       // the lower neighbour in magnitude, in units of 2^quantum
  Wide rest;        // what is above it, in units of 2^(quantum - bits)
  int bits;
  int quantum;
  bool sticky;
  bool exact() const { return rest == 0 && !sticky; }
};

Parts Split(Exact x, const Format& format) {
  const int quantum = Quantum(x, format);
  // Far below the spacing the first bits of what is cut off still matter to SR.
  if (quantum - x.exponent > 127) x = ShiftedRight(x, quantum - x.exponent - 127);
  const int bits = quantum - x.exponent;
  if (bits <= 0) return {x.significand << -bits, 0, 0, quantum, x.sticky};
  return {x.significand >> bits, x.significand & ((Wide{1} << bits) - 1), bits, quantum, x.sticky};
}

// floor(2^count rest / 2^bits)
std::uint64_t Fraction(const Parts& parts, int count) {
  if (parts.bits >= count) return static_cast<std::uint64_t>(parts.rest >> (parts.bits - count));
  return static_cast<std::uint64_t>(parts.rest << (count - parts.bits));
}

double RoundStochastic(Exact x, const Format& format, const Random& random) {
  if (format.narrow) {
    x = NearestMultiple(x, TopExponent(x) - 52);
    x = NearestMultiple(x, format.min_exponent - 52 > x.exponent ? format.min_exponent - 52 : x.exponent);
    if (x.kind == Kind::kZero) return x.negative ? -0.0 : 0.0;
  }
  const Parts parts = Split(x, format);
  const Wide largest = (Wide{1} << format.precision) - 1;
  const int top_quantum = format.max_exponent - format.precision + 1;
  const bool past = parts.quantum > top_quantum ||
                    (parts.quantum == top_quantum && parts.lower >= largest && !parts.exact());
  if (past) return Round(x, format, Mode::kNearest, random);
  const int count = format.narrow ? 29 : 32;
  const std::uint64_t draw = format.narrow ? random.bits29 : random.word;
  const bool up = Fraction(parts, count) + draw >= std::uint64_t{1} << count;
  return Value(parts.lower + (up ? 1 : 0), parts.quantum, x.negative);
}

Wide NearestUnits(const Parts& parts) {
  if (parts.bits == 0) return parts.lower;
  const Wide half = Wide{1} << (parts.bits - 1);
  const bool up = parts.rest > half || (parts.rest == half && (parts.sticky || Odd(parts.lower)));
  return parts.lower + (up ? 1 : 0);
}

double UpOrDown(Wide units, int quantum, bool negative, const Format& format, bool towards_zero) {
  if (units == 0) return negative ? -0.0 : 0.0;
  if (BitLength(units) > format.precision) {
    units >>= 1;
    quantum += 1;
  }
  if (!towards_zero) {
    return Beyond(units + 1, quantum, format) ? Infinity(negative) : Value(units + 1, quantum, negative);
  }
  // Below a power of two the spacing is half as wide, but never less than that of the subnormal numbers.
  const bool power = units == Wide{1} << (format.precision - 1);
  if (power && quantum > format.min_exponent - format.precision + 1) {
    return Value((units << 1) - 1, quantum - 1, negative);
  }
  return Value(units - 1, quantum, negative);
}

}  // namespace

Exact ExactValue(double x) {
  const auto image = BitsOf<std::uint64_t>(x);
  const bool negative = (image >> 63) != 0;
  const int biased = static_cast<int>(image >> 52 & 0x7FF);
  const std::uint64_t fraction = image & ((std::uint64_t{1} << 52) - 1);
  if (biased == 0x7FF) return fraction == 0 ? Special(Kind::kInfinite, negative) : Nan();
  if (biased == 0 && fraction == 0) return Special(Kind::kZero, negative);
  Exact value = Special(Kind::kFinite, negative);
  value.significand = biased == 0 ? fraction : fraction | std::uint64_t{1} << 52;
  value.exponent = (biased == 0 ? 1 : biased) - 1075;
  return value;
}

Exact ExactAdd(double a, double b) { return AddValues(ExactValue(a), ExactValue(b)); }

Exact ExactMultiply(double a, double b) {
  const Exact x = ExactValue(a);
  const Exact y = ExactValue(b);
  const bool negative = x.negative != y.negative;
  if (x.kind == Kind::kNan || y.kind == Kind::kNan) return Nan();
  if (x.kind == Kind::kInfinite || y.kind == Kind::kInfinite) {
    return x.kind == Kind::kZero || y.kind == Kind::kZero ? Nan() : Special(Kind::kInfinite, negative);
  }
  if (x.kind == Kind::kZero || y.kind == Kind::kZero) return Special(Kind::kZero, negative);
  Exact product = Special(Kind::kFinite, negative);
  product.significand = x.significand * y.significand;
  product.exponent = x.exponent + y.exponent;
  return product;
}

Exact ExactMultiplyAdd(double a, double b, double c) { return AddValues(ExactMultiply(a, b), ExactValue(c)); }

Exact ExactDivide(double a, double b) {
  const Exact x = ExactValue(a);
  const Exact y = ExactValue(b);
  const bool negative = x.negative != y.negative;
  if (x.kind == Kind::kNan || y.kind == Kind::kNan) return Nan();
  if (x.kind == Kind::kInfinite) return y.kind == Kind::kInfinite ? Nan() : Special(Kind::kInfinite, negative);
  if (y.kind == Kind::kZero) return x.kind == Kind::kZero ? Nan() : Special(Kind::kInfinite, negative);
  if (x.kind == Kind::kZero || y.kind == Kind::kInfinite) return Special(Kind::kZero, negative);
  const Exact dividend = Normalized(x);
  // 53 bits also where it was subnormal, so that the quotient has 73 or 74; then 32 more, which SR in float64 asks for.
  const int shift = 53 - BitLength(y.significand);
  const Wide divisor = y.significand << shift;
  const Wide high = dividend.significand / divisor;
  const Wide rest = (dividend.significand % divisor) << 32;
  Exact quotient = Special(Kind::kFinite, negative);
  quotient.significand = (high << 32) + rest / divisor;
  quotient.sticky = rest % divisor != 0;
  quotient.exponent = dividend.exponent - (y.exponent - shift) - 32;
  return quotient;
}

Exact ExactSqrt(double a) {
  const Exact x = ExactValue(a);
  if (x.kind == Kind::kNan || (x.negative && x.kind != Kind::kZero)) return Nan();
  if (x.kind != Kind::kFinite) return x;
  Exact square = Normalized(x);
  if (square.exponent % 2 != 0) {
    square.significand <<= 1;
    square.exponent -= 1;
  }
  // Bit by bit: 63 or 64 bits of root, then 32 more, which SR in float64 asks for.
  Wide root = 0;
  Wide rest = square.significand;
  for (Wide bit = Wide{1} << 126; bit != 0; bit >>= 2) {
    if (rest >= root + bit) {
      rest -= root + bit;
      root = (root >> 1) + bit;
    } else {
      root >>= 1;
    }
  }
  for (int i = 0; i < 32; ++i) {
    rest <<= 2;
    root <<= 1;
    const Wide trial = (root << 1) + 1;
    if (rest >= trial) {
      rest -= trial;
      root += 1;
    }
  }
  Exact result = Special(Kind::kFinite, false);
  result.significand = root;
  result.sticky = rest != 0;
  result.exponent = square.exponent / 2 - 32;
  return result;
}

double Round(const Exact& x, const Format& format, Mode mode, const Random& random) {
  if (x.kind == Kind::kNan) return BitsOf<double>(kCanonicalNan64);
  if (x.kind == Kind::kInfinite) return Infinity(x.negative);
  if (x.kind == Kind::kZero) return x.negative ? -0.0 : 0.0;
  if (mode == Mode::kStochastic) return RoundStochastic(x, format, random);
  const Parts parts = Split(x, format);
  const Wide nearest = NearestUnits(parts);
  if (Beyond(nearest, parts.quantum, format)) return Infinity(x.negative);
  if (mode == Mode::kNearest) return Value(nearest, parts.quantum, x.negative);
  if (mode == Mode::kUpDown) return UpOrDown(nearest, parts.quantum, x.negative, format, random.bit);
  const Wide away = parts.lower + (parts.exact() ? 0 : 1);
  const bool up = random.bit == x.negative;  // in magnitude
  const Wide units = up && !Beyond(away, parts.quantum, format) ? away : parts.lower;
  return Value(units, parts.quantum, x.negative);
}

}  // namespace prism
