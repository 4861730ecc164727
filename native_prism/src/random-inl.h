// The random words of stream.h by vector AES. Included once per target.

#if defined(PRISM_SRC_RANDOM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PRISM_SRC_RANDOM_INL_H_
#undef PRISM_SRC_RANDOM_INL_H_
#else
#define PRISM_SRC_RANDOM_INL_H_
#endif

#include "hwy/highway.h"
#include "stream.h"

// Vector code needs float64 lanes, and the emulated targets have no reason to go by vectors.
#undef PRISM_VECTORS
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || !HWY_HAVE_FLOAT64
#define PRISM_VECTORS 0
#else
#define PRISM_VECTORS 1
#endif

// Without AES instructions, table look-ups are twice as fast as Highway's replacement for them.
#undef PRISM_VECTOR_AES
#if !PRISM_VECTORS || HWY_TARGET == HWY_SSSE3
#define PRISM_VECTOR_AES 0
#elif defined(HWY_SSE2) && HWY_TARGET == HWY_SSE2
#define PRISM_VECTOR_AES 0
#elif defined(HWY_NEON_WITHOUT_AES) && HWY_TARGET == HWY_NEON_WITHOUT_AES
#define PRISM_VECTOR_AES 0
#else
#define PRISM_VECTOR_AES 1
#endif

HWY_BEFORE_NAMESPACE();
namespace prism {
namespace HWY_NAMESPACE {

#if PRISM_VECTORS
namespace hn = hwy::HWY_NAMESPACE;
#endif

#if PRISM_VECTOR_AES

// Makes the words of one tile after another.
class TileWords {
  // Only AVX3_DL and better have AES wider than 128 bits.
  using D8 = hn::CappedTag<std::uint8_t, HWY_TARGET <= HWY_AVX3_DL ? 64 : 16>;
  using D64 = hn::Repartition<std::uint64_t, D8>;
  using V8 = hn::Vec<D8>;
  using V64 = hn::Vec<D64>;
  static constexpr int kBlocksPerVector = HWY_TARGET <= HWY_AVX3_DL ? 4 : 1;
  static constexpr int kVectors = kBlocksPerTile / kBlocksPerVector;

 public:
  HWY_INLINE TileWords(const RoundKeys& keys, std::uint64_t operation, std::uint64_t tile) {
    const D64 d64;
    for (int i = 0; i <= kRounds; ++i) keys_[i] = hn::BitCast(D8(), Dup(keys[i].low, keys[i].high));
    step_ = Dup(kBlocksPerVector, 0);
    HWY_ALIGN std::uint64_t counter[2 * kBlocksPerVector];
    for (int i = 0; i < kBlocksPerVector; ++i) {
      counter[2 * i] = tile * kBlocksPerTile + static_cast<std::uint64_t>(i);
      counter[2 * i + 1] = operation;
    }
    counter_ = hn::Load(d64, counter);
  }

  HWY_INLINE void Next(std::uint32_t* HWY_RESTRICT words) {
    const D8 d8;
    V8 state[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      state[v] = hn::Xor(hn::BitCast(d8, counter_), keys_[0]);
      counter_ = hn::Add(counter_, step_);
    }
    for (int round = 1; round < kRounds; ++round) {
      for (int v = 0; v < kVectors; ++v) state[v] = hn::AESRound(state[v], keys_[round]);
    }
    for (int v = 0; v < kVectors; ++v) state[v] = hn::AESLastRound(state[v], keys_[kRounds]);
#if HWY_TARGET == HWY_AVX3
    // Who reads them loads 256 bits at a time, and would wait for narrower stores.
    const hn::Twice<D8> d_pair;
    const hn::Repartition<std::uint32_t, hn::Twice<D8>> d32;
    for (int v = 0; v < kVectors; v += 2) {
      hn::Store(hn::BitCast(d32, hn::Combine(d_pair, state[v + 1], state[v])), d32, words + v * kWordsPerBlock);
    }
#else
    const hn::Repartition<std::uint32_t, D8> d32;
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(hn::BitCast(d32, state[v]), d32, words + v * kBlocksPerVector * kWordsPerBlock);
    }
#endif
  }

 private:
  static HWY_INLINE V64 Dup(std::uint64_t low, std::uint64_t high) {
    const D64 d64;
    return hn::OddEven(hn::Set(d64, high), hn::Set(d64, low));
  }

  V8 keys_[kRounds + 1];
  V64 counter_;
  V64 step_;
};

#else

class TileWords {
 public:
  TileWords(const RoundKeys& keys, std::uint64_t operation, std::uint64_t tile)
      : keys_(keys), operation_(operation), block_(tile * kBlocksPerTile) {}

  void Next(std::uint32_t* words) {
    for (int i = 0; i < kBlocksPerTile; ++i) {
      const auto block = ScalarBlock(keys_, block_++, operation_);
      for (int j = 0; j < kWordsPerBlock; ++j) words[i * kWordsPerBlock + j] = block[j];
    }
  }

 private:
  RoundKeys keys_;
  std::uint64_t operation_;
  std::uint64_t block_;
};

#endif  // PRISM_VECTOR_AES

}  // namespace HWY_NAMESPACE
}  // namespace prism
HWY_AFTER_NAMESPACE();

#endif  // PRISM_SRC_RANDOM_INL_H_
