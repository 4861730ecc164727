// What the tests of element-wise operations share: operands of every kind, and results by exact.h, the definition.

#ifndef PRISM_TESTS_ELEMENTWISE_DATA_H_
#define PRISM_TESTS_ELEMENTWISE_DATA_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "exact.h"
#include "prism/prism.h"
#include "stream.h"

namespace elementwise {

using prism::Elementwise;
using prism::Mode;
using prism::Operand;
using prism::Rounding;

constexpr Mode kModes[] = {Mode::kNearest, Mode::kStochastic, Mode::kUpDown, Mode::kRandom};
constexpr Elementwise kOperations[] = {Elementwise::kAdd,    Elementwise::kSubtract, Elementwise::kMultiply,
                                       Elementwise::kDivide, Elementwise::kSqrt,     Elementwise::kFma,
                                       Elementwise::kRound};
constexpr const char* kNames[] = {"add", "subtract", "multiply", "divide", "sqrt", "fma", "round"};

template <class T>
using Values = std::vector<T>;

template <class T>
struct Type;
template <>
struct Type<float> {
  using Bits = std::uint32_t;
  static constexpr int kPrecisions[] = {0, 2, 8, 11, 23, 24};
  static prism::Format Format(int precision) { return prism::Float32Format(precision); }
};
template <>
struct Type<double> {
  using Bits = std::uint64_t;
  static constexpr int kPrecisions[] = {0, 2, 24, 52, 53};
  static prism::Format Format(int precision) { return prism::Float64Format(precision); }
};

template <class T>
typename Type<T>::Bits Bits(T x) {
  return prism::BitsOf<typename Type<T>::Bits>(x);
}

template <class T>
struct Operands {
  Values<T> a, b, c;
};

template <class T>
T AnyBits(std::mt19937_64& random) {
  return prism::BitsOf<T>(static_cast<typename Type<T>::Bits>(random()));
}

// A value of few significand bits: sums and products of such are ties and exact results more often.
template <class T>
T Round(std::mt19937_64& random) {
  return std::ldexp(static_cast<T>(static_cast<int>(random() % 64) - 32), static_cast<int>(random() % 40) - 30);
}

// Any bit patterns at all (NaN, infinities and subnormals too), and operands whose results cancel, tie, are subnormal
// or are near overflow. Where they are `ordinary`, none of those, so that whole groups go the fast ways.
template <class T>
Operands<T> MakeOperands(std::size_t count, bool ordinary = false) {
  std::mt19937_64 random(20260);
  constexpr int kTop = std::numeric_limits<T>::max_exponent;
  constexpr int kBits = std::numeric_limits<T>::digits;
  Operands<T> in{Values<T>(count), Values<T>(count), Values<T>(count)};
  const auto near = [&](T x, int spread) {
    return std::ldexp(x, -static_cast<int>(random() % static_cast<unsigned>(spread))) * static_cast<T>(1.37);
  };
  const auto unit = [&] { return static_cast<T>(1 + static_cast<double>(random() >> 11) * 0x1p-53); };
  for (std::size_t i = 0; i < count; ++i) {
    T& a = in.a[i];
    T& b = in.b[i];
    T& c = in.c[i];
    a = AnyBits<T>(random);
    b = AnyBits<T>(random);
    c = AnyBits<T>(random);
    const auto kind = random() % 8;
    if (ordinary && kind > 2) {
      // The sixth kind is of all magnitudes whose products are still ordinary.
      const int spread = kind == 5 ? kTop / 4 : 30;
      for (T* x : {&a, &b, &c}) {
        *x = std::ldexp(unit(), static_cast<int>(random() % static_cast<unsigned>(2 * spread)) - spread) * (random() % 2 == 0 ? T{1} : T{-1});
      }
      if (kind == 3) c = near(a * b, 2 * kBits);
      if (kind == 4) b = near(a, 2 * kBits);
      if (kind > 5) a = std::abs(a);
      continue;
    }
    if (ordinary) {
      a = std::ldexp(unit(), static_cast<int>(random() % 20));
    }
    switch (kind) {
      case 0:
        b = near(a, 2 * kBits);
        c = near(a * b, 2 * kBits);
        break;
      case 1:  // cancels
        b = -a * (random() % 2 == 0 ? T{1} : unit());
        c = -(a * b);
        break;
      case 2:
        a = Round<T>(random);
        b = Round<T>(random);
        c = Round<T>(random);
        break;
      case 3: {  // results about as small as they get
        const int exponent = static_cast<int>(random() % 40);
        a = std::ldexp(unit(), -kTop / 2 - exponent);
        b = std::ldexp(unit(), -kTop / 2 + static_cast<int>(random() % 40) - kBits);
        c = std::ldexp(unit(), -kTop - static_cast<int>(random() % 24));
        break;
      }
      case 4:  // about as large
        a = std::ldexp(unit(), kTop / 2 + static_cast<int>(random() % 3) - 1);
        b = std::ldexp(unit(), kTop / 2 - 1);
        c = std::ldexp(unit(), kTop - static_cast<int>(random() % 30) - 2);
        break;
      case 5: {  // the largest float and something about half a gap
        const T largest = std::numeric_limits<T>::max();
        a = random() % 2 == 0 ? largest : std::nextafter(largest, T{0});
        b = std::ldexp(unit(), kTop - kBits - 2 + static_cast<int>(random() % 3));
        c = b;
        break;
      }
      case 6:
        a = random() % 2 == 0 ? T{0} : -T{0};
        break;
      default:
        break;
    }
  }
  return in;
}

// Sums, and sums with products, of which one part is so far below the other that it may only decide a direction.
template <class T>
Operands<T> MakeFarOperands(std::size_t count) {
  std::mt19937_64 random(51);
  constexpr int kTop = std::numeric_limits<T>::max_exponent;
  Operands<T> in{Values<T>(count), Values<T>(count), Values<T>(count)};
  const auto value = [&](double exponent) {
    const int spread = static_cast<int>(random() % static_cast<unsigned>(kTop / 40 + 1));
    const T x = std::ldexp(static_cast<T>(1 + static_cast<double>(random() >> 11) * 0x1p-53),
                           static_cast<int>(exponent * kTop) + spread);
    return random() % 2 == 0 ? x : -x;
  };
  for (std::size_t i = 0; i < count; ++i) {
    in.a[i] = value(-0.43);
    in.b[i] = value(i % 2 == 0 ? -0.43 : 0.85);
    in.c[i] = value(i % 3 == 0 ? 0.85 : 0.2);
    if (i % 5 == 0) in.c[i] = std::copysign(std::ldexp(T{1}, static_cast<int>(random() % 20)), in.c[i]);
  }
  return in;
}

inline prism::Exact ExactOf(Elementwise operation, double a, double b, double c) {
  switch (operation) {
    case Elementwise::kAdd:
      return prism::ExactAdd(a, b);
    case Elementwise::kSubtract:
      return prism::ExactAdd(a, -b);
    case Elementwise::kMultiply:
      return prism::ExactMultiply(a, b);
    case Elementwise::kDivide:
      return prism::ExactDivide(a, b);
    case Elementwise::kSqrt:
      return prism::ExactSqrt(a);
    case Elementwise::kFma:
      return prism::ExactMultiplyAdd(a, b, c);
    case Elementwise::kRound:
      break;
  }
  return prism::ExactValue(a);
}

inline prism::Random RandomOf(const Rounding& rounding, std::uint64_t element) {
  const prism::Stream stream = prism::MakeStream(rounding);
  const std::uint64_t step = element / prism::kGroup;
  const int lane = static_cast<int>(element % prism::kGroup);
  if (rounding.mode == Mode::kStochastic) {
    const auto words = prism::ScalarTile(stream, step);
    return {prism::LaneWord(words, lane), prism::LaneBits29(words, lane), false};
  }
  const auto words = prism::ScalarTile(stream, step / prism::kStepsPerBitTile);
  return {0, 0, prism::LaneBit(words, lane, step)};
}

template <class T>
Values<T> Expected(Elementwise operation, const Operands<T>& in, const Rounding& rounding, std::uint64_t first) {
  Values<T> out(in.a.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const prism::Exact x = ExactOf(operation, in.a[i], in.b[i], in.c[i]);
    out[i] = static_cast<T>(
        prism::Round(x, Type<T>::Format(rounding.precision), rounding.mode, RandomOf(rounding, first + i)));
  }
  return out;
}

template <class T>
Values<T> Applied(Elementwise operation, const Operands<T>& in, const Rounding& rounding, std::uint64_t first = 0) {
  const std::size_t count = in.a.size();
  Values<T> out(count);
  const auto whole = [count](const Values<T>& x) { return Operand<T>::Whole(x.data(), count); };
  prism::Apply(operation, whole(in.a), whole(in.b), whole(in.c), out.data(), count, rounding, first);
  return out;
}

template <class T>
void CheckSame(const Values<T>& expected, const Values<T>& actual, const std::string& what, const Rounding& rounding,
               const Operands<T>* in = nullptr) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(Bits(expected[i]) == Bits(actual[i]),
          "%s on %s, mode %d, precision %d, element %zu (%a, %a, %a): expected %a, got %a", what.c_str(),
          prism::Target().c_str(), static_cast<int>(rounding.mode), rounding.precision, i,
          in == nullptr ? 0.0 : static_cast<double>(in->a[i]), in == nullptr ? 0.0 : static_cast<double>(in->b[i]),
          in == nullptr ? 0.0 : static_cast<double>(in->c[i]), static_cast<double>(expected[i]),
          static_cast<double>(actual[i]));
  }
}

inline Rounding MakeRounding(Mode mode, int precision) {
  Rounding rounding;
  rounding.mode = mode;
  rounding.precision = precision;
  rounding.seed = 7;
  rounding.sample = 3;
  rounding.operation = 11;
  return rounding;
}

}  // namespace elementwise

#endif  // PRISM_TESTS_ELEMENTWISE_DATA_H_
