// Element-wise operations on every target against exact.h, the definition.

#include <cfenv>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "check.h"
#include "exact.h"
#include "prism/prism.h"
#include "stream.h"

namespace {

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

prism::Exact ExactOf(Elementwise operation, double a, double b, double c) {
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

prism::Random RandomOf(const Rounding& rounding, std::uint64_t element) {
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

Rounding MakeRounding(Mode mode, int precision) {
  Rounding rounding;
  rounding.mode = mode;
  rounding.precision = precision;
  rounding.seed = 7;
  rounding.sample = 3;
  rounding.operation = 11;
  return rounding;
}

template <class T>
void CheckBits(const Operands<T>& in) {
  const std::uint64_t first = (std::uint64_t{1} << 40) + 5;
  for (const Elementwise operation : kOperations) {
    for (const Mode mode : kModes) {
      for (const int precision : Type<T>::kPrecisions) {
        const Rounding rounding = MakeRounding(mode, precision);
        const Values<T> expected = Expected(operation, in, rounding, first);
        for (const std::string& target : prism::Targets()) {
          prism::SetTarget(target);
          CheckSame(expected, Applied(operation, in, rounding, first), kNames[static_cast<int>(operation)], rounding,
                    &in);
        }
      }
    }
  }
}

// Every target gives the bits of the definition, for every operation, mode and precision.
void TestFloatBits() {
  CheckBits(MakeOperands<float>(3000));
  CheckBits(MakeOperands<float>(3000, true));
  CheckBits(MakeFarOperands<float>(1000));
}

void TestDoubleBits() {
  CheckBits(MakeOperands<double>(1500));
  CheckBits(MakeOperands<double>(4000, true));
  CheckBits(MakeFarOperands<double>(1000));
}

// Results just below, at and just above where a lane's random word begins to carry.
void TestThresholds() {
  const Rounding rounding = MakeRounding(Mode::kStochastic, 0);
  constexpr std::size_t kCount = 6 * 512;
  Operands<double> sums{Values<double>(kCount), Values<double>(kCount), Values<double>(kCount)};
  Operands<double> products = sums;
  Operands<double> narrow = sums;
  for (std::size_t i = 0; i < kCount; ++i) {
    const prism::Random random = RandomOf(rounding, i);
    const double step = static_cast<double>(i % 3) - 1;
    const double room = 0x1p32 - random.word + step;
    // 1 + room 2^-84, or a little less; and below 2, where the error is negative.
    double& b = sums.b[i];
    sums.a[i] = i % 2 == 0 ? 1 : 2 - 0x1p-52;
    b = std::ldexp(room, -84);
    if (i % 5 == 0) b = std::nextafter(b, 0);
    if (i % 7 == 0) b = -b;
    sums.c[i] = sums.a[i];
    products.a[i] = 1 + 0x1p-32;
    products.b[i] = 1 + room * 0x1p-52;
    products.c[i] = 0;
    narrow.a[i] = 1 + (0x1p29 - random.bits29 + step) * 0x1p-52;
  }
  const Values<double> ones(kCount, 1.0);
  const Operands<double> fused{sums.b, ones, sums.a};
  Values<float> expected(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    expected[i] = static_cast<float>(prism::Round(prism::ExactValue(narrow.a[i]), prism::Float32Format(0),
                                                  Mode::kStochastic, RandomOf(rounding, i)));
  }
  for (const std::string& target : prism::Targets()) {
    prism::SetTarget(target);
    const auto check = [&](Elementwise operation, const Operands<double>& in) {
      CheckSame(Expected(operation, in, rounding, 0), Applied(operation, in, rounding), "threshold", rounding, &in);
    };
    check(Elementwise::kAdd, sums);
    check(Elementwise::kMultiply, products);
    check(Elementwise::kFma, fused);
    Values<float> out(kCount);
    prism::Cast(narrow.a.data(), out.data(), kCount, rounding);
    CheckSame(expected, out, "threshold of a cast", rounding);
  }
}

// The same for float64 made float32.
void TestCastBits() {
  Operands<double> in = MakeOperands<double>(4000);
  std::mt19937_64 random(5);
  for (std::size_t i = 0; i < in.a.size(); ++i) {
    // Within the range of float32, also among its subnormal numbers and about its largest.
    if (i % 3 != 0) in.a[i] = std::ldexp(1 + static_cast<double>(random() >> 11) * 0x1p-53,
                                         static_cast<int>(random() % 290) - 160);
    if (i % 50 == 1) in.a[i] = (2 - 0x1p-24) * 0x1p127;
    if (i % 50 == 7) in.a[i] = prism::BitsOf<double>(~std::uint64_t{0});  // a NaN that a carry could change
  }
  for (const Mode mode : kModes) {
    for (const int precision : Type<float>::kPrecisions) {
      const Rounding rounding = MakeRounding(mode, precision);
      Values<float> expected(in.a.size());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        expected[i] = static_cast<float>(prism::Round(prism::ExactValue(in.a[i]), prism::Float32Format(precision),
                                                      mode, RandomOf(rounding, 9 + i)));
      }
      for (const std::string& target : prism::Targets()) {
        prism::SetTarget(target);
        Values<float> out(in.a.size());
        prism::Cast(in.a.data(), out.data(), out.size(), rounding, 9);
        CheckSame(expected, out, "cast", rounding);
      }
    }
  }
}

template <class T>
Values<T> Spread(const Operand<T>& operand, std::size_t count) {
  Values<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = operand.data[i / operand.inner % operand.period];
  return values;
}

// A scalar, a row, a channel and periods that fit no group give the bits of operands written out.
template <class T>
void CheckBroadcast() {
  const std::size_t count = 9000;
  const Operands<T> in = MakeOperands<T>(count);
  const Operand<T> operands[] = {Operand<T>::Scalar(&in.b[1]), Operand<T>::Row(in.b.data(), 7),
                                 Operand<T>::Row(in.b.data(), 2999), Operand<T>::Channel(in.b.data(), 5, 11),
                                 Operand<T>::Channel(in.b.data(), 3001, 3), Operand<T>::Channel(in.b.data(), 70, 1)};
  const Rounding rounding = MakeRounding(Mode::kStochastic, 0);
  for (const std::string& target : prism::Targets()) {
    prism::SetTarget(target);
    for (const Operand<T>& operand : operands) {
      const Operands<T> written{in.a, Spread(operand, count), in.c};
      const Values<T> expected = Applied(Elementwise::kFma, written, rounding, 3);
      Values<T> out(count + 1, T{42});
      prism::Fma(Operand<T>::Whole(in.a.data(), count), operand, Operand<T>::Whole(in.c.data(), count), out.data(),
                 count, rounding, 3);
      CHECK(out.back() == T{42}, "wrote past the end");
      out.pop_back();
      CheckSame(expected, out, "fma with a broadcast operand", rounding);
    }
  }
}

void TestBroadcast() {
  CheckBroadcast<float>();
  CheckBroadcast<double>();
}

// A part gives the bits of the whole, so does any number of threads; the result may take an operand's place; nothing
// beyond `count` is touched.
template <class T>
void CheckSplits() {
  const Operands<T> in = MakeOperands<T>(1700);
  for (const std::string& target : prism::Targets()) {
    prism::SetTarget(target);
    for (const Mode mode : kModes) {
      const Rounding rounding = MakeRounding(mode, 0);
      const Values<T> whole = Applied(Elementwise::kMultiply, in, rounding);
      std::mt19937 random(4);
      Values<T> parts(in.a.size() + 1, T{42});
      for (std::size_t at = 0; at < in.a.size();) {
        const std::size_t count = std::min<std::size_t>(1 + random() % 90, in.a.size() - at);
        prism::Multiply(Operand<T>::Whole(&in.a[at], count), Operand<T>::Whole(&in.b[at], count), &parts[at], count,
                        rounding, at);
        CHECK(parts[at + count] == T{42}, "wrote past element %zu", at + count);
        at += count;
      }
      parts.pop_back();
      CheckSame(whole, parts, "split multiply", rounding);
      Values<T> in_place = in.a;
      prism::Multiply(Operand<T>::Whole(in_place.data(), in_place.size()),
                      Operand<T>::Whole(in.b.data(), in.b.size()), in_place.data(), in_place.size(), rounding);
      CheckSame(whole, in_place, "multiply in place", rounding);
    }
  }
}

void TestSplits() {
  CheckSplits<float>();
  CheckSplits<double>();
}

void TestThreads() {
  const Operands<float> in = MakeOperands<float>(300'001);
  for (const Mode mode : kModes) {
    Rounding rounding = MakeRounding(mode, 0);
    const Values<float> alone = Applied(Elementwise::kAdd, in, rounding, 13);
    rounding.threads = 3;
    CheckSame(alone, Applied(Elementwise::kAdd, in, rounding, 13), "add by three threads", rounding);
  }
}

// Neither the caller's rounding direction nor flush-to-zero changes a bit, and both are as before afterwards.
void TestEnvironment() {
  Operands<float> in = MakeOperands<float>(300);
  for (std::size_t i = 0; i < 100; ++i) {
    in.a[i] = static_cast<float>(i) * std::numeric_limits<float>::denorm_min();
    in.b[i] = 3 * std::numeric_limits<float>::denorm_min();
  }
  for (const std::string& target : prism::Targets()) {
    prism::SetTarget(target);
    for (const Mode mode : kModes) {
      const Rounding rounding = MakeRounding(mode, 0);
      const Values<float> expected = Applied(Elementwise::kAdd, in, rounding);
      std::fesetround(FE_UPWARD);
#if defined(__SSE2__)
      const unsigned saved = _mm_getcsr();
      _mm_setcsr(saved | 0x8040u);
#endif
      const Values<float> actual = Applied(Elementwise::kAdd, in, rounding);
#if defined(__SSE2__)
      CHECK((_mm_getcsr() & 0x8040u) == 0x8040u, "flush-to-zero was not restored");
      _mm_setcsr(saved);
#endif
      CHECK(std::fegetround() == FE_UPWARD, "the rounding direction was not restored");
      std::fesetround(FE_TONEAREST);
      CheckSame(expected, actual, "add under another environment", rounding);
    }
  }
}

// A rounding that is not as prism.h says is refused before anything is written.
void TestRefusals() {
  const float one = 1;
  const auto refused = [&](const Rounding& rounding) {
    float out = 42;
    try {
      prism::Sqrt(Operand<float>::Scalar(&one), &out, 1, rounding);
    } catch (const std::invalid_argument&) {
      return out == 42;
    }
    return false;
  };
  Rounding precise;
  precise.precision = 25;
  CHECK(refused(precise), "25 bits of a float32");
  Rounding far;
  far.operation = std::uint64_t{1} << 56;
  CHECK(refused(far), "operation 2^56");
  Rounding idle;
  idle.threads = 0;
  CHECK(refused(idle), "no thread");
}

const Test float_bits("float_bits", TestFloatBits);
const Test double_bits("double_bits", TestDoubleBits);
const Test thresholds("thresholds", TestThresholds);
const Test cast_bits("cast_bits", TestCastBits);
const Test broadcast("broadcast", TestBroadcast);
const Test splits("splits", TestSplits);
const Test threads("threads", TestThreads);
const Test environment("environment", TestEnvironment);
const Test refusals("refusals", TestRefusals);

}  // namespace
