// One element at a time: the definition that the vector kernels must match bit for bit.

#ifndef PRISM_SRC_SCALAR_H_
#define PRISM_SRC_SCALAR_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace prism {

constexpr int kDroppedBits = 29;  // float64 has 29 more significand bits than float32
constexpr std::uint64_t kDroppedMask = (std::uint64_t{1} << kDroppedBits) - 1;
constexpr std::uint32_t kCanonicalNan = 0x7FC00000u;
constexpr float kLargest = std::numeric_limits<float>::max();

template <class To, class From>
inline To BitsOf(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

inline float Canonical(float x) { return std::isnan(x) ? BitsOf<float>(kCanonicalNan) : x; }

// The sum in float64 is off by at most 2^-30 of a float32 ulp. Adding a random number below the dropped bits
// to its integer image and cutting them off carries with probability (dropped bits) / 2^29; where they are
// zero, as for every sum that is a float32, it never does. A subnormal sum is always a float32: both operands
// are multiples of 2^-149. In a sum beyond the largest float32 the random number is one half: RN.
inline float AddStochastic(float a, float b, std::uint32_t word) {
  const double sum = static_cast<double>(a) + static_cast<double>(b);
  const bool beyond = std::fabs(sum) > static_cast<double>(kLargest);
  const std::uint64_t random = beyond ? std::uint64_t{1} << (kDroppedBits - 1) : word >> (32 - kDroppedBits);
  const std::uint64_t image = (BitsOf<std::uint64_t>(sum) + random) & ~kDroppedMask;
  return std::isnan(sum) ? BitsOf<float>(kCanonicalNan) : static_cast<float>(BitsOf<double>(image));
}

// The next float32 away from zero where `away`, else towards zero, which is up or down by the sign.
inline float AddUpDown(float a, float b, bool away) {
  const float nearest = a + b;
  if (nearest == 0.0f || !std::isfinite(nearest)) return Canonical(nearest);
  return BitsOf<float>(BitsOf<std::uint32_t>(nearest) + (away ? 1u : ~0u));
}

inline float AddNearest(float a, float b) { return Canonical(a + b); }

}  // namespace prism

#endif  // PRISM_SRC_SCALAR_H_
