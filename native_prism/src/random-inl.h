// The tiles of stream.h by vector AES. Included once per target.

#if defined(PRISM_SRC_RANDOM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PRISM_SRC_RANDOM_INL_H_
#undef PRISM_SRC_RANDOM_INL_H_
#else
#define PRISM_SRC_RANDOM_INL_H_
#endif

#include "hwy/highway.h"
#include "stream.h"

// Without AES instructions, table look-ups are twice as fast as Highway's replacement for them.
#undef PRISM_VECTOR_AES
#if HWY_TARGET == HWY_SCALAR
#define PRISM_VECTOR_AES 0
#elif defined(HWY_NEON_WITHOUT_AES) && HWY_TARGET == HWY_NEON_WITHOUT_AES
#define PRISM_VECTOR_AES 0
#else
#define PRISM_VECTOR_AES 1
#endif

HWY_BEFORE_NAMESPACE();
namespace prism {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes of 32 bits, so that a group is whole vectors on every target.
using DF = hn::CappedTag<float, kGroup>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using DCarrier = hn::CappedTag<double, kGroup / 2>;
using DImage = hn::RebindToUnsigned<DCarrier>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;
using VCarrier = hn::Vec<DCarrier>;
using VImage = hn::Vec<DImage>;

constexpr int kLanes32 = static_cast<int>(hn::MaxLanes(DF()));
constexpr int kLanes64 = static_cast<int>(hn::MaxLanes(DCarrier()));
constexpr int kParts32 = kGroup / kLanes32;  // vectors of 32-bit lanes in a group
constexpr int kParts64 = kGroup / kLanes64;  // of 64-bit lanes
constexpr int kTileVectors = kParts64 / 2;   // vectors of 64-bit lanes in the 16 words of a tile

// The 16 words of a tile as eight 64-bit lanes.
struct TileVectors {
  VImage part[kTileVectors];
};

// Makes tiles: a tile's words are At(Offset(n)) where the tile's number is n + the base of its row.
class TileCipher {
#if PRISM_VECTOR_AES
  // Only AVX3_DL and better have AES wider than 128 bits.
  using D8 = hn::CappedTag<std::uint8_t, HWY_TARGET <= HWY_AVX3_DL ? 64 : 16>;
  using D64 = hn::Repartition<std::uint64_t, D8>;
  static constexpr int kBlocksPerVector = HWY_TARGET <= HWY_AVX3_DL ? 4 : 1;
  static constexpr int kVectors = kBlocksPerTile / kBlocksPerVector;

 public:
  using V64 = hn::Vec<D64>;

  // What the tiles of one row start from.
  struct Base {
    HWY_ALIGN std::uint64_t counter[2 * kBlocksPerVector];
  };

  // What a step adds to it, the same for every row.
  struct Offset {
    V64 counter;
  };

  explicit HWY_INLINE TileCipher(const Stream& stream) : start_(stream.start) {
    for (int i = 0; i < kRounds; ++i) keys_[i] = Dup(stream.keys[static_cast<std::size_t>(i)]);
  }

  HWY_INLINE Base BaseOf(std::uint64_t tile) const {
    Base base;
    for (int i = 0; i < kBlocksPerVector; ++i) {
      const std::uint64_t block = tile * kBlocksPerTile + static_cast<std::uint64_t>(i);
      base.counter[2 * i] = start_.low + block * kWeylLow;
      base.counter[2 * i + 1] = start_.high + block * kWeylHigh;
    }
    return base;
  }

  static HWY_INLINE Offset OffsetOf(std::uint64_t tiles) {
    return {Dup(Pair{tiles * kBlocksPerTile * kWeylLow, tiles * kBlocksPerTile * kWeylHigh})};
  }

  static HWY_INLINE Offset Next(const Offset& offset, const Offset& step) {
    return {hn::Add(offset.counter, step.counter)};
  }

  HWY_INLINE TileVectors At(const Base& base, const Offset& offset) const {
    const D8 d8;
    const D64 d64;
    const V64 first = hn::Add(hn::Load(d64, base.counter), offset.counter);
    hn::Vec<D8> state[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      const V64 counter =
          v == 0 ? first
                 : hn::Add(first, Dup(Pair{static_cast<std::uint64_t>(v) * kWeylLow,
                                           static_cast<std::uint64_t>(v) * kWeylHigh}));
      state[v] = hn::BitCast(d8, counter);
    }
    for (int round = 0; round < kRounds; ++round) {
      for (int v = 0; v < kVectors; ++v) state[v] = hn::AESRound(state[v], hn::BitCast(d8, keys_[round]));
    }
    return Joined(d8, state);
  }

 private:
  static HWY_INLINE V64 Dup(const Pair& pair) {
    const D64 d64;
    return hn::OddEven(hn::Set(d64, pair.high), hn::Set(d64, pair.low));
  }

  template <class D>
  static HWY_INLINE TileVectors Joined(D d8, const hn::Vec<D>* state) {
    (void)d8;
    const DImage image;
    TileVectors tile;
    if constexpr (kVectors == kTileVectors) {
      for (int i = 0; i < kTileVectors; ++i) tile.part[i] = hn::BitCast(image, state[i]);
    } else if constexpr (kVectors == 2 * kTileVectors) {
      const hn::Twice<D> d_pair;
      for (int i = 0; i < kTileVectors; ++i) {
        tile.part[i] = hn::BitCast(image, hn::Combine(d_pair, state[2 * i + 1], state[2 * i]));
      }
    } else {
      const hn::Twice<D> d_pair;
      const hn::Twice<decltype(d_pair)> d_four;
      tile.part[0] = hn::BitCast(
          image, hn::Combine(d_four, hn::Combine(d_pair, state[3], state[2]), hn::Combine(d_pair, state[1], state[0])));
    }
    return tile;
  }

  Pair start_;
  V64 keys_[kRounds];
#else

 public:
  struct Base {
    std::uint64_t tile;
  };
  struct Offset {
    std::uint64_t tiles;
  };

  explicit TileCipher(const Stream& stream) : stream_(stream) {}

  Base BaseOf(std::uint64_t tile) const { return {tile}; }
  static Offset OffsetOf(std::uint64_t tiles) { return {tiles}; }
  static Offset Next(const Offset& offset, const Offset& step) { return {offset.tiles + step.tiles}; }

  TileVectors At(const Base& base, const Offset& offset) const {
    const TileArray words = ScalarTile(stream_, base.tile + offset.tiles);
    std::uint64_t lanes[kGroup / 2];
    for (int i = 0; i < kGroup / 2; ++i) {
      lanes[i] = words[static_cast<std::size_t>(2 * i)] |
                 static_cast<std::uint64_t>(words[static_cast<std::size_t>(2 * i + 1)]) << 32;
    }
    TileVectors tile;
    for (int i = 0; i < kTileVectors; ++i) tile.part[i] = hn::LoadU(DImage(), lanes + i * kLanes64);
    return tile;
  }

 private:
  Stream stream_;
#endif  // PRISM_VECTOR_AES
};

// LaneBits29 of the lanes of the `part`-th vector of 64-bit lanes of a group.
template <int kPart>
HWY_INLINE VImage Bits29(const TileVectors& tile) {
  if constexpr (kPart < kTileVectors) {
    return hn::ShiftRight<35>(tile.part[kPart]);
  } else {
    return hn::And(tile.part[kPart - kTileVectors], hn::Set(DImage(), (std::uint64_t{1} << 29) - 1));
  }
}

// The words of the lanes of the `part`-th vector of 32-bit lanes of a group.
HWY_INLINE VU Words32(const TileVectors& tile, int part) {
  if constexpr (kLanes32 == 1) {
    const std::uint64_t pair = hn::GetLane(tile.part[part / 2]);
    return hn::Set(DU(), static_cast<std::uint32_t>(part % 2 == 0 ? pair : pair >> 32));
  } else {
    return hn::BitCast(DU(), tile.part[part]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace prism
HWY_AFTER_NAMESPACE();

#endif  // PRISM_SRC_RANDOM_INL_H_
