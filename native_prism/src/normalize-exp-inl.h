// exp in float64 lanes: the same fused operations, and so the same bits, on every target. Included once per target.

#if defined(PRISM_SRC_NORMALIZE_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PRISM_SRC_NORMALIZE_EXP_INL_H_
#undef PRISM_SRC_NORMALIZE_EXP_INL_H_
#else
#define PRISM_SRC_NORMALIZE_EXP_INL_H_
#endif

#include "rounding-inl.h"

HWY_BEFORE_NAMESPACE();
namespace prism {
namespace HWY_NAMESPACE {

// exp(t) of t <= 0. With k the integer nearest to t / ln 2 and r = t - k ln 2, |r| < 0.3466, it is 2^k times the first
// kDegree + 1 terms of the series of exp(r); the next one is below 2^-47.2 (degree 11) or 2^-57 (13). With the rounding
// of the fused steps the relative error is below 2^-46 or 2^-51. exp(0) is 1. Where kTiny is false, t below -700 counts
// as -700: for float32, which has no number near that. Else what is below the normal float64 is rounded once more.
template <int kDegree, bool kTiny>
HWY_INLINE VCarrier Exp(VCarrier t) {
  const DCarrier d;
  const DImage image;
  constexpr double kTerms[] = {1.0,           1.0,           1.0 / 2,         1.0 / 6,          1.0 / 24,
                               1.0 / 120,     1.0 / 720,     1.0 / 5040,      1.0 / 40320,      1.0 / 362880,
                               1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
  const VCarrier least = hn::Set(d, kTiny ? -1000.0 : -700.0);
  // Written so that a NaN becomes `least`; it is put back at the end.
  const VCarrier bounded = hn::IfThenElse(hn::Gt(t, least), t, least);
  // The sum's last bits are the integer.
  const VCarrier magic = hn::Set(d, 0x1.8p52);
  const VCarrier shifted = Fma(d, bounded, hn::Set(d, 1.4426950408889634), magic);
  const VCarrier k = hn::Sub(shifted, magic);
  VCarrier r = Fma(d, k, hn::Set(d, -0x1.62e42fefa39efp-1), bounded);
  r = Fma(d, k, hn::Set(d, -0x1.abc9e3b39803fp-56), r);
  VCarrier sum = hn::Set(d, kTerms[kDegree]);
  for (int i = kDegree - 1; i >= 0; --i) sum = Fma(d, sum, r, hn::Set(d, kTerms[i]));
  VCarrier result;
  if constexpr (kTiny) {
    // 2^k = 2^(k + 500) 2^-500, both normal; only the last product can be inexact.
    const VImage scale = hn::ShiftLeft<52>(hn::Add(hn::BitCast(image, shifted), hn::Set(image, std::uint64_t{1523})));
    result = hn::Mul(hn::Mul(sum, hn::BitCast(d, scale)), hn::Set(d, 0x1p-500));
  } else {
    const VImage scale = hn::ShiftLeft<52>(hn::Add(hn::BitCast(image, shifted), hn::Set(image, std::uint64_t{1023})));
    result = hn::Mul(sum, hn::BitCast(d, scale));
  }
  const VCarrier infinity = hn::Set(d, -std::numeric_limits<double>::infinity());
  result = hn::IfThenElse(hn::Eq(t, infinity), hn::Zero(d), result);
  return hn::IfThenElse(hn::Eq(t, t), result, t);
}

}  // namespace HWY_NAMESPACE
}  // namespace prism
HWY_AFTER_NAMESPACE();

#endif  // PRISM_SRC_NORMALIZE_EXP_INL_H_
