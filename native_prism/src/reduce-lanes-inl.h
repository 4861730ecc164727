// Groups of 16 elements and their operations, each rounded: one class for each way to round. Included once per target.
//
// The classes share an interface, so that a kernel is written once. `Words<R>` draws for R rows in a row, step after
// step.

#if defined(PRISM_SRC_REDUCE_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PRISM_SRC_REDUCE_LANES_INL_H_
#undef PRISM_SRC_REDUCE_LANES_INL_H_
#else
#define PRISM_SRC_REDUCE_LANES_INL_H_
#endif

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "elementwise-wide-inl.h"
#include "exact.h"
#include "rounding-inl.h"

HWY_BEFORE_NAMESPACE();
namespace prism {
namespace HWY_NAMESPACE {

template <class T>
using NativeTag = std::conditional_t<sizeof(T) == 4, DF, DCarrier>;

// ---------------------------------------------------------------- words

template <int kRows>
class NoWords {
 public:
  struct Draw {};
  HWY_INLINE NoWords(const Stream&, std::uint64_t, std::uint64_t) {}
  HWY_INLINE Draw At(int) const { return {}; }
  HWY_INLINE void Advance() {}
};

template <int kRows>
class TileWords {
 public:
  using Draw = TileVectors;
  HWY_INLINE TileWords(const Stream& stream, std::uint64_t row, std::uint64_t steps)
      : cipher_(stream), offset_(TileCipher::OffsetOf(0)), step_(TileCipher::OffsetOf(1)) {
    for (int r = 0; r < kRows; ++r) base_[r] = cipher_.BaseOf((row + static_cast<std::uint64_t>(r)) * steps);
  }
  HWY_INLINE Draw At(int r) const { return cipher_.At(base_[r], offset_); }
  HWY_INLINE void Advance() { offset_ = TileCipher::Next(offset_, step_); }

 private:
  TileCipher cipher_;
  TileCipher::Base base_[kRows];
  TileCipher::Offset offset_;
  TileCipher::Offset step_;
};

// The step's bit of each lane is the sign bit of lanes as wide as those of D.
template <class D, int kRows>
class BitWords {
 public:
  static constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
  static constexpr int kParts = kGroup / kLanes;
  using V = hn::Vec<D>;
  struct Draw {
    const V* bits;
  };

  HWY_INLINE BitWords(const Stream& stream, std::uint64_t row, std::uint64_t steps)
      : cipher_(stream), tiles_((steps + kStepsPerBitTile - 1) / kStepsPerBitTile), tile_(row * tiles_) {
    Fill();
  }
  HWY_INLINE Draw At(int r) const { return {bits_[r]}; }
  HWY_INLINE void Advance() {
    if (--left_ == 0) {
      ++tile_;
      Fill();
      return;
    }
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kParts; ++p) bits_[r][p] = hn::Add(bits_[r][p], bits_[r][p]);
    }
  }

 private:
  HWY_INLINE void Fill() {
    left_ = kStepsPerBitTile;
    for (int r = 0; r < kRows; ++r) {
      const std::uint64_t tile = tile_ + static_cast<std::uint64_t>(r) * tiles_;
      const TileVectors words = cipher_.At(cipher_.BaseOf(tile), TileCipher::OffsetOf(0));
      if constexpr (sizeof(hn::TFromD<D>) == 4) {
        for (int p = 0; p < kParts; ++p) bits_[r][p] = Words32(words, p);
      } else {
        HWY_ALIGN std::uint32_t flat[kGroup];
        for (int p = 0; p < kParts32; ++p) hn::Store(Words32(words, p), DU(), flat + p * kLanes32);
        const hn::Rebind<std::uint32_t, D> narrow;
        for (int p = 0; p < kParts; ++p) {
          bits_[r][p] = hn::ShiftLeft<32>(hn::PromoteTo(D(), hn::LoadU(narrow, flat + p * kLanes)));
        }
      }
    }
  }

  TileCipher cipher_;
  std::uint64_t tiles_;
  std::uint64_t tile_;
  int left_ = 0;
  V bits_[kRows][kParts];
};

// Where the step's words are, for kernels that make them themselves.
template <int kRows>
class GroupWords {
 public:
  struct Draw {
    Stream stream;        // from the step's tile on
    std::uint64_t group;  // an element-wise operation's group with these words there
  };
  HWY_INLINE GroupWords(const Stream& stream, std::uint64_t row, std::uint64_t steps, bool bits)
      : stream_(&stream),
        tiles_(bits ? (steps + kStepsPerBitTile - 1) / kStepsPerBitTile : steps),
        row_(row),
        bits_(bits) {}
  HWY_INLINE Draw At(int r) const {
    const std::uint64_t first = (row_ + static_cast<std::uint64_t>(r)) * tiles_;
    const std::uint64_t tile = first + (bits_ ? step_ / kStepsPerBitTile : step_);
    Draw draw{*stream_, bits_ ? step_ % kStepsPerBitTile : 0};
    draw.stream.start = Counter(*stream_, tile * kBlocksPerTile);
    return draw;
  }
  HWY_INLINE void Advance() { ++step_; }

 private:
  const Stream* stream_;
  std::uint64_t tiles_;
  std::uint64_t row_;
  std::uint64_t step_ = 0;
  bool bits_;
};

// ---------------------------------------------------------------- what vectors share

// Lanes of type `Lane` that hold elements of type T.
template <class T, class Lane>
struct VectorLanes {
  using Element = T;
  using Value = Lane;
  using D = NativeTag<Lane>;
  using V = hn::Vec<D>;
  static constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
  static constexpr int kParts = kGroup / kLanes;
  static constexpr int kTogether = kParts >= 8 ? 1 : (kParts >= 4 ? 2 : 4);  // rows that hide each other's latency

  static HWY_INLINE V LoadPart(const T* from) {
    if constexpr (std::is_same_v<T, Lane>) {
      return hn::LoadU(D(), from);
    } else {
      return hn::PromoteTo(D(), hn::LoadU(hn::Rebind<T, D>(), from));
    }
  }
  static HWY_INLINE V LoadLanes(const Lane* from) { return hn::LoadU(D(), from); }
  static HWY_INLINE void StoreLanes(V v, Lane* to) { hn::StoreU(v, D(), to); }
  static HWY_INLINE V Broadcast(double x) { return hn::Set(D(), static_cast<Lane>(x)); }
  static HWY_INLINE double First(V v) { return hn::GetLane(v); }
  // The first `count` lanes of `now` and the others of `before`.
  static HWY_INLINE V Front(V now, V before, int count) {
    const int lanes = count < 0 ? 0 : (count > kLanes ? kLanes : count);
    return hn::IfThenElse(hn::FirstN(D(), static_cast<std::size_t>(lanes)), now, before);
  }
  static HWY_INLINE void StorePart(V v, T* to) {
    if constexpr (std::is_same_v<T, Lane>) {
      const D d;
      const hn::RebindToUnsigned<D> image;
      using Bits = hn::TFromD<decltype(image)>;
      constexpr Bits kNan = sizeof(T) == 4 ? static_cast<Bits>(kCanonicalNan) : static_cast<Bits>(kCanonicalNan64);
      hn::StoreU(hn::IfThenElse(hn::IsNaN(v), hn::BitCast(d, hn::Set(image, kNan)), v), d, to);
    } else {
      hn::StoreU(Demoted(v), hn::Rebind<T, D>(), to);
    }
  }
};

// ---------------------------------------------------------------- the ways to round

// RN and UD at the type's own precision, by the hardware's operations; `Finish` does what comes after each of them.
template <class T, class Derived>
struct NativeLanes : VectorLanes<T, T> {
  using Base = VectorLanes<T, T>;
  using typename Base::D;
  using typename Base::V;
  static constexpr bool kGuarded = false;
  template <class Draw>
  HWY_INLINE V Add(V a, V b, const Draw& draw, int part) const {
    return Derived::Finish(hn::Add(a, b), draw, part);
  }
  template <class Draw>
  HWY_INLINE V Sub(V a, V b, const Draw& draw, int part) const {
    return Derived::Finish(hn::Sub(a, b), draw, part);
  }
  template <class Draw>
  HWY_INLINE V Mul(V a, V b, const Draw& draw, int part) const {
    return Derived::Finish(hn::Mul(a, b), draw, part);
  }
  template <class Draw>
  HWY_INLINE V MulAdd(V a, V b, V c, const Draw& draw, int part) const {
    return Derived::Finish(Fma(D(), a, b, c), draw, part);
  }
  template <class Draw>
  HWY_INLINE V Div(V a, V b, const Draw& draw, int part) const {
    return Derived::Finish(hn::Div(a, b), draw, part);
  }
  template <class Draw>
  HWY_INLINE V Sqrt(V a, const Draw& draw, int part) const {
    return Derived::Finish(hn::Sqrt(a), draw, part);
  }
  // Rounds the part's float64 values at `from`.
  template <class Draw>
  HWY_INLINE V RoundDoubles(const double* from, const Draw& draw, int part) const {
    if constexpr (sizeof(T) == 8) {
      return Derived::Finish(hn::LoadU(D(), from), draw, part);
    } else {
#if HWY_TARGET == HWY_SCALAR
      return Derived::Finish(Demoted(hn::LoadU(DCarrier(), from)), draw, part);
#else
      const auto low = Demoted(hn::LoadU(DCarrier(), from));
      const auto high = Demoted(hn::LoadU(DCarrier(), from + kLanes64));
      return Derived::Finish(hn::Combine(D(), high, low), draw, part);
#endif
    }
  }
};

template <class T>
struct NearestLanes : NativeLanes<T, NearestLanes<T>> {
  using V = typename VectorLanes<T, T>::V;
  template <int kRows>
  using Words = NoWords<kRows>;
  explicit NearestLanes(const Rounding&) {}
  template <int kRows>
  HWY_INLINE Words<kRows> Place(const Stream& stream, std::uint64_t row, std::uint64_t steps) const {
    return {stream, row, steps};
  }
  static HWY_INLINE V Finish(V nearest, const NoWords<1>::Draw&, int) { return nearest; }
  template <class Draw>
  static HWY_INLINE V Finish(V nearest, const Draw&, int) {
    return nearest;
  }
};

template <class T>
struct UpDownLanes : NativeLanes<T, UpDownLanes<T>> {
  using D = NativeTag<T>;
  using V = hn::Vec<D>;
  using DBits = hn::RebindToUnsigned<D>;
  using DSigned = hn::RebindToSigned<D>;
  template <int kRows>
  using Words = BitWords<DBits, kRows>;
  explicit UpDownLanes(const Rounding&) {}
  template <int kRows>
  HWY_INLINE Words<kRows> Place(const Stream& stream, std::uint64_t row, std::uint64_t steps) const {
    return {stream, row, steps};
  }
  // The image of the next float away from zero is one more, that of the next towards it one less.
  template <class Draw>
  static HWY_INLINE V Finish(V nearest, const Draw& draw, int part) {
    using Int = hn::TFromD<DSigned>;
    constexpr Int kMost = std::numeric_limits<Int>::max();
    constexpr Int kInfinity = sizeof(T) == 4 ? static_cast<Int>(0x7F800000) : static_cast<Int>(0x7FF0000000000000);
    const DSigned i;
    const auto image = hn::BitCast(i, nearest);
    // Zero, infinities and NaN stay: twice the image without the sign, less one, as an unsigned number is below that
    // of infinity for all others; unsigned numbers compare as signed ones from the least.
    const auto place = hn::Add(hn::Add(image, image), hn::Set(i, kMost));
    const auto moves = hn::Lt(place, hn::Set(i, static_cast<Int>(kMost - 2 * (kMost - kInfinity) - 2)));
    const auto step = hn::Or(hn::BroadcastSignBit(hn::BitCast(i, draw.bits[part])), hn::Set(i, 1));
    return hn::BitCast(D(), hn::Add(image, hn::IfThenElseZero(moves, step)));
  }
};

// Float32 elements in float64 lanes: SR of ordinary values, which the caller has made sure of.
struct StochasticLanes : VectorLanes<float, double> {
  static constexpr bool kGuarded = true;
  template <int kRows>
  using Words = TileWords<kRows>;
  using Draw = TileVectors;
  explicit StochasticLanes(const Rounding&) {}
  template <int kRows>
  HWY_INLINE Words<kRows> Place(const Stream& stream, std::uint64_t row, std::uint64_t steps) const {
    return {stream, row, steps};
  }
  static HWY_INLINE VImage Bits(const Draw& draw, int part) {
    if (part < kTileVectors) return hn::ShiftRight<35>(draw.part[part]);
    return hn::And(draw.part[part - kTileVectors], hn::Set(DImage(), (std::uint64_t{1} << 29) - 1));
  }
  static HWY_INLINE V Finish(V x, const Draw& draw, int part) { return RoundCarrier(x, Bits(draw, part)); }
  HWY_INLINE V Add(V a, V b, const Draw& draw, int part) const { return Finish(hn::Add(a, b), draw, part); }
  HWY_INLINE V Sub(V a, V b, const Draw& draw, int part) const { return Finish(hn::Sub(a, b), draw, part); }
  HWY_INLINE V Mul(V a, V b, const Draw& draw, int part) const { return Finish(hn::Mul(a, b), draw, part); }
  // The product of two float32 is a float64.
  HWY_INLINE V MulAdd(V a, V b, V c, const Draw& draw, int part) const {
    return Finish(Fma(D(), a, b, c), draw, part);
  }
  HWY_INLINE V Div(V a, V b, const Draw& draw, int part) const { return Finish(hn::Div(a, b), draw, part); }
  HWY_INLINE V Sqrt(V a, const Draw& draw, int part) const { return Finish(hn::Sqrt(a), draw, part); }
  HWY_INLINE V RoundDoubles(const double* from, const Draw& draw, int part) const {
    return Finish(hn::LoadU(D(), from), draw, part);
  }
};

// Float32 elements in float64 lanes: every mode, precision and value.
template <Mode kMode>
class NarrowLanes : public VectorLanes<float, double> {
  static constexpr bool kTiles = kMode == Mode::kStochastic;
  template <int kRows>
  using NoTiles = std::conditional_t<kMode == Mode::kNearest, NoWords<kRows>, BitWords<DImage, kRows>>;

 public:
  static constexpr bool kGuarded = false;
  template <int kRows>
  using Words = std::conditional_t<kTiles, TileWords<kRows>, NoTiles<kRows>>;
  explicit NarrowLanes(const Rounding& rounding) : format_(rounding.precision) {}
  template <int kRows>
  HWY_INLINE Words<kRows> Place(const Stream& stream, std::uint64_t row, std::uint64_t steps) const {
    return {stream, row, steps};
  }
  template <class Draw>
  HWY_INLINE V Finish(const Carried& x, const Draw& draw, int part) const {
    if constexpr (kTiles) {
      return RoundNarrow<kMode>(x, StochasticLanes::Bits(draw, part), hn::Zero(D()), format_);
    } else if constexpr (kMode == Mode::kNearest) {
      return RoundNarrow<kMode>(x, hn::Zero(DImage()), hn::Zero(D()), format_);
    } else {
      return RoundNarrow<kMode>(x, hn::Zero(DImage()), hn::BitCast(D(), draw.bits[part]), format_);
    }
  }
  template <class Draw>
  HWY_INLINE V Add(V a, V b, const Draw& draw, int part) const {
    return Finish(CarrySum(a, b), draw, part);
  }
  template <class Draw>
  HWY_INLINE V Sub(V a, V b, const Draw& draw, int part) const {
    return Finish(CarrySum(a, hn::Neg(b)), draw, part);
  }
  template <class Draw>
  HWY_INLINE V Mul(V a, V b, const Draw& draw, int part) const {
    return Finish({hn::Mul(a, b), hn::Zero(D())}, draw, part);
  }
  template <class Draw>
  HWY_INLINE V MulAdd(V a, V b, V c, const Draw& draw, int part) const {
    return Finish(CarryFma(a, b, c), draw, part);
  }
  template <class Draw>
  HWY_INLINE V Div(V a, V b, const Draw& draw, int part) const {
    return Finish(CarryQuotient(a, b), draw, part);
  }
  template <class Draw>
  HWY_INLINE V Sqrt(V a, const Draw& draw, int part) const {
    return Finish(CarrySqrt(a), draw, part);
  }
  template <class Draw>
  HWY_INLINE V RoundDoubles(const double* from, const Draw& draw, int part) const {
    return Finish({hn::LoadU(D(), from), hn::Zero(D())}, draw, part);
  }

 private:
  NarrowFormat format_;
};

// Float64 elements, by the element-wise kernels: every mode, precision and value.
template <Mode kMode>
class WideLanes {
 public:
  using Element = double;
  using Value = double;
  struct V {
    HWY_ALIGN double lanes[kGroup];
  };
  static constexpr int kLanes = kGroup;
  static constexpr int kParts = 1;
  static constexpr int kTogether = 1;
  static constexpr bool kGuarded = false;
  template <int kRows>
  using Words = GroupWords<kRows>;
  using Draw = GroupWords<1>::Draw;

  explicit WideLanes(const Rounding& rounding) : precision_(rounding.precision) {}
  template <int kRows>
  HWY_INLINE Words<kRows> Place(const Stream& stream, std::uint64_t row, std::uint64_t steps) const {
    return {stream, row, steps, kMode != Mode::kStochastic};
  }

  static HWY_INLINE V LoadPart(const double* from) {
    V v;
    std::memcpy(v.lanes, from, sizeof v.lanes);
    return v;
  }
  static HWY_INLINE V LoadLanes(const double* from) { return LoadPart(from); }
  static HWY_INLINE void StoreLanes(const V& v, double* to) { std::memcpy(to, v.lanes, sizeof v.lanes); }
  static HWY_INLINE void StorePart(const V& v, double* to) { StoreLanes(v, to); }
  static HWY_INLINE V Broadcast(double x) {
    V v;
    for (double& lane : v.lanes) lane = x;
    return v;
  }
  static HWY_INLINE double First(const V& v) { return v.lanes[0]; }
  static HWY_INLINE V Front(const V& now, const V& before, int count) {
    V v = before;
    for (int l = 0; l < kGroup && l < count; ++l) v.lanes[l] = now.lanes[l];
    return v;
  }

  template <class AnyDraw>
  HWY_INLINE V Add(const V& a, const V& b, const AnyDraw& draw, int) const {
    return Run<AddOperation>(a.lanes, b.lanes, b.lanes, draw);
  }
  template <class AnyDraw>
  HWY_INLINE V Sub(const V& a, const V& b, const AnyDraw& draw, int) const {
    return Run<SubtractOperation>(a.lanes, b.lanes, b.lanes, draw);
  }
  template <class AnyDraw>
  HWY_INLINE V Mul(const V& a, const V& b, const AnyDraw& draw, int) const {
    return Run<MultiplyOperation>(a.lanes, b.lanes, b.lanes, draw);
  }
  template <class AnyDraw>
  HWY_INLINE V MulAdd(const V& a, const V& b, const V& c, const AnyDraw& draw, int) const {
    return Run<FmaOperation>(a.lanes, b.lanes, c.lanes, draw);
  }
  template <class AnyDraw>
  HWY_INLINE V Div(const V& a, const V& b, const AnyDraw& draw, int) const {
    return Run<DivideOperation>(a.lanes, b.lanes, b.lanes, draw);
  }
  template <class AnyDraw>
  HWY_INLINE V Sqrt(const V& a, const AnyDraw& draw, int) const {
    return Run<SqrtOperation>(a.lanes, a.lanes, a.lanes, draw);
  }
  template <class AnyDraw>
  HWY_INLINE V RoundDoubles(const double* from, const AnyDraw& draw, int) const {
    return Run<RoundOperation>(from, from, from, draw);
  }

 private:
  template <class Operation, class AnyDraw>
  HWY_INLINE V Run(const double* a, const double* b, const double* c, const AnyDraw& draw) const {
    const WideKernel<Operation, kMode> kernel(draw.stream, precision_);
    V v;
    kernel.Groups(draw.group, {a, b, c}, v.lanes, 1);
    return v;
  }

  int precision_;
};

// ---------------------------------------------------------------- groups and rows

template <class L>
HWY_INLINE void LoadGroup(const typename L::Element* from, std::int64_t count, typename L::V* group) {
  if (HWY_LIKELY(count >= kGroup)) {
    for (int p = 0; p < L::kParts; ++p) group[p] = L::LoadPart(from + p * L::kLanes);
    return;
  }
  typename L::Element padded[kGroup] = {};
  std::memcpy(padded, from, static_cast<std::size_t>(count) * sizeof padded[0]);
  for (int p = 0; p < L::kParts; ++p) group[p] = L::LoadPart(padded + p * L::kLanes);
}

template <class L>
HWY_INLINE void StoreGroup(const typename L::V* group, std::int64_t count, typename L::Element* to) {
  if (HWY_LIKELY(count >= kGroup)) {
    for (int p = 0; p < L::kParts; ++p) L::StorePart(group[p], to + p * L::kLanes);
    return;
  }
  typename L::Element padded[kGroup];
  for (int p = 0; p < L::kParts; ++p) L::StorePart(group[p], padded + p * L::kLanes);
  std::memcpy(to, padded, static_cast<std::size_t>(count) * sizeof padded[0]);
}

constexpr int kTreeSteps = 4;

inline std::uint64_t StepsOf(std::int64_t columns) {
  return static_cast<std::uint64_t>((columns + kGroup - 1) / kGroup);
}

// Adds the lanes below `lanes` of each row's sums as a tree; what is left is in results[row].
template <class L, int kRows, class W>
HWY_INLINE void AddLanes(const L& lanes_of, typename L::V (*sums)[L::kParts], std::int64_t lanes, W* words,
                         double* results) {
  HWY_ALIGN typename L::Value flat[kRows][kGroup + kGroup / 2] = {};
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < L::kParts; ++p) L::StoreLanes(sums[r][p], flat[r] + p * L::kLanes);
  }
  for (int half = kGroup / 2; half >= 1; half /= 2) {
    if (lanes > half) {
      for (int r = 0; r < kRows; ++r) {
        const auto draw = words->At(r);
        for (int p = 0; p < L::kParts && p * L::kLanes < half; ++p) {
          const auto low = L::LoadLanes(flat[r] + p * L::kLanes);
          const auto high = L::LoadLanes(flat[r] + p * L::kLanes + half);
          const auto sum = lanes_of.Add(low, high, draw, p);
          const auto pairs = static_cast<int>(lanes) - half - p * L::kLanes;
          L::StoreLanes(L::Front(sum, low, pairs), flat[r] + p * L::kLanes);
        }
      }
      lanes = half;
    }
    words->Advance();
  }
  for (int r = 0; r < kRows; ++r) results[r] = flat[r][0];
}

// The sums of kRows rows, `stride` apart, in lanes.
template <class L, int kRows>
HWY_NOINLINE void SumLanes(const L& lanes, const Stream& stream, const typename L::Element* x, std::int64_t stride,
                           std::int64_t columns, std::uint64_t row, double* results) {
  auto words = lanes.template Place<kRows>(stream, row, StepsOf(columns) + kTreeSteps);
  typename L::V sums[kRows][L::kParts];
  for (int r = 0; r < kRows; ++r) LoadGroup<L>(x + r * stride, columns, sums[r]);
  words.Advance();
  std::int64_t i = kGroup;
  for (; i + kGroup <= columns; i += kGroup) {
    for (int r = 0; r < kRows; ++r) {
      const auto draw = words.At(r);
      for (int p = 0; p < L::kParts; ++p) {
        sums[r][p] = lanes.Add(sums[r][p], L::LoadPart(x + r * stride + i + p * L::kLanes), draw, p);
      }
    }
    words.Advance();
  }
  if (i < columns) {
    for (int r = 0; r < kRows; ++r) {
      const auto draw = words.At(r);
      typename L::V group[L::kParts];
      LoadGroup<L>(x + r * stride + i, columns - i, group);
      for (int p = 0; p < L::kParts; ++p) {
        const auto sum = lanes.Add(sums[r][p], group[p], draw, p);
        sums[r][p] = L::Front(sum, sums[r][p], static_cast<int>(columns - i) - p * L::kLanes);
      }
    }
    words.Advance();
  }
  AddLanes<L, kRows>(lanes, sums, HWY_MIN(columns, std::int64_t{kGroup}), &words, results);
}

// The same of fma(a, b, sum) from zero.
template <class L, int kRows>
HWY_NOINLINE void DotLanes(const L& lanes, const Stream& stream, const typename L::Element* a,
                           const typename L::Element* b, std::int64_t stride, std::int64_t columns, std::uint64_t row,
                           double* results) {
  auto words = lanes.template Place<kRows>(stream, row, StepsOf(columns) + kTreeSteps);
  typename L::V sums[kRows][L::kParts];
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < L::kParts; ++p) sums[r][p] = L::Broadcast(0);
  }
  std::int64_t i = 0;
  for (; i + kGroup <= columns; i += kGroup) {
    for (int r = 0; r < kRows; ++r) {
      const auto draw = words.At(r);
      for (int p = 0; p < L::kParts; ++p) {
        const std::int64_t at = r * stride + i + p * L::kLanes;
        sums[r][p] = lanes.MulAdd(L::LoadPart(a + at), L::LoadPart(b + at), sums[r][p], draw, p);
      }
    }
    words.Advance();
  }
  if (i < columns) {
    for (int r = 0; r < kRows; ++r) {
      const auto draw = words.At(r);
      typename L::V a_group[L::kParts];
      typename L::V b_group[L::kParts];
      LoadGroup<L>(a + r * stride + i, columns - i, a_group);
      LoadGroup<L>(b + r * stride + i, columns - i, b_group);
      for (int p = 0; p < L::kParts; ++p) {
        const auto sum = lanes.MulAdd(a_group[p], b_group[p], sums[r][p], draw, p);
        sums[r][p] = L::Front(sum, sums[r][p], static_cast<int>(columns - i) - p * L::kLanes);
      }
    }
    words.Advance();
  }
  AddLanes<L, kRows>(lanes, sums, HWY_MIN(columns, std::int64_t{kGroup}), &words, results);
}

// One operation on a number of each row, at lane 0 of the only step of its row.
template <class L, class Operation>
HWY_INLINE double ScalarStage(const L& lanes, const Stream& stream, std::uint64_t row, const Operation& operation) {
  const auto words = lanes.template Place<1>(stream, row, 1);
  return L::First(operation(words.At(0)));
}

template <class L>
HWY_INLINE double DivideStage(const L& lanes, const Stream& stream, std::uint64_t row, double a, double b) {
  return ScalarStage(lanes, stream, row,
                     [&](const auto& draw) HWY_ATTR { return lanes.Div(L::Broadcast(a), L::Broadcast(b), draw, 0); });
}

// ---------------------------------------------------------------- what ordinary values are

// Magnitudes; `largest` is infinite or NaN where an element is.
struct Range {
  float largest;
  float smallest;  // of what is not zero; a NaN where all is
};

HWY_INLINE Range RangeOf(const float* x, std::int64_t count) {
  const DU u;
  const VU magnitude = hn::Set(u, 0x7FFFFFFFu);
  const VU one = hn::Set(u, 1);
  VU most = hn::Zero(u);
  VU least = hn::Set(u, 0xFFFFFFFFu);
  std::int64_t i = 0;
  for (; i + kLanes32 <= count; i += kLanes32) {
    const VU bits = hn::And(hn::BitCast(u, hn::LoadU(DF(), x + i)), magnitude);
    most = hn::Max(most, bits);
    least = hn::Min(least, hn::Sub(bits, one));
  }
  HWY_ALIGN std::uint32_t flat[2][kLanes32];
  hn::Store(most, u, flat[0]);
  hn::Store(least, u, flat[1]);
  std::uint32_t largest = 0;
  std::uint32_t smallest = 0xFFFFFFFFu;
  for (int l = 0; l < kLanes32; ++l) {
    largest = HWY_MAX(largest, flat[0][l]);
    smallest = HWY_MIN(smallest, flat[1][l]);
  }
  for (; i < count; ++i) {
    const std::uint32_t bits = BitsOf<std::uint32_t>(x[i]) & 0x7FFFFFFFu;
    largest = HWY_MAX(largest, bits);
    smallest = HWY_MIN(smallest, bits - 1);
  }
  if (smallest == 0xFFFFFFFFu) smallest = 0x7F7FFFFFu - 1;  // all are zero
  return {BitsOf<float>(largest), BitsOf<float>(smallest + 1)};
}

// Far enough from the largest float for what rounding adds.
constexpr double kMost = 0x1p126;
// A product of this or more, added to any float32, is zero or a normal number: it is a multiple of 2^-118, and so is a
// float32 of half of it.
constexpr double kLeastProduct = 0x1p-70;
// Rounding may make a sum this much larger than it is: the steps of a lane are counted in this.
constexpr std::int64_t kMostColumns = std::int64_t{1} << 26;

// Whether SR by StochasticLanes is exact for a sum. A sum of float32 below 2^-126 is a float32.
HWY_INLINE bool OrdinarySum(const Range& x, std::int64_t columns) {
  return columns <= kMostColumns && x.largest * static_cast<double>(columns) < kMost;
}

HWY_INLINE bool OrdinaryDot(const Range& a, const Range& b, std::int64_t columns) {
  return columns <= kMostColumns &&
         static_cast<double>(a.largest) * b.largest * static_cast<double>(columns) < kMost &&
         static_cast<double>(a.smallest) * b.smallest >= kLeastProduct;
}

// Whether what was rounded to x was a normal number, or exact.
HWY_INLINE bool OrdinaryResult(double x) { return x == 0 || (std::fabs(x) >= 0x1p-125 && std::fabs(x) < kMost); }

// ---------------------------------------------------------------- mean and variance

enum MomentStage : int { kSumStage, kMeanStage, kDeviationStage, kSquaresStage, kVarianceStage, kMomentStages };

// x - mean of one row, `deviations` has room for whole groups.
template <class L>
HWY_NOINLINE void Deviations(const L& lanes, const Stream& stream, const typename L::Element* x, std::int64_t columns,
                             std::uint64_t row, double mean, typename L::Element* deviations) {
  auto words = lanes.template Place<1>(stream, row, StepsOf(columns));
  const auto mean_lanes = L::Broadcast(mean);
  for (std::int64_t i = 0; i < columns; i += kGroup) {
    typename L::V group[L::kParts];
    LoadGroup<L>(x + i, columns - i, group);
    const auto draw = words.At(0);
    for (int p = 0; p < L::kParts; ++p) {
      L::StorePart(lanes.Sub(group[p], mean_lanes, draw, p), deviations + i + p * L::kLanes);
    }
    words.Advance();
  }
}

template <class T>
struct Moments {
  double mean = 0;
  double variance = 0;
  Range deviations{};  // only where L is guarded
};

// Of kRows rows; false where L does not do for these values. `deviations` are `stride` apart too, whole groups.
template <class L, int kRows, class T = typename L::Element>
bool MomentsOf(const L& lanes, const Stream* stages, const T* x, std::int64_t columns, std::uint64_t row,
               double divisor, T* deviations, Moments<T>* moments) {
  const std::int64_t room = static_cast<std::int64_t>(StepsOf(columns)) * kGroup;
  if constexpr (L::kGuarded) {
    for (int r = 0; r < kRows; ++r) {
      if (!OrdinarySum(RangeOf(x + r * columns, columns), columns)) return false;
    }
  }
  double sums[kRows];
  SumLanes<L, kRows>(lanes, stages[kSumStage], x, columns, columns, row, sums);
  for (int r = 0; r < kRows; ++r) {
    const std::uint64_t place = row + static_cast<std::uint64_t>(r);
    Moments<T>& result = moments[r];
    result.mean = DivideStage(lanes, stages[kMeanStage], place, sums[r], static_cast<double>(columns));
    if (L::kGuarded && !OrdinaryResult(result.mean)) return false;
    Deviations(lanes, stages[kDeviationStage], x + r * columns, columns, place, result.mean, deviations + r * room);
    if constexpr (L::kGuarded) {
      result.deviations = RangeOf(deviations + r * room, columns);
      if (!OrdinaryDot(result.deviations, result.deviations, columns)) return false;
    }
  }
  DotLanes<L, kRows>(lanes, stages[kSquaresStage], deviations, deviations, room, columns, row, sums);
  for (int r = 0; r < kRows; ++r) {
    const std::uint64_t place = row + static_cast<std::uint64_t>(r);
    moments[r].variance = DivideStage(lanes, stages[kVarianceStage], place, sums[r], divisor);
    if (L::kGuarded && !OrdinaryResult(moments[r].variance)) return false;
  }
  return true;
}

// ---------------------------------------------------------------- rows by the way to round

// Calls work.Rows<L, R>(lanes, row) for all rows from begin to end, with the fastest L that does for them.
template <class L, class Work>
void ForRowsBy(const Work& work, const Rounding& rounding, std::int64_t begin, std::int64_t end) {
  const L lanes(rounding);
  std::int64_t row = begin;
  const auto one = [&] {
    if (work.template Rows<L, 1>(lanes, row)) return;
    if constexpr (L::kGuarded) {
      const NarrowLanes<Mode::kStochastic> guard(rounding);
      work.template Rows<NarrowLanes<Mode::kStochastic>, 1>(guard, row);
    }
  };
  while (row < end) {
    if (end - row >= L::kTogether && work.template Rows<L, L::kTogether>(lanes, row)) {
      row += L::kTogether;
      continue;
    }
    const std::int64_t alone = HWY_MIN(end, row + L::kTogether);
    for (; row < alone; ++row) one();
  }
}

template <class T, Mode kMode>
using AnyLanes = std::conditional_t<sizeof(T) == 4, NarrowLanes<kMode>, WideLanes<kMode>>;

template <class T, class Work>
void ForRows(const Work& work, const Rounding& rounding, std::int64_t begin, std::int64_t end) {
  const bool full = rounding.precision == 0 || rounding.precision == (sizeof(T) == 4 ? 24 : 53);
  if (full && rounding.mode == Mode::kNearest) return ForRowsBy<NearestLanes<T>>(work, rounding, begin, end);
  if (full && rounding.mode == Mode::kUpDown) return ForRowsBy<UpDownLanes<T>>(work, rounding, begin, end);
  if constexpr (sizeof(T) == 4) {
    if (full && rounding.mode == Mode::kStochastic) return ForRowsBy<StochasticLanes>(work, rounding, begin, end);
  }
  switch (rounding.mode) {
    case Mode::kNearest:
      return ForRowsBy<AnyLanes<T, Mode::kNearest>>(work, rounding, begin, end);
    case Mode::kStochastic:
      return ForRowsBy<AnyLanes<T, Mode::kStochastic>>(work, rounding, begin, end);
    case Mode::kUpDown:
      return ForRowsBy<AnyLanes<T, Mode::kUpDown>>(work, rounding, begin, end);
    case Mode::kRandom:
      return ForRowsBy<AnyLanes<T, Mode::kRandom>>(work, rounding, begin, end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace prism
HWY_AFTER_NAMESPACE();

#endif  // PRISM_SRC_REDUCE_LANES_INL_H_
