// Micro-kernels of the matrix product: a few rows by 16 columns, one step after another. Included once per target.
//
// `a` is packed [step][row], `b` [step][16], `sums` is [row][16]. Where there are too few rows to keep the arithmetic
// units busy, kernels go across: what they call rows are groups of columns of one row, `a` is [step], `b`
// [group][step][16], one after another `b_stride` apart, and `sums` [group][16].

#if defined(PRISM_SRC_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PRISM_SRC_GEMM_INL_H_
#undef PRISM_SRC_GEMM_INL_H_
#else
#define PRISM_SRC_GEMM_INL_H_
#endif

#include "rounding-inl.h"

HWY_BEFORE_NAMESPACE();
namespace prism {
namespace HWY_NAMESPACE {

// Where a block of rows draws its words, and how it rounds.
struct Place {
  const Stream* stream;
  const NarrowFormat* format;    // of float32 results
  int precision;                 // as in Rounding
  std::uint64_t row;             // the stream's row of the block's first row
  std::uint64_t groups_per_row;  // the stream's rows from one row to the next
  std::uint64_t steps;           // of a whole sum
  std::uint64_t step;            // the block's first: a multiple of 32
  std::int64_t b_stride;         // between the groups that a kernel goes across

  std::uint64_t StreamRow(int r) const { return row + static_cast<std::uint64_t>(r) * groups_per_row; }
  std::uint64_t BitTiles() const { return (steps + kStepsPerBitTile - 1) / kStepsPerBitTile; }
};

// The words of all rows for the 32 steps from `begin`, a lane's bits from the top.
template <int kRows, class Lane>
HWY_INLINE void BitWords(const TileCipher& cipher, const Place& place, int begin, Lane* HWY_RESTRICT words) {
  const std::uint64_t tile_step = (place.step + static_cast<std::uint64_t>(begin)) / kStepsPerBitTile;
  for (int r = 0; r < kRows; ++r) {
    const std::uint64_t tile = place.StreamRow(r) * place.BitTiles() + tile_step;
    const TileVectors words32 = cipher.At(cipher.BaseOf(tile), TileCipher::OffsetOf(0));
    if constexpr (sizeof(Lane) == 4) {
      for (int p = 0; p < kParts32; ++p) hn::Store(Words32(words32, p), DU(), words + r * kGroup + p * kLanes32);
    } else {
      HWY_ALIGN std::uint32_t lanes[kGroup];
      for (int p = 0; p < kParts32; ++p) hn::Store(Words32(words32, p), DU(), lanes + p * kLanes32);
      for (int l = 0; l < kGroup; ++l) words[r * kGroup + l] = static_cast<Lane>(lanes[l]) << 32;
    }
  }
}

// SR of float32 in float64 lanes. See FastKernelsApply for when.
template <bool kFull, int kRows, bool kAcross = false>
struct StochasticKernel {
  using Element = double;
  using Sum = float;

  static HWY_NOINLINE void Run(const double* HWY_RESTRICT a, const double* HWY_RESTRICT b, int depth,
                               const Place& place, float* HWY_RESTRICT sums) {
    const DCarrier d;
    const hn::Rebind<float, DCarrier> narrow;
    const TileCipher cipher(*place.stream);
    const int shift = place.format->dropped - 29;
    const VImage mask = hn::Set(DImage(), ~((std::uint64_t{1} << place.format->dropped) - 1));
    typename TileCipher::Base base[kRows];
    VCarrier sum[kRows][kParts64];
    for (int r = 0; r < kRows; ++r) {
      base[r] = cipher.BaseOf(place.StreamRow(r) * place.steps + place.step);
      for (int p = 0; p < kParts64; ++p) {
        sum[r][p] = hn::PromoteTo(d, hn::LoadU(narrow, sums + r * kGroup + p * kLanes64));
      }
    }
    const auto step = TileCipher::OffsetOf(1);
    auto offset = TileCipher::OffsetOf(0);
    for (int k = 0; k < depth; ++k) {
      VCarrier column[kParts64];
      for (int r = 0; r < kRows; ++r) {
        if (kAcross || r == 0) {
          const double* from = b + (kAcross ? r * place.b_stride : 0) + k * kGroup;
          for (int p = 0; p < kParts64; ++p) column[p] = hn::Load(d, from + p * kLanes64);
        }
        const VCarrier row = hn::Set(d, a[kAcross ? k : k * kRows + r]);
        Step<0>(sum[r], row, column, cipher.At(base[r], offset), shift, mask);
      }
      offset = TileCipher::Next(offset, step);
    }
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kParts64; ++p) {
        hn::StoreU(Demoted(sum[r][p]), narrow, sums + r * kGroup + p * kLanes64);
      }
    }
  }

 private:
  template <int kPart>
  static HWY_INLINE void Step(VCarrier* sum, VCarrier row, const VCarrier* column, const TileVectors& tile,
                              int shift, VImage mask) {
    if constexpr (kPart < kParts64) {
      const VCarrier exact = Fma(DCarrier(), row, column[kPart], sum[kPart]);
      if constexpr (kFull) {
        sum[kPart] = RoundCarrier(exact, Bits29<kPart>(tile));
      } else {
        const VImage random = hn::ShiftLeftSame(Bits29<kPart>(tile), shift);
        const VImage moved = hn::Add(hn::BitCast(DImage(), exact), random);
        sum[kPart] = hn::BitCast(DCarrier(), hn::And(moved, mask));
      }
      Step<kPart + 1>(sum, row, column, tile, shift, mask);
    }
  }
};

// What differs between float32 and float64 lanes.
template <class T>
struct LanesOf;
template <>
struct LanesOf<float> {
  using D = DF;
  static constexpr float kMove = 1.25f * 0x1p-24f;
};
template <>
struct LanesOf<double> {
  using D = DCarrier;
  static constexpr double kMove = 1.25 * 0x1p-53;
};

// RN, UD and RR in the arithmetic of T itself. RR wants the rounding direction to be upward. See FastKernelsApply.
template <class T, Mode kMode, int kRows, bool kAcross = false>
struct HardwareKernel {
  using Element = T;
  using Sum = T;
  using D = typename LanesOf<T>::D;
  using DBits = hn::RebindToUnsigned<D>;
  using Bits = hn::TFromD<DBits>;
  using V = hn::Vec<D>;
  using VBits = hn::Vec<DBits>;
  static constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
  static constexpr int kParts = kGroup / kLanes;

  static HWY_NOINLINE void Run(const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, int depth, const Place& place,
                               T* HWY_RESTRICT sums) {
    const D d;
    V sum[kRows][kParts];
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kParts; ++p) sum[r][p] = hn::LoadU(d, sums + r * kGroup + p * kLanes);
    }
    if constexpr (kMode == Mode::kNearest) {
      Nearest(a, b, depth, place.b_stride, sum);
    } else {
      const TileCipher cipher(*place.stream);
      HWY_ALIGN Bits words[kRows * kGroup];
      for (int begin = 0; begin < depth; begin += kStepsPerBitTile) {
        BitWords<kRows>(cipher, place, begin, words);
        const int steps = HWY_MIN(depth - begin, kStepsPerBitTile);
        Steps(a + begin * (kAcross ? 1 : kRows), b + begin * kGroup, steps, place.b_stride, words, sum);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kParts; ++p) {
        // Down is up with all signs turned, which leaves some zeros negative.
        const V result = kMode == Mode::kRandom ? hn::Add(sum[r][p], hn::Zero(d)) : sum[r][p];
        hn::StoreU(result, d, sums + r * kGroup + p * kLanes);
      }
    }
  }

 private:
  // The columns of a step: all rows' own, unless the kernel goes across.
  static HWY_INLINE void LoadColumn(const T* HWY_RESTRICT b, int k, int r, std::int64_t b_stride, V* column) {
    if (!kAcross && r != 0) return;
    const T* from = b + (kAcross ? r * b_stride : 0) + k * kGroup;
    for (int p = 0; p < kParts; ++p) column[p] = hn::Load(D(), from + p * kLanes);
  }

  static HWY_INLINE void Nearest(const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, int depth, std::int64_t b_stride,
                                 V (*sum)[kParts]) {
    const D d;
    for (int k = 0; k < depth; ++k) {
      V column[kParts];
      for (int r = 0; r < kRows; ++r) {
        LoadColumn(b, k, r, b_stride, column);
        const V row = hn::Set(d, a[kAcross ? k : k * kRows + r]);
        for (int p = 0; p < kParts; ++p) sum[r][p] = Fma(d, row, column[p], sum[r][p]);
      }
    }
  }

  static HWY_INLINE V Rounded(V row, V column, V sum, V sign_of_bit) {
    const D d;
    if constexpr (kMode == Mode::kUpDown) {
      // 1.25 half ulps more or less round to the neighbour.
      const V nearest = Fma(d, row, column, sum);
      return Fma(d, nearest, hn::Or(sign_of_bit, hn::Set(d, LanesOf<T>::kMove)), nearest);
    } else {
      const V turned = Fma(d, hn::Xor(row, sign_of_bit), column, hn::Xor(sum, sign_of_bit));
      return hn::Xor(turned, sign_of_bit);
    }
  }

  static HWY_INLINE void Steps(const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, int steps, std::int64_t b_stride,
                               const Bits* HWY_RESTRICT words, V (*sum)[kParts]) {
    const D d;
    const DBits d_bits;
    const V sign = hn::SignBit(d);
    VBits shift = hn::Zero(d_bits);
    const VBits one = hn::Set(d_bits, 1);
#if HWY_TARGET <= HWY_AVX3
    // There are registers enough to keep the words.
    VBits kept[kRows][kParts];
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kParts; ++p) kept[r][p] = hn::Load(d_bits, words + r * kGroup + p * kLanes);
    }
#endif
    for (int k = 0; k < steps; ++k) {
      V column[kParts];
      for (int r = 0; r < kRows; ++r) {
        LoadColumn(b, k, r, b_stride, column);
        const V row = hn::Set(d, a[kAcross ? k : k * kRows + r]);
        for (int p = 0; p < kParts; ++p) {
#if HWY_TARGET <= HWY_AVX3
          const V bits = hn::BitCast(d, kept[r][p]);
          kept[r][p] = hn::Add(kept[r][p], kept[r][p]);
#else
          const V bits = hn::BitCast(d, hn::Shl(hn::Load(d_bits, words + r * kGroup + p * kLanes), shift));
#endif
          sum[r][p] = Rounded(row, column[p], sum[r][p], hn::And(bits, sign));
        }
      }
      shift = hn::Add(shift, one);
    }
  }
};

// Any mode, precision and value of float32, in float64 lanes.
template <Mode kMode, int kRows>
struct NarrowKernel {
  using Element = double;
  using Sum = float;

  static HWY_NOINLINE void Run(const double* HWY_RESTRICT a, const double* HWY_RESTRICT b, int depth,
                               const Place& place, float* HWY_RESTRICT sums) {
    const DCarrier d;
    const hn::Rebind<float, DCarrier> narrow;
    const TileCipher cipher(*place.stream);
    HWY_ALIGN std::uint64_t words[kRows * kGroup] = {};
    for (int k = 0; k < depth; ++k) {
      if (kMode != Mode::kStochastic && k % kStepsPerBitTile == 0) BitWords<kRows>(cipher, place, k, words);
      for (int r = 0; r < kRows; ++r) {
        TileVectors tile{};
        if constexpr (kMode == Mode::kStochastic) {
          const std::uint64_t number = place.StreamRow(r) * place.steps + place.step + static_cast<std::uint64_t>(k);
          tile = cipher.At(cipher.BaseOf(number), TileCipher::OffsetOf(0));
        }
        Step<0>(hn::Set(d, a[k * kRows + r]), b + k * kGroup, tile, words + r * kGroup, k, place,
                sums + r * kGroup);
      }
    }
    for (int i = 0; i < kRows * kGroup; i += kLanes64) {
      const auto value = hn::LoadU(narrow, sums + i);
      hn::StoreU(Demoted(Canonical(hn::PromoteTo(d, value))), narrow, sums + i);
    }
  }

 private:
  static HWY_INLINE VCarrier Canonical(VCarrier x) { return hn::IfThenElse(hn::IsNaN(x), CanonicalNan64(), x); }

  template <int kPart>
  static HWY_INLINE void Step(VCarrier row, const double* HWY_RESTRICT b, const TileVectors& tile,
                              const std::uint64_t* HWY_RESTRICT words, int k, const Place& place,
                              float* HWY_RESTRICT sums) {
    if constexpr (kPart < kParts64) {
      const DCarrier d;
      const DImage image;
      const hn::Rebind<float, DCarrier> narrow;
      const VCarrier sum = hn::PromoteTo(d, hn::LoadU(narrow, sums + kPart * kLanes64));
      const Carried x = CarryFma(row, hn::Load(d, b + kPart * kLanes64), sum);
      VImage bits29 = hn::Zero(image);
      VCarrier bit = hn::Zero(d);
      if constexpr (kMode == Mode::kStochastic) {
        bits29 = Bits29<kPart>(tile);
      } else {
        const VImage word = hn::Load(image, words + kPart * kLanes64);
        bit = hn::BitCast(d, hn::ShiftLeftSame(word, k % kStepsPerBitTile));
      }
      hn::StoreU(Demoted(RoundNarrow<kMode>(x, bits29, bit, *place.format)), narrow,
                 sums + kPart * kLanes64);
      Step<kPart + 1>(row, b, tile, words, k, place, sums);
    }
  }
};

// Any mode, precision and value of float64, lane by lane by the definition.
template <int kRows>
struct ExactKernel {
  using Element = double;
  using Sum = double;

  static HWY_NOINLINE void Run(Mode mode, const double* HWY_RESTRICT a, const double* HWY_RESTRICT b, int depth,
                               const Place& place, double* HWY_RESTRICT sums) {
    const Format format = Float64Format(place.precision);
    for (int r = 0; r < kRows; ++r) {
      TileArray words{};
      for (int k = 0; k < depth; ++k) {
        const std::uint64_t step = place.step + static_cast<std::uint64_t>(k);
        if (mode == Mode::kStochastic) {
          words = ScalarTile(*place.stream, place.StreamRow(r) * place.steps + step);
        } else if (mode != Mode::kNearest && step % kStepsPerBitTile == 0) {
          words = ScalarTile(*place.stream, place.StreamRow(r) * place.BitTiles() + step / kStepsPerBitTile);
        }
        for (int l = 0; l < kGroup; ++l) {
          const Random random{LaneWord(words, l), LaneBits29(words, l), LaneBit(words, l, step)};
          double& sum = sums[r * kGroup + l];
          sum = Round(ExactMultiplyAdd(a[k * kRows + r], b[k * kGroup + l], sum), format, mode, random);
        }
      }
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace prism
HWY_AFTER_NAMESPACE();

#endif  // PRISM_SRC_GEMM_INL_H_
