// Rounding of float32 results in float64 lanes: exact.h on whole vectors. Included once per target.
//
// An operation on float32 operands is done in float64, where a product is exact and any other result is off by at most
// 2^-30 of a float32 ulp; `error` has the sign of what the float64 lacks (exact result minus float64).

#if defined(PRISM_SRC_ROUNDING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PRISM_SRC_ROUNDING_INL_H_
#undef PRISM_SRC_ROUNDING_INL_H_
#else
#define PRISM_SRC_ROUNDING_INL_H_
#endif

#include <cmath>

#include "exact.h"
#include "random-inl.h"

HWY_BEFORE_NAMESPACE();
namespace prism {
namespace HWY_NAMESPACE {

using MCarrier = hn::Mask<DCarrier>;

// Fused on every target.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Fma(D d, V a, V b, V c) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d, std::fma(hn::GetLane(a), hn::GetLane(b), hn::GetLane(c)));
#else
  (void)d;
  return hn::MulAdd(a, b, c);
#endif
}

// float64 lanes that hold float32 values or infinities. Highway's scalar target would make infinities finite.
HWY_INLINE hn::Vec<hn::Rebind<float, DCarrier>> Demoted(VCarrier x) {
  const hn::Rebind<float, DCarrier> narrow;
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(narrow, static_cast<float>(hn::GetLane(x)));
#else
  return hn::DemoteTo(narrow, x);
#endif
}

// What rounding to `precision` bits needs, computed once.
struct NarrowFormat {
  explicit NarrowFormat(int precision)
      : bits(precision == 0 ? 24 : precision),
        dropped(53 - bits),
        largest((2 - std::ldexp(1.0, 1 - bits)) * 0x1p127),
        overflow((2 - std::ldexp(1.0, -bits)) * 0x1p127),
        smallest(std::ldexp(1.0, -126 - bits + 1)) {}

  int bits;
  int dropped;      // of a float64's significand bits
  double largest;
  double overflow;  // from here on a result is infinite
  double smallest;  // the spacing of the subnormal numbers
};

// The float64 and what it lacks.
struct Carried {
  VCarrier value;
  VCarrier error;
};

HWY_INLINE Carried CarrySum(VCarrier a, VCarrier b) {
  const VCarrier sum = hn::Add(a, b);
  const VCarrier b_part = hn::Sub(sum, a);
  const VCarrier error = hn::Add(hn::Sub(a, hn::Sub(sum, b_part)), hn::Sub(b, b_part));
  return {sum, error};
}

HWY_INLINE Carried CarryFma(VCarrier a, VCarrier b, VCarrier c) { return CarrySum(hn::Mul(a, b), c); }

HWY_INLINE Carried CarryQuotient(VCarrier a, VCarrier b) {
  const DCarrier d;
  const VCarrier quotient = hn::Div(a, b);
  const VCarrier rest = Fma(d, hn::Neg(quotient), b, a);
  return {quotient, hn::Xor(rest, hn::And(b, hn::SignBit(d)))};
}

HWY_INLINE Carried CarrySqrt(VCarrier a) {
  const DCarrier d;
  const VCarrier root = hn::Sqrt(a);
  return {root, Fma(d, hn::Neg(root), root, a)};
}

// Positive `x` with its last bit set where it is not exact: truncation and ties then see what it lacks.
HWY_INLINE VImage RoundedToOdd(VCarrier x, VCarrier error) {
  const DCarrier d;
  const DImage image;
  const VImage bits = hn::BitCast(image, x);
  const VImage one = hn::Set(image, 1);
  const auto below = hn::RebindMask(image, hn::Lt(error, hn::Zero(d)));
  const auto exact = hn::RebindMask(image, hn::Eq(error, hn::Zero(d)));
  const VImage cut = hn::Sub(bits, hn::IfThenElseZero(below, one));
  return hn::IfThenElse(exact, bits, hn::Or(cut, one));
}

HWY_INLINE VImage NearestImage(VImage bits, const NarrowFormat& format) {
  const DImage image;
  const VImage odd = hn::And(hn::ShiftRightSame(bits, format.dropped), hn::Set(image, 1));
  const VImage half = hn::Set(image, (std::uint64_t{1} << (format.dropped - 1)) - 1);
  const VImage mask = hn::Set(image, ~((std::uint64_t{1} << format.dropped) - 1));
  return hn::And(hn::Add(hn::Add(bits, half), odd), mask);
}

HWY_INLINE VCarrier CanonicalNan64() {
  return hn::BitCast(DCarrier(), hn::Set(DImage(), kCanonicalNan64));
}

// One result a lane, a float32 of the format's precision as a float64, infinity beyond. `bits29`: see stream.h;
// `bit`: the sign bit of each lane is the lane's bit.
template <Mode kMode>
HWY_INLINE VCarrier RoundNarrow(const Carried& x, VImage bits29, VCarrier bit, const NarrowFormat& format) {
  const DCarrier d;
  const DImage image;
  const VCarrier sign = hn::And(x.value, hn::SignBit(d));
  const VCarrier magnitude = hn::Abs(x.value);
  const VCarrier smallest_normal = hn::Set(d, 0x1p-126);
  const VCarrier bias = hn::IfThenElseZero(hn::Lt(magnitude, smallest_normal), smallest_normal);
  const VImage unit = hn::Set(image, std::uint64_t{1} << format.dropped);
  const VImage mask = hn::Set(image, ~((std::uint64_t{1} << format.dropped) - 1));
  const VCarrier infinity = hn::Set(d, std::numeric_limits<double>::infinity());
  VCarrier result;
  if constexpr (kMode == Mode::kStochastic) {
    // A random number below the dropped bits carries with probability dropped bits / 2^dropped.
    const VImage half = hn::Set(image, std::uint64_t{1} << (format.dropped - 1));
    const auto past = hn::RebindMask(image, hn::Gt(magnitude, hn::Set(d, format.largest)));
    const VImage random = hn::IfThenElse(past, half, hn::ShiftLeftSame(bits29, format.dropped - 29));
    const VImage moved = hn::Add(hn::BitCast(image, hn::Add(magnitude, bias)), random);
    result = hn::Sub(hn::BitCast(d, hn::And(moved, mask)), bias);
  } else {
    const VCarrier odd = hn::BitCast(d, RoundedToOdd(magnitude, hn::Xor(x.error, sign)));
    const VCarrier biased = hn::Add(odd, bias);
    const VImage bits = RoundedToOdd(biased, hn::Sub(odd, hn::Sub(biased, bias)));
    const VCarrier nearest = hn::Sub(hn::BitCast(d, NearestImage(bits, format)), bias);
    const auto beyond = hn::Ge(nearest, hn::Set(d, 0x1p128));
    if constexpr (kMode == Mode::kNearest) {
      result = nearest;
    } else if constexpr (kMode == Mode::kUpDown) {
      const auto toward = hn::MaskFromVec(hn::BitCast(d, hn::BroadcastSignBit(hn::BitCast(hn::RebindToSigned<DCarrier>(), bit))));
      const VCarrier least = hn::Set(d, format.smallest);
      const VImage nearest_bits = hn::BitCast(image, nearest);
      const VCarrier down = hn::IfThenElse(hn::Le(nearest, smallest_normal), hn::Sub(nearest, least),
                                           hn::BitCast(d, hn::Sub(nearest_bits, unit)));
      const VCarrier up = hn::IfThenElse(hn::Lt(nearest, smallest_normal), hn::Add(nearest, least),
                                         hn::BitCast(d, hn::Add(nearest_bits, unit)));
      result = hn::IfThenElse(toward, down, up);
      result = hn::IfThenElse(hn::Eq(nearest, hn::Zero(d)), nearest, result);
    } else {
      // Down is towards zero where x is positive.
      const auto toward = hn::MaskFromVec(hn::BitCast(
          d, hn::BroadcastSignBit(hn::BitCast(hn::RebindToSigned<DCarrier>(), hn::Xor(bit, sign)))));
      const VImage room = hn::IfThenElse(hn::RebindMask(image, toward), hn::Zero(image), hn::Not(mask));
      result = hn::Sub(hn::BitCast(d, hn::And(hn::Add(bits, room), mask)), bias);
      result = hn::Min(result, hn::Set(d, format.largest));
    }
    result = hn::IfThenElse(beyond, infinity, result);
  }
  result = hn::IfThenElse(hn::Ge(result, hn::Set(d, 0x1p128)), infinity, result);
  // Zero and infinity stay as they are; there, what was computed above has no meaning.
  const auto stays = hn::Or(hn::Eq(magnitude, hn::Zero(d)), hn::Eq(magnitude, infinity));
  result = hn::IfThenElse(stays, magnitude, result);
  return hn::IfThenElse(hn::IsNaN(x.value), CanonicalNan64(), hn::Or(result, sign));
}

// SR of a result that is known to be a normal number of full precision below overflow, or a float32.
HWY_INLINE VCarrier RoundCarrier(VCarrier x, VImage bits29) {
  const DImage image;
  constexpr std::uint64_t kMask = ~((std::uint64_t{1} << 29) - 1);
  return hn::BitCast(DCarrier(), hn::And(hn::Add(hn::BitCast(image, x), bits29), hn::Set(image, kMask)));
}

}  // namespace HWY_NAMESPACE
}  // namespace prism
HWY_AFTER_NAMESPACE();

#endif  // PRISM_SRC_ROUNDING_INL_H_
