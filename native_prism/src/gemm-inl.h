// Micro-kernels: a few rows by 16 or 32 columns, one step after another. Included once per target.

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

// Where a block of rows and columns draws its words.
struct Place {
  const Stream* stream;
  std::uint64_t row;             // the stream's row of the block's first row and group
  std::uint64_t groups_per_row;  // the stream's rows from one row to the next
  std::uint64_t steps;           // of a whole sum
  std::uint64_t step;            // of the block's first
};

// SR in float64 lanes: 16 columns, kRows rows. `sums` holds [row][16] float32.
template <int kRows>
struct StochasticKernel {
  using Element = double;
  static constexpr int kGroups = 1;

  static HWY_NOINLINE void Run(const double* HWY_RESTRICT a, const double* HWY_RESTRICT b, int depth, const Place& place,
                               float* HWY_RESTRICT sums) {
    const DCarrier d;
    const hn::Rebind<float, DCarrier> narrow;
    const TileCipher cipher(*place.stream);
    typename TileCipher::Base base[kRows];
    VCarrier sum[kRows][kParts64];
    for (int r = 0; r < kRows; ++r) {
      base[r] = cipher.BaseOf((place.row + static_cast<std::uint64_t>(r) * place.groups_per_row) * place.steps +
                              place.step);
      for (int p = 0; p < kParts64; ++p) {
        sum[r][p] = hn::PromoteTo(d, hn::LoadU(narrow, sums + r * kGroup + p * kLanes64));
      }
    }
    const auto step = TileCipher::OffsetOf(1);
    auto offset = TileCipher::OffsetOf(0);
    for (int k = 0; k < depth; ++k) {
      VCarrier column[kParts64];
      for (int p = 0; p < kParts64; ++p) column[p] = hn::Load(d, b + k * kGroup + p * kLanes64);
      for (int r = 0; r < kRows; ++r) {
        const TileVectors tile = cipher.At(base[r], offset);
        const VCarrier row = hn::Set(d, a[k * kRows + r]);
        Step<0>(sum[r], row, column, tile);
      }
      offset = TileCipher::Next(offset, step);
    }
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kParts64; ++p) {
        hn::StoreU(hn::DemoteTo(narrow, sum[r][p]), narrow, sums + r * kGroup + p * kLanes64);
      }
    }
  }

 private:
  template <int kPart>
  static HWY_INLINE void Step(VCarrier* sum, VCarrier row, const VCarrier* column, const TileVectors& tile) {
    if constexpr (kPart < kParts64) {
      sum[kPart] = RoundCarrier(Fma(DCarrier(), row, column[kPart], sum[kPart]), Bits29<kPart>(tile));
      Step<kPart + 1>(sum, row, column, tile);
    }
  }
};

// RN and UD in float32 lanes.
template <Mode kMode, int kRows, int kGroupCount>
struct NarrowKernel {
  using Element = float;
  static constexpr int kGroups = kGroupCount;
  static constexpr int kParts = kGroups * kParts32;
  static constexpr int kColumns = kGroups * kGroup;

  static HWY_NOINLINE void Run(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int depth, const Place& place,
                               float* HWY_RESTRICT sums) {
    const DF d;
    VF sum[kRows][kParts];
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kParts; ++p) sum[r][p] = hn::LoadU(d, sums + r * kColumns + p * kLanes32);
    }
    if constexpr (kMode == Mode::kNearest) {
      for (int k = 0; k < depth; ++k) {
        VF column[kParts];
        for (int p = 0; p < kParts; ++p) column[p] = hn::Load(d, b + k * kColumns + p * kLanes32);
        for (int r = 0; r < kRows; ++r) {
          const VF row = hn::Set(d, a[k * kRows + r]);
          for (int p = 0; p < kParts; ++p) sum[r][p] = Fma(d, row, column[p], sum[r][p]);
        }
      }
    } else {
      RunBits(a, b, depth, place, sum);
    }
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kParts; ++p) hn::StoreU(sum[r][p], d, sums + r * kColumns + p * kLanes32);
    }
  }

 private:
  // Blocks begin at a multiple of 32 steps.
  static HWY_INLINE void RunBits(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int depth,
                                 const Place& place, VF (*sum)[kParts]) {
    const DF d;
    const DU du;
    const TileCipher cipher(*place.stream);
    const std::uint64_t tiles = (place.steps + kStepsPerBitTile - 1) / kStepsPerBitTile;
    HWY_ALIGN std::uint32_t words[kRows * kColumns];
    for (int begin = 0; begin < depth; begin += kStepsPerBitTile) {
      const int end = HWY_MIN(depth, begin + kStepsPerBitTile);
      const std::uint64_t tile_step = (place.step + static_cast<std::uint64_t>(begin)) / kStepsPerBitTile;
      for (int r = 0; r < kRows; ++r) {
        for (int g = 0; g < kGroups; ++g) {
          const std::uint64_t row = place.row + static_cast<std::uint64_t>(r) * place.groups_per_row +
                                    static_cast<std::uint64_t>(g);
          const TileVectors tile = cipher.At(cipher.BaseOf(row * tiles + tile_step), TileCipher::OffsetOf(0));
          for (int p = 0; p < kParts32; ++p) {
            hn::Store(Words32(tile, p), du, words + r * kColumns + g * kGroup + p * kLanes32);
          }
        }
      }
      Steps(a + begin * kRows, b + begin * kColumns, end - begin, words, sum);
    }
  }

  // Beside what is added to each step's result: 1.25 half ulps of it, up or down, which rounds to its neighbour.
  static HWY_INLINE void Steps(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int steps,
                               const std::uint32_t* HWY_RESTRICT words, VF (*sum)[kParts]) {
    const DF d;
    const DU du;
    const VF away = hn::Set(d, 1.25f * 0x1p-24f);
    const VF toward = hn::Set(d, -1.25f * 0x1p-24f);
#if HWY_TARGET <= HWY_AVX3
    VU bits[kRows][kParts];
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kParts; ++p) bits[r][p] = hn::Load(du, words + r * kColumns + p * kLanes32);
    }
    const VU sign = hn::Set(du, 0x80000000u);
    const VU away_bits = hn::BitCast(du, away);
#endif
    const VF sign_f = hn::SignBit(d);
    VU shift = hn::Zero(du);
    const VU one = hn::Set(du, 1);
    for (int k = 0; k < steps; ++k) {
      VF column[kParts];
      for (int p = 0; p < kParts; ++p) column[p] = hn::Load(d, b + k * kColumns + p * kLanes32);
      for (int r = 0; r < kRows; ++r) {
        const VF row = hn::Set(d, a[k * kRows + r]);
        for (int p = 0; p < kParts; ++p) {
          const VF nearest = Fma(d, row, column[p], sum[r][p]);
#if HWY_TARGET <= HWY_AVX3
          const VF move = hn::BitCast(d, hn::OrAnd(away_bits, bits[r][p], sign));
          bits[r][p] = hn::Add(bits[r][p], bits[r][p]);
#else
          const VF bit = hn::BitCast(d, hn::Shl(hn::Load(du, words + r * kColumns + p * kLanes32), shift));
          const VF move = hn::Or(hn::And(bit, sign_f), away);
#endif
          sum[r][p] = Fma(d, nearest, move, nearest);
        }
      }
      shift = hn::Add(shift, one);
    }
    (void)toward;
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace prism
HWY_AFTER_NAMESPACE();

#endif  // PRISM_SRC_GEMM_INL_H_
