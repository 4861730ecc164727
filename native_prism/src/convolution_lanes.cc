#include "config.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "convolution_lanes.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <algorithm>
#include <cfenv>
#include <limits>
#include <type_traits>

#include "convolution_lanes.h"
#include "environment.h"
#include "gemm-inl.h"
#include "targets.h"

HWY_BEFORE_NAMESPACE();
namespace prism {
namespace HWY_NAMESPACE {

constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3 && HWY_TARGET != HWY_SCALAR;

template <class T>
Place PlaceOf(const LaneRows<T>& lanes, std::int64_t row, const Stream& stream, const NarrowFormat& format,
              int precision) {
  return {&stream,
          &format,
          precision,
          lanes.stream_row + static_cast<std::uint64_t>(row) * lanes.stream_row_step,
          lanes.stream_row_step,
          lanes.stream_steps,
          0,
          0};
}

// The kernels of gemm-inl.h, with a vector in the place of each value of `a`.

struct FullStochasticLanes {
  static constexpr int kRows = HWY_TARGET == HWY_SCALAR ? 1 : kManyRegisters ? 4 : 2;

  static HWY_NOINLINE void Run(const LaneRows<float>& lanes, std::int64_t row, const Place& place) {
    const DCarrier d;
    const hn::Rebind<float, DCarrier> narrow;
    const TileCipher cipher(*place.stream);
    typename TileCipher::Base base[kRows];
    const float* inputs[kRows];
    VCarrier sum[kRows][kParts64];
    for (int r = 0; r < kRows; ++r) {
      base[r] = cipher.BaseOf(place.StreamRow(r) * place.steps);
      inputs[r] = lanes.inputs + lanes.bases[row + r];
      for (int p = 0; p < kParts64; ++p) {
        sum[r][p] = hn::PromoteTo(d, hn::LoadU(narrow, lanes.start + p * kLanes64));
      }
    }
    const auto step = TileCipher::OffsetOf(1);
    auto offset = TileCipher::OffsetOf(0);
    for (std::int64_t k = 0; k < lanes.depth; ++k) {
      VCarrier weight[kParts64];
      for (int p = 0; p < kParts64; ++p) {
        weight[p] = hn::PromoteTo(d, hn::LoadU(narrow, lanes.weights + k * kGroup + p * kLanes64));
      }
      for (int r = 0; r < kRows; ++r) Step<0>(sum[r], inputs[r] + lanes.offsets[k], weight, cipher.At(base[r], offset));
      offset = TileCipher::Next(offset, step);
    }
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kParts64; ++p) {
        hn::StoreU(Demoted(sum[r][p]), narrow, lanes.sums + (row + r) * kGroup + p * kLanes64);
      }
    }
  }

 private:
  template <int kPart>
  static HWY_INLINE void Step(VCarrier* sum, const float* HWY_RESTRICT inputs, const VCarrier* weight,
                              const TileVectors& tile) {
    if constexpr (kPart < kParts64) {
      const DCarrier d;
      const VCarrier input = hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, DCarrier>(), inputs + kPart * kLanes64));
      sum[kPart] = RoundCarrier(Fma(d, input, weight[kPart], sum[kPart]), Bits29<kPart>(tile));
      Step<kPart + 1>(sum, inputs, weight, tile);
    }
  }
};

template <class T, Mode kMode>
struct HardwareLanes {
  using D = typename LanesOf<T>::D;
  using DBits = hn::RebindToUnsigned<D>;
  using Bits = hn::TFromD<DBits>;
  using V = hn::Vec<D>;
  using VBits = hn::Vec<DBits>;
  static constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
  static constexpr int kParts = kGroup / kLanes;
  static constexpr int kFloatRows = kManyRegisters ? 8 : 4;
  static constexpr int kRows = HWY_TARGET == HWY_SCALAR ? 1 : sizeof(T) == 4 ? kFloatRows : kFloatRows / 2;

  static HWY_NOINLINE void Run(const LaneRows<T>& lanes, std::int64_t row, const Place& place) {
    const D d;
    V sum[kRows][kParts];
    const T* inputs[kRows];
    for (int r = 0; r < kRows; ++r) {
      inputs[r] = lanes.inputs + lanes.bases[row + r];
      for (int p = 0; p < kParts; ++p) sum[r][p] = hn::LoadU(d, lanes.start + p * kLanes);
    }
    if constexpr (kMode == Mode::kNearest) {
      for (std::int64_t k = 0; k < lanes.depth; ++k) {
        for (int p = 0; p < kParts; ++p) {
          const V weight = hn::LoadU(d, lanes.weights + k * kGroup + p * kLanes);
          for (int r = 0; r < kRows; ++r) {
            sum[r][p] = Fma(d, hn::LoadU(d, inputs[r] + lanes.offsets[k] + p * kLanes), weight, sum[r][p]);
          }
        }
      }
    } else {
      const TileCipher cipher(*place.stream);
      HWY_ALIGN Bits words[kRows * kGroup];
      for (std::int64_t begin = 0; begin < lanes.depth; begin += kStepsPerBitTile) {
        Place here = place;
        here.step = static_cast<std::uint64_t>(begin);
        BitWords<kRows>(cipher, here, 0, words);
        Steps(lanes, begin, HWY_MIN(lanes.depth, begin + kStepsPerBitTile), inputs, words, sum);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kParts; ++p) {
        // Down is up with all signs turned, which leaves some zeros negative.
        const V result = kMode == Mode::kRandom ? hn::Add(sum[r][p], hn::Zero(d)) : sum[r][p];
        hn::StoreU(result, d, lanes.sums + (row + r) * kGroup + p * kLanes);
      }
    }
  }

 private:
  static HWY_INLINE V Rounded(V input, V weight, V sum, V sign_of_bit) {
    const D d;
    if constexpr (kMode == Mode::kUpDown) {
      const V nearest = Fma(d, input, weight, sum);
      return Fma(d, nearest, hn::Or(sign_of_bit, hn::Set(d, LanesOf<T>::kMove)), nearest);
    } else {
      const V turned = Fma(d, hn::Xor(input, sign_of_bit), weight, hn::Xor(sum, sign_of_bit));
      return hn::Xor(turned, sign_of_bit);
    }
  }

  static HWY_INLINE void Steps(const LaneRows<T>& lanes, std::int64_t begin, std::int64_t end,
                               const T* const* inputs, const Bits* HWY_RESTRICT words, V (*sum)[kParts]) {
    const D d;
    const DBits d_bits;
    const V sign = hn::SignBit(d);
    VBits shift = hn::Zero(d_bits);
    const VBits one = hn::Set(d_bits, 1);
    for (std::int64_t k = begin; k < end; ++k) {
      for (int p = 0; p < kParts; ++p) {
        const V weight = hn::LoadU(d, lanes.weights + k * kGroup + p * kLanes);
        for (int r = 0; r < kRows; ++r) {
          const VBits bits = hn::Shl(hn::Load(d_bits, words + r * kGroup + p * kLanes), shift);
          const V input = hn::LoadU(d, inputs[r] + lanes.offsets[k] + p * kLanes);
          sum[r][p] = Rounded(input, weight, sum[r][p], hn::And(hn::BitCast(d, bits), sign));
        }
      }
      shift = hn::Add(shift, one);
    }
  }
};

// Any mode, precision and value of float32.
template <Mode kMode>
struct NarrowLanes {
  static constexpr int kRows = 1;

  static HWY_NOINLINE void Run(const LaneRows<float>& lanes, std::int64_t row, const Place& place) {
    const DCarrier d;
    const hn::Rebind<float, DCarrier> narrow;
    const TileCipher cipher(*place.stream);
    HWY_ALIGN std::uint64_t words[kGroup] = {};
    VCarrier sum[kParts64];
    for (int p = 0; p < kParts64; ++p) {
      sum[p] = hn::PromoteTo(d, hn::LoadU(narrow, lanes.start + p * kLanes64));
    }
    for (std::int64_t k = 0; k < lanes.depth; ++k) {
      TileVectors tile{};
      if constexpr (kMode == Mode::kStochastic) {
        const std::uint64_t number = place.row * place.steps + static_cast<std::uint64_t>(k);
        tile = cipher.At(cipher.BaseOf(number), TileCipher::OffsetOf(0));
      } else if (k % kStepsPerBitTile == 0) {
        Place here = place;
        here.step = static_cast<std::uint64_t>(k);
        BitWords<1>(cipher, here, 0, words);
      }
      Step<0>(lanes.inputs + lanes.bases[row] + lanes.offsets[k], lanes.weights + k * kGroup, tile, words,
              static_cast<int>(k % kStepsPerBitTile), *place.format, sum);
    }
    for (int p = 0; p < kParts64; ++p) {
      hn::StoreU(Demoted(sum[p]), narrow, lanes.sums + row * kGroup + p * kLanes64);
    }
  }

 private:
  template <int kPart>
  static HWY_INLINE void Step(const float* inputs, const float* weights, const TileVectors& tile,
                              const std::uint64_t* words, int bit_number, const NarrowFormat& format,
                              VCarrier* sum) {
    if constexpr (kPart < kParts64) {
      const DCarrier d;
      const hn::Rebind<float, DCarrier> narrow;
      const VCarrier input = hn::PromoteTo(d, hn::LoadU(narrow, inputs + kPart * kLanes64));
      const VCarrier weight = hn::PromoteTo(d, hn::LoadU(narrow, weights + kPart * kLanes64));
      const Carried x = CarryFma(input, weight, sum[kPart]);
      VImage bits29 = hn::Zero(DImage());
      VCarrier bit = hn::Zero(d);
      if constexpr (kMode == Mode::kStochastic) {
        bits29 = Bits29<kPart>(tile);
      } else {
        bit = hn::BitCast(d, hn::ShiftLeftSame(hn::Load(DImage(), words + kPart * kLanes64), bit_number));
      }
      sum[kPart] = RoundNarrow<kMode>(x, bits29, bit, format);
      Step<kPart + 1>(inputs, weights, tile, words, bit_number, format, sum);
    }
  }
};

// Any mode, precision and value of float64, by the definition.
template <Mode kMode>
struct ExactLanes {
  static constexpr int kRows = 1;

  static void Run(const LaneRows<double>& lanes, std::int64_t row, const Place& place) {
    const Format format = Float64Format(place.precision);
    double sums[kGroup];
    std::copy(lanes.start, lanes.start + kGroup, sums);
    TileArray words{};
    for (std::int64_t k = 0; k < lanes.depth; ++k) {
      const auto step = static_cast<std::uint64_t>(k);
      if constexpr (kMode == Mode::kStochastic) {
        words = ScalarTile(*place.stream, place.row * place.steps + step);
      } else if (kMode != Mode::kNearest && step % kStepsPerBitTile == 0) {
        words = ScalarTile(*place.stream, place.row * place.BitTiles() + step / kStepsPerBitTile);
      }
      const double* inputs = lanes.inputs + lanes.bases[row] + lanes.offsets[k];
      for (int l = 0; l < kGroup; ++l) {
        const Random random{LaneWord(words, l), LaneBits29(words, l), LaneBit(words, l, step)};
        sums[l] = Round(ExactMultiplyAdd(inputs[l], lanes.weights[k * kGroup + l], sums[l]), format, kMode, random);
      }
    }
    std::copy(sums, sums + kGroup, lanes.sums + row * kGroup);
  }
};

template <class Kernel, class T>
void RunRows(const LaneRows<T>& lanes, const Rounding& rounding) {
  static_assert(kLaneRows % Kernel::kRows == 0);
  const Stream stream = MakeStream(rounding);
  const NarrowFormat format(sizeof(T) == 4 ? rounding.precision : 0);
  for (std::int64_t row = 0; row < lanes.rows; row += Kernel::kRows) {
    Kernel::Run(lanes, row, PlaceOf(lanes, row, stream, format, rounding.precision));
  }
}

template <Mode kMode, class T>
void SumBy(const LaneRows<T>& lanes, const Rounding& rounding, bool fast) {
  constexpr bool kNarrow = std::is_same_v<T, float>;
  const bool full = rounding.precision == 0 || rounding.precision == std::numeric_limits<T>::digits;
  if constexpr (kMode != Mode::kStochastic) {
    if (fast && full) {
      if constexpr (kMode == Mode::kRandom) {
        const RoundingDirection direction(FE_UPWARD);
        return RunRows<HardwareLanes<T, kMode>>(lanes, rounding);
      }
      return RunRows<HardwareLanes<T, kMode>>(lanes, rounding);
    }
  } else if constexpr (kNarrow) {
    if (fast && full) return RunRows<FullStochasticLanes>(lanes, rounding);
  }
  if constexpr (kNarrow) {
    RunRows<NarrowLanes<kMode>>(lanes, rounding);
  } else {
    RunRows<ExactLanes<kMode>>(lanes, rounding);
  }
}

template <class T>
void SumOnTarget(const LaneRows<T>& lanes, const Rounding& rounding, bool fast) {
  switch (rounding.mode) {
    case Mode::kNearest:
      return SumBy<Mode::kNearest>(lanes, rounding, fast);
    case Mode::kStochastic:
      return SumBy<Mode::kStochastic>(lanes, rounding, fast);
    case Mode::kUpDown:
      return SumBy<Mode::kUpDown>(lanes, rounding, fast);
    case Mode::kRandom:
      return SumBy<Mode::kRandom>(lanes, rounding, fast);
  }
}

void SumFloatLanes(const LaneRows<float>& lanes, const Rounding& rounding, bool fast) {
  SumOnTarget(lanes, rounding, fast);
}
void SumDoubleLanes(const LaneRows<double>& lanes, const Rounding& rounding, bool fast) {
  SumOnTarget(lanes, rounding, fast);
}

template <class T>
void Gather(const T* from, const std::int64_t* channels, std::int64_t count, T* to) {
  const typename LanesOf<T>::D d;
  const hn::RebindToSigned<decltype(d)> d_index;
  using Index = hn::TFromD<decltype(d_index)>;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  std::int64_t most = 0;
  HWY_ALIGN Index index[kGroup];
  for (int l = 0; l < kGroup; ++l) {
    most = HWY_MAX(most, channels[l]);
    index[l] = static_cast<Index>(channels[l]);
  }
  // Vector look-ups take their distances as integers of the lanes' own size.
  if (most > std::numeric_limits<Index>::max()) {
    for (std::int64_t i = 0; i < count; ++i) {
      for (int l = 0; l < kGroup; ++l) to[i * kGroup + l] = from[channels[l] + i];
    }
    return;
  }
  for (int part = 0; part < kGroup; part += kLanes) {
    const auto distances = hn::Load(d_index, index + part);
    for (std::int64_t i = 0; i < count; ++i) {
      hn::StoreU(hn::GatherIndex(d, from + i, distances), d, to + i * kGroup + part);
    }
  }
}

void GatherFloats(const float* from, const std::int64_t* channels, std::int64_t count, float* to) {
  Gather(from, channels, count, to);
}
void GatherDoubles(const double* from, const std::int64_t* channels, std::int64_t count, double* to) {
  Gather(from, channels, count, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace prism
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace prism {
namespace {

HWY_EXPORT(SumFloatLanes);
HWY_EXPORT(SumDoubleLanes);
HWY_EXPORT(GatherFloats);
HWY_EXPORT(GatherDoubles);

}  // namespace

void SumLanes(const LaneRows<float>& lanes, const Rounding& rounding, bool fast) {
  HWY_DISPATCH_TABLE(SumFloatLanes)[DispatchIndex()](lanes, rounding, fast);
}
void SumLanes(const LaneRows<double>& lanes, const Rounding& rounding, bool fast) {
  HWY_DISPATCH_TABLE(SumDoubleLanes)[DispatchIndex()](lanes, rounding, fast);
}

void GatherChannels(const float* from, const std::int64_t* channels, std::int64_t count, float* to) {
  HWY_DISPATCH_TABLE(GatherFloats)[DispatchIndex()](from, channels, count, to);
}
void GatherChannels(const double* from, const std::int64_t* channels, std::int64_t count, double* to) {
  HWY_DISPATCH_TABLE(GatherDoubles)[DispatchIndex()](from, channels, count, to);
}

}  // namespace prism
#endif  // HWY_ONCE
