// What is done to a group of 16 elements: operations by modes. Included once per target.
//
// A kernel is built once for a piece of an array and then given runs of whole groups, with the number of the first.

#if defined(PRISM_SRC_ELEMENTWISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PRISM_SRC_ELEMENTWISE_INL_H_
#undef PRISM_SRC_ELEMENTWISE_INL_H_
#else
#define PRISM_SRC_ELEMENTWISE_INL_H_
#endif

#include <cstdint>

#include "exact.h"
#include "rounding-inl.h"
#include "stream.h"

HWY_BEFORE_NAMESPACE();
namespace prism {
namespace HWY_NAMESPACE {

// ---------------------------------------------------------------- operations
//
// Value: rounded to nearest in the lanes' own type. Carry: of float32 operands, see rounding-inl.h. kUnderflows: whether
// a result that is not a float32 can be below the smallest normal number.

struct AddOperation {
  static constexpr int kOperands = 2;
  static constexpr bool kUnderflows = false;  // a sum is a multiple of 2^-149
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Value(D, V a, V b, V) { return hn::Add(a, b); }
  static HWY_INLINE Carried Carry(VCarrier a, VCarrier b, VCarrier) { return CarrySum(a, b); }
  static Exact ExactOf(double a, double b, double) { return ExactAdd(a, b); }
};

struct SubtractOperation {
  static constexpr int kOperands = 2;
  static constexpr bool kUnderflows = false;
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Value(D, V a, V b, V) { return hn::Sub(a, b); }
  static HWY_INLINE Carried Carry(VCarrier a, VCarrier b, VCarrier) { return CarrySum(a, hn::Neg(b)); }
  static Exact ExactOf(double a, double b, double) { return ExactAdd(a, -b); }
};

struct MultiplyOperation {
  static constexpr int kOperands = 2;
  static constexpr bool kUnderflows = true;
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Value(D, V a, V b, V) { return hn::Mul(a, b); }
  static HWY_INLINE Carried Carry(VCarrier a, VCarrier b, VCarrier) {
    return {hn::Mul(a, b), hn::Zero(DCarrier())};
  }
  static Exact ExactOf(double a, double b, double) { return ExactMultiply(a, b); }
};

struct DivideOperation {
  static constexpr int kOperands = 2;
  static constexpr bool kUnderflows = true;
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Value(D, V a, V b, V) { return hn::Div(a, b); }
  static HWY_INLINE Carried Carry(VCarrier a, VCarrier b, VCarrier) { return CarryQuotient(a, b); }
  static Exact ExactOf(double a, double b, double) { return ExactDivide(a, b); }
};

struct SqrtOperation {
  static constexpr int kOperands = 1;
  static constexpr bool kUnderflows = false;
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Value(D, V a, V, V) { return hn::Sqrt(a); }
  static HWY_INLINE Carried Carry(VCarrier a, VCarrier, VCarrier) { return CarrySqrt(a); }
  static Exact ExactOf(double a, double, double) { return ExactSqrt(a); }
};

struct FmaOperation {
  static constexpr int kOperands = 3;
  static constexpr bool kUnderflows = true;
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Value(D d, V a, V b, V c) { return Fma(d, a, b, c); }
  static HWY_INLINE Carried Carry(VCarrier a, VCarrier b, VCarrier c) { return CarryFma(a, b, c); }
  static Exact ExactOf(double a, double b, double c) { return ExactMultiplyAdd(a, b, c); }
};

struct RoundOperation {
  static constexpr int kOperands = 1;
  static constexpr bool kUnderflows = true;
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Value(D, V a, V, V) { return a; }
  static HWY_INLINE Carried Carry(VCarrier a, VCarrier, VCarrier) { return {a, hn::Zero(DCarrier())}; }
  static Exact ExactOf(double a, double, double) { return ExactValue(a); }
};

// ---------------------------------------------------------------- operands

template <class T>
struct Operands {
  const T* a;
  const T* b;
  const T* c;
};

template <class Operation, class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> NearestAt(D d, const Operands<T>& in, std::size_t i) {
  const hn::Vec<D> a = hn::LoadU(d, in.a + i);
  hn::Vec<D> b = a;
  hn::Vec<D> c = a;
  if constexpr (Operation::kOperands > 1) b = hn::LoadU(d, in.b + i);
  if constexpr (Operation::kOperands > 2) c = hn::LoadU(d, in.c + i);
  return Operation::Value(d, a, b, c);
}

HWY_INLINE VCarrier LoadCarrier(const float* from) {
  return hn::PromoteTo(DCarrier(), hn::LoadU(hn::Rebind<float, DCarrier>(), from));
}
HWY_INLINE VCarrier LoadCarrier(const double* from) { return hn::LoadU(DCarrier(), from); }

template <class Operation, class T>
HWY_INLINE Carried CarriedAt(const Operands<T>& in, std::size_t i) {
  const VCarrier a = LoadCarrier(in.a + i);
  VCarrier b = a;
  VCarrier c = a;
  if constexpr (Operation::kOperands > 1) b = LoadCarrier(in.b + i);
  if constexpr (Operation::kOperands > 2) c = LoadCarrier(in.c + i);
  return Operation::Carry(a, b, c);
}

// ---------------------------------------------------------------- full precision

template <class V, class D = hn::DFromV<V>>
HWY_INLINE V Canonical(V x) {
  using T = hn::TFromD<D>;
  const D d;
  V nan;
  if constexpr (sizeof(T) == 4) {
    nan = hn::BitCast(d, hn::Set(hn::RebindToUnsigned<D>(), kCanonicalNan));
  } else {
    nan = hn::BitCast(d, hn::Set(hn::RebindToUnsigned<D>(), kCanonicalNan64));
  }
  return hn::IfThenElse(hn::IsNaN(x), nan, x);
}

template <class T>
struct LanesOf {
  using D = DF;
};
template <>
struct LanesOf<double> {
  using D = DCarrier;
};

template <class Operation, class T>
class NearestKernel {
 public:
  explicit NearestKernel(const Rounding&) {}

  HWY_NOINLINE void Groups(std::uint64_t, const Operands<T>& in, T* out, std::size_t groups) const {
    const typename LanesOf<T>::D d;
    for (std::size_t i = 0; i < groups * kGroup; i += hn::MaxLanes(d)) {
      hn::StoreU(Canonical(NearestAt<Operation>(d, in, i)), d, out + i);
    }
  }
};

// The sign bit of each lane of `bits` is the lane's bit: towards zero.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V NextTo(D d, V nearest, hn::Vec<hn::RebindToSigned<D>> bits) {
  const hn::RebindToSigned<D> di;
  const auto step = hn::Or(hn::BroadcastSignBit(bits), hn::Set(di, 1));
  const V moved = hn::BitCast(d, hn::Add(hn::BitCast(di, nearest), step));
  return hn::IfThenElse(hn::Eq(nearest, hn::Zero(d)), nearest, moved);
}

template <class Operation, class T>
class UpDownKernel {
  using D = typename LanesOf<T>::D;
  using Bits = hn::Vec<hn::RebindToSigned<D>>;
  static constexpr std::size_t kLanes = hn::MaxLanes(D());
  static constexpr std::size_t kParts = kGroup / kLanes;

 public:
  explicit UpDownKernel(const Rounding& rounding) : cipher_(MakeStream(rounding)) {}

  HWY_NOINLINE void Groups(std::uint64_t group, const Operands<T>& in, T* out, std::size_t groups) const {
    Operands<T> rest = in;
    while (groups != 0) {
      const std::uint64_t step = group % kStepsPerBitTile;
      const auto now = static_cast<std::size_t>(HWY_MIN(groups, kStepsPerBitTile - step));
      GroupsOfTile(group / kStepsPerBitTile, static_cast<int>(step), rest, out, now);
      const std::size_t done = now * kGroup;
      rest = {rest.a + done, rest.b + done, rest.c + done};
      out += done;
      group += now;
      groups -= now;
    }
  }

 private:
  HWY_INLINE void GroupsOfTile(std::uint64_t tile, int step, const Operands<T>& in, T* out, std::size_t groups) const {
    const D d;
    const TileVectors words = cipher_.At(cipher_.BaseOf(tile), TileCipher::OffsetOf(0));
    Bits bits[kParts];
    LoadBits(words, step, bits);
    const auto largest = hn::Set(d, std::numeric_limits<T>::max());
    for (std::size_t i = 0; i < groups * kGroup; i += kGroup) {
      hn::Vec<D> nearest[kParts];
      auto finite = hn::MaskFromVec(hn::BitCast(d, hn::Set(hn::RebindToSigned<D>(), -1)));
      for (std::size_t part = 0; part < kParts; ++part) {
        nearest[part] = NearestAt<Operation>(d, in, i + part * kLanes);
        finite = hn::And(finite, hn::Le(hn::Abs(nearest[part]), largest));
      }
      if (HWY_LIKELY(hn::AllTrue(d, finite))) {
        for (std::size_t part = 0; part < kParts; ++part) {
          hn::StoreU(NextTo(d, nearest[part], bits[part]), d, out + i + part * kLanes);
        }
      } else {
        for (std::size_t part = 0; part < kParts; ++part) {
          const auto stays = hn::Not(hn::Le(hn::Abs(nearest[part]), largest));
          const auto moved = NextTo(d, nearest[part], bits[part]);
          hn::StoreU(hn::IfThenElse(stays, Canonical(nearest[part]), moved), d, out + i + part * kLanes);
        }
      }
      for (std::size_t part = 0; part < kParts; ++part) bits[part] = hn::Add(bits[part], bits[part]);
    }
  }

  // The bits of `step`, at the top of each lane, those of later steps below them.
  static HWY_INLINE void LoadBits(const TileVectors& words, int step, Bits* bits) {
    const hn::RebindToSigned<D> di;
    HWY_ALIGN std::uint32_t memory[kGroup];
    for (int part = 0; part < kParts32; ++part) hn::Store(Words32(words, part), DU(), memory + part * kLanes32);
    for (std::size_t part = 0; part < kParts; ++part) {
      if constexpr (sizeof(T) == 4) {
        bits[part] = hn::ShiftLeftSame(hn::BitCast(di, hn::LoadU(DU(), memory + part * kLanes)), step);
      } else {
        const hn::Rebind<std::uint32_t, DImage> half;
        const VImage wide = hn::PromoteTo(DImage(), hn::LoadU(half, memory + part * kLanes));
        bits[part] = hn::BitCast(di, hn::ShiftLeftSame(wide, 32 + step));
      }
    }
  }

  TileCipher cipher_;
};

// ---------------------------------------------------------------- float32 results in float64 lanes

template <int kPart = 0>
HWY_INLINE void AllBits29(const TileVectors& tile, VImage* bits) {
  if constexpr (kPart < kParts64) {
    bits[kPart] = Bits29<kPart>(tile);
    AllBits29<kPart + 1>(tile, bits);
  }
}

// The bits of the group's lanes, UD's and RR's, as sign bits.
HWY_INLINE void AllSignBits(const TileCipher& cipher, std::uint64_t group, VImage* bits) {
  const TileVectors words = cipher.At(cipher.BaseOf(group / kStepsPerBitTile), TileCipher::OffsetOf(0));
  HWY_ALIGN std::uint32_t memory[kGroup];
  for (int part = 0; part < kParts32; ++part) hn::Store(Words32(words, part), DU(), memory + part * kLanes32);
  const hn::Rebind<std::uint32_t, DImage> half;
  for (int part = 0; part < kParts64; ++part) {
    const VImage wide = hn::PromoteTo(DImage(), hn::LoadU(half, memory + part * kLanes64));
    bits[part] = hn::ShiftLeftSame(wide, static_cast<int>(32 + group % kStepsPerBitTile));
  }
}

HWY_INLINE void StoreCarrier(VCarrier x, float* to) {
  const hn::Rebind<float, DCarrier> narrow;
  hn::StoreU(Demoted(x), narrow, to);
}

// SR with the full precision: the fast way, checked once a group.
template <class Operation, class T>
class StochasticKernel {
 public:
  explicit StochasticKernel(const Rounding& rounding) : cipher_(MakeStream(rounding)) {}

  HWY_NOINLINE void Groups(std::uint64_t group, const Operands<T>& in, float* out, std::size_t groups) const {
    const TileCipher cipher = cipher_;
    const typename TileCipher::Base base = cipher.BaseOf(group);
    const auto step = TileCipher::OffsetOf(1);
    auto offset = TileCipher::OffsetOf(0);
    for (std::size_t i = 0; i < groups * kGroup; i += kGroup) {
      VImage bits[kParts64];
      AllBits29(cipher.At(base, offset), bits);
      offset = TileCipher::Next(offset, step);
      Group(in, i, bits, out + i);
    }
  }

 private:
  using DNarrow = hn::Rebind<float, DCarrier>;
  using DNarrowBits = hn::RebindToSigned<DNarrow>;

  static HWY_INLINE void Group(const Operands<T>& in, std::size_t i, const VImage* bits, float* out) {
    const DNarrow narrow;
    const DNarrowBits di;
    VCarrier x[kParts64];
    hn::Vec<DNarrow> rounded[kParts64];
    auto greatest = hn::Zero(di);
    auto least = hn::Set(di, 0x7FFFFFFF);
    for (int part = 0; part < kParts64; ++part) {
      x[part] = CarriedAt<Operation>(in, i + static_cast<std::size_t>(part * kLanes64)).value;
      rounded[part] = Demoted(RoundCarrier(x[part], bits[part]));
      const auto magnitude = hn::BitCast(di, hn::Abs(rounded[part]));
      greatest = hn::Max(greatest, magnitude);
      least = hn::Min(least, magnitude);
    }
    // As integers, infinity and NaN are greater than the largest float32.
    auto ordinary = hn::Lt(greatest, hn::Set(di, 0x7F7FFFFF));
    if constexpr (Operation::kUnderflows) ordinary = hn::And(ordinary, hn::Gt(least, hn::Set(di, 0x00800000)));
    if (HWY_UNLIKELY(!hn::AllTrue(di, ordinary)) && !StillOrdinary(x, greatest)) {
      for (int part = 0; part < kParts64; ++part) rounded[part] = Guarded(x[part], bits[part]);
    }
    for (int part = 0; part < kParts64; ++part) hn::StoreU(rounded[part], narrow, out + part * kLanes64);
  }

  // Zeros are no reason for the slow way.
  static HWY_INLINE bool StillOrdinary(const VCarrier* x, hn::Vec<DNarrowBits> greatest) {
    const DCarrier d;
    const DNarrowBits di;
    if constexpr (!Operation::kUnderflows) return false;
    auto ordinary = hn::Eq(hn::Zero(d), hn::Zero(d));
    for (int part = 0; part < kParts64; ++part) {
      const auto normal = hn::Ge(hn::Abs(x[part]), hn::Set(d, 0x1p-125));
      ordinary = hn::And(ordinary, hn::Or(normal, hn::Eq(x[part], hn::Zero(d))));
    }
    return hn::AllTrue(d, ordinary) && hn::AllTrue(di, hn::Lt(greatest, hn::Set(di, 0x7F7FFFFF)));
  }

  static HWY_NOINLINE hn::Vec<DNarrow> Guarded(VCarrier x, VImage bits) {
    const DCarrier d;
    const NarrowFormat format(0);
    const Carried carried{x, hn::Zero(d)};
    return Demoted(RoundNarrow<Mode::kStochastic>(carried, bits, hn::Zero(d), format));
  }

  TileCipher cipher_;
};

// Any mode and precision.
template <class Operation, class T, Mode kMode>
class NarrowKernel {
 public:
  explicit NarrowKernel(const Rounding& rounding) : cipher_(MakeStream(rounding)), format_(rounding.precision) {}

  HWY_NOINLINE void Groups(std::uint64_t group, const Operands<T>& in, float* out, std::size_t groups) const {
    const NarrowFormat format = format_;
    for (std::size_t i = 0; i < groups * kGroup; i += kGroup, ++group) {
      VImage bits29[kParts64];
      VCarrier bit[kParts64];
      Draw(group, bits29, bit);
      for (int part = 0; part < kParts64; ++part) {
        const std::size_t place = i + static_cast<std::size_t>(part * kLanes64);
        StoreCarrier(RoundNarrow<kMode>(CarriedAt<Operation>(in, place), bits29[part], bit[part], format), out + place);
      }
    }
  }

 private:
  HWY_INLINE void Draw(std::uint64_t group, VImage* bits29, VCarrier* bit) const {
    for (int part = 0; part < kParts64; ++part) {
      bits29[part] = hn::Zero(DImage());
      bit[part] = hn::Zero(DCarrier());
    }
    if constexpr (kMode == Mode::kStochastic) {
      AllBits29(cipher_.At(cipher_.BaseOf(group), TileCipher::OffsetOf(0)), bits29);
    } else if constexpr (kMode != Mode::kNearest) {
      VImage bits[kParts64];
      AllSignBits(cipher_, group, bits);
      for (int part = 0; part < kParts64; ++part) bit[part] = hn::BitCast(DCarrier(), bits[part]);
    }
  }

  TileCipher cipher_;
  NarrowFormat format_;
};

// ---------------------------------------------------------------- float64 results

// Any mode and precision, lane by lane.
template <class Operation, Mode kMode>
class ExactKernel {
 public:
  explicit ExactKernel(const Rounding& rounding) : ExactKernel(MakeStream(rounding), rounding.precision) {}
  ExactKernel(const Stream& stream, int precision) : cipher_(stream), format_(Float64Format(precision)) {}

  HWY_NOINLINE void Groups(std::uint64_t group, const Operands<double>& in, double* out, std::size_t groups) const {
    for (std::size_t i = 0; i < groups * kGroup; i += kGroup, ++group) {
      TileArray words{};
      if constexpr (kMode != Mode::kNearest) words = Words(group);
      for (int lane = 0; lane < kGroup; ++lane) {
        const std::size_t place = i + static_cast<std::size_t>(lane);
        const Random random{LaneWord(words, lane), 0, LaneBit(words, lane, group)};
        out[place] = Round(Value(in, place), format_, kMode, random);
      }
    }
  }

 private:
  static HWY_INLINE Exact Value(const Operands<double>& in, std::size_t i) {
    return Operation::ExactOf(in.a[i], Operation::kOperands > 1 ? in.b[i] : 0, Operation::kOperands > 2 ? in.c[i] : 0);
  }

  HWY_INLINE TileArray Words(std::uint64_t group) const {
    const std::uint64_t tile = kMode == Mode::kStochastic ? group : group / kStepsPerBitTile;
    const TileVectors vectors = cipher_.At(cipher_.BaseOf(tile), TileCipher::OffsetOf(0));
    TileArray words;
    for (int part = 0; part < kParts32; ++part) {
      hn::StoreU(Words32(vectors, part), DU(), words.data() + part * kLanes32);
    }
    return words;
  }

  TileCipher cipher_;
  Format format_;
};

}  // namespace HWY_NAMESPACE
}  // namespace prism
HWY_AFTER_NAMESPACE();

#endif  // PRISM_SRC_ELEMENTWISE_INL_H_
