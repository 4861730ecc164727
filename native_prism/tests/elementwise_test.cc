// Element-wise operations on every target against exact.h, the definition.

#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "check.h"
#include "elementwise_data.h"

namespace {

using namespace elementwise;

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
