// Rounding of float64 results by vectors. Included once per target.
//
// The exact result is v + e: v what the hardware gives, e below half a unit of v's last bit, known exactly by an
// error-free transformation. That holds while nothing underflows or overflows on the way, so a group in which a
// lane may not be so ordinary is done lane by lane.

#if defined(PRISM_SRC_ELEMENTWISE_WIDE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PRISM_SRC_ELEMENTWISE_WIDE_INL_H_
#undef PRISM_SRC_ELEMENTWISE_WIDE_INL_H_
#else
#define PRISM_SRC_ELEMENTWISE_WIDE_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "elementwise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace prism {
namespace HWY_NAMESPACE {

HWY_INLINE MCarrier InRange(VCarrier x, double least, double most) {
  const DCarrier d;
  const VCarrier magnitude = hn::Abs(x);
  return hn::And(hn::Ge(magnitude, hn::Set(d, least)), hn::Le(magnitude, hn::Set(d, most)));
}

HWY_INLINE MCarrier IsZero(VCarrier x) { return hn::Eq(x, hn::Zero(DCarrier())); }

HWY_INLINE MCarrier Always() { return IsZero(hn::Zero(DCarrier())); }

// What `high` lacks has the sign of `low`.
struct Scaled {
  VCarrier high;
  VCarrier low;
};

// An error in other units. A tiny one stays one: the product might underflow, and nothing depends on how tiny it is.
HWY_INLINE VCarrier InUnits(VCarrier error, VCarrier scale) {
  const VCarrier scaled = hn::Mul(error, scale);
  const VCarrier least = hn::Max(hn::Abs(scaled), hn::Set(DCarrier(), 0x1p-100));
  return hn::IfThenElse(IsZero(error), error, hn::CopySign(least, scaled));
}

// Of one operation: v as `value`; a number with the sign of e as `error`, zero where v is exact; e `scale` by In; where
// all of that can be relied on as `ordinary`, and where a zero v is exact as `zero_is_exact`.
struct WideOfSum {
  static constexpr bool kApproximate = false;
  VCarrier value, error;
  MCarrier ordinary, zero_is_exact;

  HWY_INLINE WideOfSum(VCarrier a, VCarrier b) : ordinary(Always()), zero_is_exact(Always()) {
    const Carried sum = CarrySum(a, b);
    value = sum.value;
    error = sum.error;
  }
  HWY_INLINE Scaled In(VCarrier scale) const { return {InUnits(error, scale), hn::Zero(DCarrier())}; }
};

template <class Operation>
struct Wide;

template <>
struct Wide<AddOperation> : WideOfSum {
  HWY_INLINE Wide(VCarrier a, VCarrier b, VCarrier) : WideOfSum(a, b) {}
};

template <>
struct Wide<SubtractOperation> : WideOfSum {
  HWY_INLINE Wide(VCarrier a, VCarrier b, VCarrier) : WideOfSum(a, hn::Neg(b)) {}
};

template <>
struct Wide<MultiplyOperation> {
  static constexpr bool kApproximate = false;
  VCarrier value, error;
  MCarrier ordinary, zero_is_exact;

  HWY_INLINE Wide(VCarrier a, VCarrier b, VCarrier)
      : value(hn::Mul(a, b)),
        error(Fma(DCarrier(), a, b, hn::Neg(value))),
        ordinary(Always()),
        zero_is_exact(hn::Or(IsZero(a), IsZero(b))) {}
  HWY_INLINE Scaled In(VCarrier scale) const { return {hn::Mul(error, scale), hn::Zero(DCarrier())}; }
};

template <>
struct Wide<DivideOperation> {
  static constexpr bool kApproximate = false;
  VCarrier value, rest, divisor, error;
  MCarrier ordinary, zero_is_exact;

  HWY_INLINE Wide(VCarrier a, VCarrier b, VCarrier)
      : value(hn::Div(a, b)),
        rest(hn::Xor(Fma(DCarrier(), hn::Neg(value), b, a), hn::And(b, hn::SignBit(DCarrier())))),
        divisor(hn::Abs(b)),
        error(rest),
        ordinary(hn::Or(hn::And(InRange(a, 0x1p-450, 0x1p450), InRange(b, 0x1p-450, 0x1p450)), IsZero(value))),
        zero_is_exact(IsZero(a)) {}
  HWY_INLINE Scaled In(VCarrier scale) const {
    const VCarrier dividend = hn::Mul(rest, scale);
    const VCarrier high = hn::Div(dividend, divisor);
    return {high, Fma(DCarrier(), hn::Neg(high), divisor, dividend)};
  }
};

template <>
struct Wide<SqrtOperation> {
  // The square of e is left out of In.
  static constexpr bool kApproximate = true;
  VCarrier value, error;
  MCarrier ordinary, zero_is_exact;

  HWY_INLINE Wide(VCarrier a, VCarrier, VCarrier)
      : value(hn::Sqrt(a)),
        error(Fma(DCarrier(), hn::Neg(value), value, a)),
        ordinary(hn::Or(InRange(a, 0x1p-900, 0x1p1000), IsZero(a))),
        zero_is_exact(Always()) {}
  HWY_INLINE Scaled In(VCarrier scale) const {
    return {hn::Div(hn::Mul(error, scale), hn::Add(value, value)), hn::Zero(DCarrier())};
  }
};

template <>
struct Wide<FmaOperation> {
  static constexpr bool kApproximate = false;
  VCarrier value, error, low;
  MCarrier ordinary, zero_is_exact;

  // Boldo and Muller, "Exact and approximated error of the FMA" (IEEE Transactions on Computers, 2011), ErrFmaNearest.
  HWY_INLINE Wide(VCarrier a, VCarrier b, VCarrier c) : zero_is_exact(Always()) {
    const DCarrier d;
    value = Fma(d, a, b, c);
    const VCarrier product = hn::Mul(a, b);
    const VCarrier product_error = Fma(d, a, b, hn::Neg(product));
    const Carried tail = CarrySum(c, product_error);
    const Carried head = CarrySum(product, tail.value);
    const VCarrier most = hn::Add(hn::Sub(head.value, value), head.error);
    error = hn::Add(most, tail.error);
    low = hn::Sub(tail.error, hn::Sub(error, most));
    const MCarrier zero_product = hn::Or(IsZero(a), IsZero(b));
    ordinary = hn::And(hn::Or(InRange(product, 0x1p-900, 0x1p1000), zero_product), InRange(c, 0, 0x1p1000));
  }
  HWY_INLINE Scaled In(VCarrier scale) const {
    return {InUnits(error, scale), hn::Xor(low, hn::And(scale, hn::SignBit(DCarrier())))};
  }
};

template <>
struct Wide<RoundOperation> {
  static constexpr bool kApproximate = false;
  VCarrier value, error;
  MCarrier ordinary, zero_is_exact;

  HWY_INLINE Wide(VCarrier a, VCarrier, VCarrier)
      : value(a), error(hn::Zero(DCarrier())), ordinary(Always()), zero_is_exact(Always()) {}
  HWY_INLINE Scaled In(VCarrier) const { return {error, error}; }
};

// The words of the lanes of the `part`-th vector of 64-bit lanes of a group: LaneWord.
template <int kPart = 0>
HWY_INLINE void AllWords(const TileVectors& tile, VImage* words) {
  if constexpr (kPart < kTileVectors) {
    words[kPart] = hn::ShiftRight<32>(tile.part[kPart]);
    AllWords<kPart + 1>(tile, words);
  } else if constexpr (kPart < kParts64) {
    words[kPart] = hn::And(tile.part[kPart - kTileVectors], hn::Set(DImage(), 0xFFFFFFFFu));
    AllWords<kPart + 1>(tile, words);
  }
}

// Any mode and precision, but for what NearestKernel and UpDownKernel do with the full one.
template <class Operation, Mode kMode>
class WideKernel {
 public:
  explicit WideKernel(const Rounding& rounding) : WideKernel(MakeStream(rounding), rounding.precision) {}
  WideKernel(const Stream& stream, int precision)
      : cipher_(stream), exact_(stream, precision), dropped_(precision == 0 ? 0 : 53 - precision) {}

  HWY_NOINLINE void Groups(std::uint64_t group, const Operands<double>& in, double* out, std::size_t groups) const {
    const DCarrier d;
    for (std::size_t i = 0; i < groups * kGroup; i += kGroup, ++group) {
      VImage random[kParts64];
      Draw(group, random);
      VCarrier results[kParts64];
      MCarrier ordinary = Always();
      for (int part = 0; part < kParts64; ++part) {
        const std::size_t place = i + static_cast<std::size_t>(part * kLanes64);
        const VCarrier a = hn::LoadU(d, in.a + place);
        const VCarrier b = Operation::kOperands > 1 ? hn::LoadU(d, in.b + place) : a;
        const VCarrier c = Operation::kOperands > 2 ? hn::LoadU(d, in.c + place) : a;
        results[part] = Rounded(Wide<Operation>(a, b, c), random[part], ordinary);
      }
      if (HWY_LIKELY(hn::AllTrue(d, ordinary))) {
        for (int part = 0; part < kParts64; ++part) hn::StoreU(results[part], d, out + i + part * kLanes64);
      } else {
        exact_.Groups(group, {in.a + i, in.b + i, in.c + i}, out + i, 1);
      }
    }
  }

 private:
  // SR: the word of each lane; UD and RR: its bit, as the sign bit.
  HWY_INLINE void Draw(std::uint64_t group, VImage* random) const {
    for (int part = 0; part < kParts64; ++part) random[part] = hn::Zero(DImage());
    if constexpr (kMode == Mode::kStochastic) {
      AllWords(cipher_.At(cipher_.BaseOf(group), TileCipher::OffsetOf(0)), random);
    } else if constexpr (kMode != Mode::kNearest) {
      AllSignBits(cipher_, group, random);
    }
  }

  HWY_INLINE VCarrier Rounded(const Wide<Operation>& x, VImage random, MCarrier& ordinary) const {
    const DCarrier d;
    const DImage image;
    const VCarrier sign = hn::And(x.value, hn::SignBit(d));
    const MCarrier zero = IsZero(x.value);
    // An infinity is one in every mode and precision, also where it is an overflow.
    const MCarrier finite = hn::Le(hn::Abs(x.value), hn::Set(d, std::numeric_limits<double>::max()));
    const MCarrier in_range = hn::Or(InRange(x.value, 0x1p-900, 0x1p1000), hn::And(zero, x.zero_is_exact));
    ordinary = hn::And(ordinary, hn::Or(hn::And(in_range, x.ordinary), hn::Not(finite)));
    // The magnitude is `units` and a fraction of one, which is zero where it is exact.
    const MCarrier below = hn::Lt(hn::Xor(x.error, sign), hn::Zero(d));
    const VImage one = hn::Set(image, 1);
    const VImage units = hn::Sub(hn::BitCast(image, hn::Abs(x.value)),
                                 hn::IfThenElseZero(hn::RebindMask(image, below), one));
    VImage kept;
    if constexpr (kMode == Mode::kStochastic) {
      const VImage fraction = Fraction(x, units, sign, below, ordinary);
      kept = hn::Add(hn::ShiftRightSame(units, dropped_), hn::ShiftRight<32>(hn::Add(fraction, random)));
    } else {
      kept = WithoutFraction(units, IsZero(x.error), hn::Xor(random, hn::BitCast(image, sign)), random);
    }
    const VCarrier magnitude = hn::BitCast(d, hn::ShiftLeftSame(kept, dropped_));
    const MCarrier stays = hn::Or(zero, hn::Not(finite));
    return hn::IfThenElse(stays, Canonical(x.value), hn::Or(magnitude, sign));
  }

  // floor(2^32 f), f the part of a unit of the result's precision that the magnitude has beyond whole ones.
  HWY_INLINE VImage Fraction(const Wide<Operation>& x, VImage units, VCarrier sign, MCarrier below,
                             MCarrier& ordinary) const {
    const DCarrier d;
    const DImage image;
    // 2^32 over the spacing of the units, with the sign of the result.
    const VImage exponent = hn::Sub(hn::Set(image, 84 + 2 * 1023), hn::ShiftRight<52>(units));
    const Scaled error = x.In(hn::Or(hn::BitCast(d, hn::ShiftLeft<52>(exponent)), sign));
    VCarrier whole = hn::Floor(error.high);
    const MCarrier lower = hn::And(hn::Eq(whole, error.high), hn::Lt(error.low, hn::Zero(d)));
    whole = hn::Sub(whole, hn::IfThenElseZero(lower, hn::Set(d, 1.0)));
    if constexpr (Wide<Operation>::kApproximate) {
      const VCarrier away = hn::Abs(hn::Sub(error.high, hn::Round(error.high)));
      const MCarrier certain = hn::Or(hn::Gt(away, hn::Set(d, 0x1p-18)), IsZero(x.error));
      ordinary = hn::And(ordinary, hn::Or(certain, hn::Not(hn::Eq(x.value, x.value))));
    }
    // As an integer: the units were lowered by one where the error is below.
    const VCarrier shifted = hn::Add(whole, hn::IfThenElse(below, hn::Set(d, 0x1p52 + 0x1p32), hn::Set(d, 0x1p52)));
    const VImage fine = hn::And(hn::BitCast(image, shifted), hn::Set(image, (std::uint64_t{1} << 52) - 1));
    if (dropped_ == 0) return fine;
    const VImage rest = hn::And(units, hn::Set(image, (std::uint64_t{1} << dropped_) - 1));
    if (dropped_ >= 32) return hn::ShiftRightSame(rest, dropped_ - 32);
    return hn::ShiftRightSame(hn::Or(hn::ShiftLeft<32>(rest), fine), dropped_);
  }

  // The sign bit of `toward` asks RR for the lower magnitude, that of `bit` UD.
  HWY_INLINE VImage WithoutFraction(VImage units, MCarrier exact, VImage toward, VImage bit) const {
    const DImage image;
    const hn::RebindToSigned<DImage> di;
    const VImage one = hn::Set(image, 1);
    const VImage inexact = hn::IfThenZeroElse(hn::RebindMask(image, exact), one);
    const VImage unit = hn::Set(image, std::uint64_t{1} << dropped_);
    const VImage kept = hn::ShiftRightSame(units, dropped_);
    const VImage up = hn::Add(hn::BitCast(image, hn::BroadcastSignBit(hn::BitCast(di, toward))), one);
    if constexpr (kMode == Mode::kRandom) {
      const VImage rest = hn::Or(hn::And(units, hn::Sub(unit, one)), inexact);
      return hn::IfThenElse(hn::Eq(rest, hn::Zero(image)), kept, hn::Add(kept, up));
    }
    // Half a unit less one, and that one where the half is passed or the unit would be odd.
    const VImage half = hn::Sub(hn::ShiftRight<1>(unit), one);
    const VImage more = hn::Or(inexact, hn::And(kept, one));
    const VImage nearest = hn::ShiftRightSame(hn::Add(units, hn::Add(half, more)), dropped_);
    if constexpr (kMode == Mode::kNearest) return nearest;
    const VImage step = hn::BitCast(image, hn::Or(hn::BroadcastSignBit(hn::BitCast(di, bit)), hn::Set(di, 1)));
    return hn::Add(nearest, step);
  }

  TileCipher cipher_;
  ExactKernel<Operation, kMode> exact_;
  int dropped_;
};

}  // namespace HWY_NAMESPACE
}  // namespace prism
HWY_AFTER_NAMESPACE();

#endif  // PRISM_SRC_ELEMENTWISE_WIDE_INL_H_
