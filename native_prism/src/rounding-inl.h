// scalar.h, 16 elements at a time. Included once per target.

#if defined(PRISM_SRC_ROUNDING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PRISM_SRC_ROUNDING_INL_H_
#undef PRISM_SRC_ROUNDING_INL_H_
#else
#define PRISM_SRC_ROUNDING_INL_H_
#endif

#include "random-inl.h"
#include "scalar.h"

HWY_BEFORE_NAMESPACE();
namespace prism {
namespace HWY_NAMESPACE {

#if PRISM_VECTORS

// At most 16 lanes, so that every target walks through a group in the same order.
using DF = hn::CappedTag<float, kGroup>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
// The carrier: float64 lanes, and the float32 and 32-bit lanes that fill them.
using DCarrier = hn::CappedTag<double, kGroup / 2>;
using DImage = hn::RebindToUnsigned<DCarrier>;
using DNarrow = hn::Rebind<float, DCarrier>;
using DWord = hn::Rebind<std::uint32_t, DCarrier>;

template <class V>
HWY_INLINE V CanonicalNan(V x) {
  const hn::DFromV<V> d;
  const auto nan = hn::BitCast(d, hn::Set(hn::RebindToUnsigned<decltype(d)>(), kCanonicalNan));
  return hn::IfThenElse(hn::IsNaN(x), nan, x);
}

HWY_INLINE void AddNearestGroup(const float* a, const float* b, float* sum) {
  const DF d;
  for (std::size_t i = 0; i < kGroup; i += hn::Lanes(d)) {
    hn::StoreU(CanonicalNan(hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i))), d, sum + i);
  }
}

HWY_INLINE hn::Vec<DNarrow> RoundCarrier(hn::Vec<DCarrier> x, hn::Vec<DImage> random) {
  const DImage image;
  const auto moved = hn::Add(hn::BitCast(image, x), random);
  const auto cut = hn::And(moved, hn::Set(image, ~kDroppedMask));
  return hn::DemoteTo(DNarrow(), hn::BitCast(DCarrier(), cut));
}

// A vector that holds a NaN or a sum near or beyond the largest float32: all that AddStochastic guards.
HWY_NOINLINE hn::Vec<DNarrow> RoundCarrierGuarded(hn::Vec<DCarrier> x, hn::Vec<DImage> random) {
  const DCarrier d;
  const DImage image;
  const auto half = hn::Set(image, std::uint64_t{1} << (kDroppedBits - 1));
  const auto beyond = hn::Gt(hn::Abs(x), hn::Set(d, static_cast<double>(kLargest)));
  const auto guarded = hn::IfThenElse(hn::RebindMask(image, beyond), half, random);
  return CanonicalNan(RoundCarrier(x, guarded));
}

HWY_INLINE void AddStochasticGroup(const float* a, const float* b, float* sum, const std::uint32_t* words) {
  const DCarrier d;
  const DNarrow narrow;
  const hn::RebindToSigned<DNarrow> bits;
  constexpr std::size_t kParts = kGroup / hn::MaxLanes(DCarrier());
  hn::Vec<DCarrier> x[kParts];
  hn::Vec<DImage> random[kParts];
  hn::Vec<DNarrow> rounded[kParts];
  auto greatest = hn::Zero(bits);
  for (std::size_t part = 0; part < kParts; ++part) {
    const std::size_t i = part * hn::Lanes(d);
    x[part] = hn::Add(hn::PromoteTo(d, hn::LoadU(narrow, a + i)), hn::PromoteTo(d, hn::LoadU(narrow, b + i)));
    random[part] = hn::PromoteTo(DImage(), hn::ShiftRight<32 - kDroppedBits>(hn::Load(DWord(), words + i)));
    rounded[part] = RoundCarrier(x[part], random[part]);
    greatest = hn::Max(greatest, hn::BitCast(bits, hn::Abs(rounded[part])));
  }
  // As integers, NaN and infinity are greater than the largest float32.
  const auto largest = hn::BitCast(bits, hn::Set(narrow, kLargest));
  if (HWY_UNLIKELY(!hn::AllTrue(bits, hn::Lt(greatest, largest)))) {
    for (std::size_t part = 0; part < kParts; ++part) {
      rounded[part] = RoundCarrierGuarded(x[part], random[part]);
    }
  }
  for (std::size_t part = 0; part < kParts; ++part) {
    hn::StoreU(rounded[part], narrow, sum + part * hn::Lanes(d));
  }
}

// `bit` has the one bit set that decides for this group.
HWY_INLINE void AddUpDownGroup(const float* a, const float* b, float* sum, const std::uint32_t* words,
                               hn::Vec<DU> bit) {
  const DF d;
  const DI di;
  constexpr std::size_t kParts = kGroup / hn::MaxLanes(DF());
  hn::Vec<DF> nearest[kParts];
  hn::Vec<DF> result[kParts];
  auto greatest = hn::Zero(di);
  for (std::size_t part = 0; part < kParts; ++part) {
    const std::size_t i = part * hn::Lanes(d);
    nearest[part] = hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i));
    greatest = hn::Max(greatest, hn::BitCast(di, hn::Abs(nearest[part])));
    const auto away = hn::RebindMask(di, hn::TestBit(hn::Load(DU(), words + i), bit));
    const auto step = hn::IfThenElse(away, hn::Set(di, 1), hn::Set(di, -1));
    const auto moved = hn::BitCast(d, hn::Add(hn::BitCast(di, nearest[part]), step));
    result[part] = hn::IfThenElse(hn::Eq(nearest[part], hn::Zero(d)), nearest[part], moved);
  }
  // As integers, NaN and infinity are greater than the largest float32.
  const auto largest = hn::BitCast(di, hn::Set(d, kLargest));
  if (HWY_UNLIKELY(!hn::AllFalse(di, hn::Gt(greatest, largest)))) {
    for (std::size_t part = 0; part < kParts; ++part) {
      const auto finite = hn::Le(hn::Abs(nearest[part]), hn::Set(d, kLargest));
      result[part] = CanonicalNan(hn::IfThenElse(finite, result[part], nearest[part]));
    }
  }
  for (std::size_t part = 0; part < kParts; ++part) hn::StoreU(result[part], d, sum + part * hn::Lanes(d));
}

#else

inline void AddNearestGroup(const float* a, const float* b, float* sum) {
  for (int i = 0; i < kGroup; ++i) sum[i] = AddNearest(a[i], b[i]);
}

inline void AddStochasticGroup(const float* a, const float* b, float* sum, const std::uint32_t* words) {
  for (int i = 0; i < kGroup; ++i) sum[i] = AddStochastic(a[i], b[i], words[i]);
}

inline void AddUpDownGroup(const float* a, const float* b, float* sum, const std::uint32_t* words,
                           std::uint32_t bit) {
  for (int i = 0; i < kGroup; ++i) sum[i] = AddUpDown(a[i], b[i], (words[i] & bit) != 0);
}

#endif  // PRISM_VECTORS

}  // namespace HWY_NAMESPACE
}  // namespace prism
HWY_AFTER_NAMESPACE();

#endif  // PRISM_SRC_ROUNDING_INL_H_
