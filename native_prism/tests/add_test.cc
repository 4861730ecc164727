#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "check.h"
#include "prism/prism.h"
#include "scalar.h"
#include "stream.h"

namespace {

using Floats = std::vector<float>;

constexpr prism::Mode kModes[] = {prism::Mode::kNearest, prism::Mode::kStochastic, prism::Mode::kUpDown};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kSmallest = std::numeric_limits<float>::denorm_min();

std::uint32_t Bits(float x) { return prism::BitsOf<std::uint32_t>(x); }

// Any bit pattern at all, NaN and subnormals too, with every third pair close enough to round.
void FillOperands(Floats& a, Floats& b) {
  std::mt19937 random(20260);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = prism::BitsOf<float>(static_cast<std::uint32_t>(random()));
    b[i] = prism::BitsOf<float>(static_cast<std::uint32_t>(random()));
    if (i % 3 == 0) b[i] = std::ldexp(a[i], -static_cast<int>(random() % 40)) * 1.37f;
    if (i % 50 == 1) b[i] = -a[i];
  }
}

float ScalarAdd(float a, float b, prism::Mode mode, const prism::Draw& draw, std::uint64_t index) {
  const auto word = [&](std::uint64_t i) {
    return prism::ScalarBlock(prism::MakeRoundKeys(draw), i / 4, draw.operation)[i % 4];
  };
  switch (mode) {
    case prism::Mode::kNearest:
      return prism::AddNearest(a, b);
    case prism::Mode::kStochastic:
      return prism::AddStochastic(a, b, word(index));
    case prism::Mode::kUpDown:
      return prism::AddUpDown(a, b, (word(index / 512 * 16 + index % 16) >> (index / 16 % 32)) & 1);
  }
  return kNan;
}

void CheckSame(const Floats& expected, const Floats& actual, const char* what) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(Bits(expected[i]) == Bits(actual[i]), "%s on %s, element %zu: expected %08x, got %08x", what,
          prism::Target().c_str(), i, Bits(expected[i]), Bits(actual[i]));
  }
}

Floats Sum(const Floats& a, const Floats& b, prism::Mode mode, const prism::Draw& draw, std::uint64_t first = 0) {
  Floats sum(a.size());
  prism::Add(a.data(), b.data(), sum.data(), a.size(), mode, draw, first);
  return sum;
}

}  // namespace

void TestTargets() {
  const auto targets = prism::Targets();
  CHECK(!targets.empty(), "no target");
  for (const std::string& target : targets) {
    std::printf("target %s\n", target.c_str());
    prism::SetTarget(target);
    CHECK(prism::Target() == target, "asked for %s, got %s", target.c_str(), prism::Target().c_str());
  }
  prism::SetTarget("");
  CHECK(prism::Target() == targets.front(), "the best is %s, got %s", targets.front().c_str(),
        prism::Target().c_str());
  bool refused = false;
  try {
    prism::SetTarget("Z80");
  } catch (const std::invalid_argument& error) {
    refused = std::string(error.what()).find(targets.back()) != std::string::npos;
  }
  CHECK(refused, "an unknown target must be refused with the choices");
}

// Every target gives the bits of the definition in scalar.h.
void TestEqualBits() {
  Floats a(5000), b(5000), expected(5000);
  FillOperands(a, b);
  const prism::Draw draw{7, 3, 11};
  const std::uint64_t first = (std::uint64_t{1} << 40) + 5;
  for (const prism::Mode mode : kModes) {
    for (std::size_t i = 0; i < a.size(); ++i) expected[i] = ScalarAdd(a[i], b[i], mode, draw, first + i);
    for (const std::string& target : prism::Targets()) {
      prism::SetTarget(target);
      CheckSame(expected, Sum(a, b, mode, draw, first), "add");
    }
  }
}

// A part gives the bits of the whole; the sum may take an operand's place; nothing beyond `count` is touched.
void TestSplits() {
  Floats a(1700), b(1700);
  FillOperands(a, b);
  const prism::Draw draw{1, 2, 3};
  for (const std::string& target : prism::Targets()) {
    prism::SetTarget(target);
    for (const prism::Mode mode : kModes) {
      const Floats whole = Sum(a, b, mode, draw);
      std::mt19937 random(4);
      Floats parts(a.size() + 1, 42.0f);
      for (std::size_t at = 0; at < a.size();) {
        const std::size_t count = std::min<std::size_t>(1 + random() % 90, a.size() - at);
        prism::Add(&a[at], &b[at], &parts[at], count, mode, draw, at);
        CHECK(parts[at + count] == 42.0f, "wrote past element %zu", at + count);
        at += count;
      }
      parts.pop_back();
      CheckSame(whole, parts, "split add");
      Floats in_place = a;
      prism::Add(in_place.data(), b.data(), in_place.data(), a.size(), mode, draw);
      CheckSame(whole, in_place, "add in place");
    }
  }
}

void TestSpecialValues() {
  const float largest = std::numeric_limits<float>::max();
  const float half_ulp = std::ldexp(1.0f, 103);
  struct Case {
    float a, b, sum;
  };
  // Those that every mode must give, for every draw.
  const Case always[] = {
      {kInfinity, 1.0f, kInfinity},   {-kInfinity, largest, -kInfinity}, {kInfinity, -kInfinity, kNan},
      {kNan, 1.0f, kNan},             {0.0f, 0.0f, 0.0f},                {-0.0f, -0.0f, -0.0f},
      {-0.0f, 0.0f, 0.0f},            {1.5f, -1.5f, 0.0f},               {-kSmallest, kSmallest, 0.0f},
      {largest, largest, kInfinity},  {-largest, -largest, -kInfinity},  {largest, half_ulp, kInfinity},
      {-largest, -half_ulp, -kInfinity}};
  // Exact or beyond the largest float32: SR gives what RN gives.
  const Case exact[] = {{largest, half_ulp * 0.99f, largest}, {-largest, -half_ulp * 0.99f, -largest},
                        {kSmallest, kSmallest, 2 * kSmallest}, {1.0f, 0.5f, 1.5f},
                        {largest, 0.0f, largest},              {1e-40f, 0.0f, 1e-40f}};
  for (const std::string& target : prism::Targets()) {
    prism::SetTarget(target);
    for (std::uint64_t sample = 0; sample < 64; ++sample) {
      const prism::Draw draw{5, sample, 0};
      for (const prism::Mode mode : kModes) {
        const auto check = [&](const Case& c) {
          const float sum = Sum(Floats(40, c.a), Floats(40, c.b), mode, draw)[sample % 40];
          CHECK(Bits(sum) == Bits(c.sum), "%s mode %d: %g + %g: expected %08x, got %08x", target.c_str(),
                static_cast<int>(mode), c.a, c.b, Bits(c.sum), Bits(sum));
        };
        for (const Case& c : always) check(c);
        if (mode != prism::Mode::kUpDown) {
          for (const Case& c : exact) check(c);
        }
      }
      for (const Case& c : exact) {
        const float sum = Sum({c.a}, {c.b}, prism::Mode::kUpDown, draw)[0];
        CHECK(sum == std::nextafter(c.sum, kInfinity) || sum == std::nextafter(c.sum, -kInfinity),
              "%s: UD of %g gave %g", target.c_str(), c.sum, sum);
      }
    }
  }
}

// Neither the caller's rounding direction nor flush-to-zero changes a bit, and both are as before afterwards.
void TestEnvironment() {
  Floats a(300), b(300);
  FillOperands(a, b);
  for (std::size_t i = 0; i < 100; ++i) {
    a[i] = static_cast<float>(i) * kSmallest;
    b[i] = 3 * kSmallest;
  }
  const prism::Draw draw{9, 9, 9};
  for (const std::string& target : prism::Targets()) {
    prism::SetTarget(target);
    for (const prism::Mode mode : kModes) {
      const Floats expected = Sum(a, b, mode, draw);
      std::fesetround(FE_UPWARD);
#if defined(__SSE2__)
      const unsigned saved = _mm_getcsr();
      _mm_setcsr(saved | 0x8040u);
#endif
      const Floats actual = Sum(a, b, mode, draw);
#if defined(__SSE2__)
      CHECK((_mm_getcsr() & 0x8040u) == 0x8040u, "flush-to-zero was not restored");
      _mm_setcsr(saved);
#endif
      CHECK(std::fegetround() == FE_UPWARD, "the rounding direction was not restored");
      std::fesetround(FE_TONEAREST);
      CheckSame(expected, actual, "add under another environment");
    }
  }
}
