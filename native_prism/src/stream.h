// The random words: a counter-based generator, so that any word can be made without those before it.
//
// A few AES rounds over a Weyl sequence of 128-bit counters, after ARS of Salmon, Moraes, Dror and Shaw, "Parallel random
// numbers: as easy as 1, 2, 3" (SC 2011), whose counter goes up by one and so needs five rounds. The start of the
// sequence and the round keys are functions of (seed, sample); the operation moves the start. A block is four
// 32-bit words.

#ifndef PRISM_SRC_STREAM_H_
#define PRISM_SRC_STREAM_H_

#include <array>
#include <cstdint>

#include "prism/prism.h"

namespace prism {

#ifndef PRISM_ROUNDS
#define PRISM_ROUNDS 3
#endif
constexpr int kRounds = PRISM_ROUNDS;
constexpr int kWordsPerBlock = 4;
// Everything is done in groups of 16 lanes. A tile is the 16 words (4 blocks) that serve one group for one step with
// SR, or for 32 steps, one bit each, with UD and RR.
constexpr int kGroup = 16;
constexpr int kBlocksPerTile = kGroup / kWordsPerBlock;
constexpr int kStepsPerBitTile = 32;
constexpr std::uint64_t kWeylLow = 0x9E3779B97F4A7C15u;   // golden ratio
constexpr std::uint64_t kWeylHigh = 0xBB67AE8584CAA73Bu;  // sqrt(3) - 1

struct Pair {
  std::uint64_t low;
  std::uint64_t high;
};

using TileArray = std::array<std::uint32_t, kGroup>;

// David Stafford's mix 13, the finalizer of SplitMix64: a bijection.
constexpr std::uint64_t Mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// A Feistel network: a bijection, so that no two (seed, sample) share a key, with neighbours far apart.
constexpr Pair StreamKey(std::uint64_t seed, std::uint64_t sample) {
  Pair key{seed, sample};
  for (std::uint64_t round = 1; round <= 4; ++round) {
    const std::uint64_t high = key.low ^ Mix(key.high + round * kWeylLow);
    key.low = key.high;
    key.high = high;
  }
  return key;
}

// All that is fixed for one operation of one sample.
struct Stream {
  Pair start;
  std::array<Pair, kRounds> keys;
};

// Each operation has 256 stages, one for each part of a composite such as a softmax.
inline Stream MakeStream(const Rounding& rounding, int stage = 0) {
  const Pair key = StreamKey(rounding.seed, rounding.sample);
  const std::uint64_t place = rounding.operation << 8 | static_cast<std::uint64_t>(stage);
  Stream stream{{key.low, key.high + Mix(place + kWeylLow)}, {}};
  for (int round = 0; round < kRounds; ++round) {
    const auto number = static_cast<std::uint64_t>(round + 1);
    stream.keys[round] = {Mix(key.low + number * kWeylHigh), Mix(key.high + number * kWeylLow)};
  }
  return stream;
}

// The counter of a block: low is a bijection of its number, so that counters never repeat within a key.
constexpr Pair Counter(const Stream& stream, std::uint64_t block) {
  return {stream.start.low + block * kWeylLow, stream.start.high + block * kWeylHigh};
}

// The 16 words of a tile, without vector instructions.
TileArray ScalarTile(const Stream& stream, std::uint64_t tile);

// Which words a lane uses. SR with float32 takes 29 bits, from the upper halves of the eight 64-bit lanes of a
// tile for lanes 0 to 7 and from their lower halves for the others, so that no vector has to be widened.
constexpr std::uint32_t LaneWord(const TileArray& words, int lane) {
  return lane < kGroup / 2 ? words[static_cast<std::size_t>(2 * lane + 1)]
                           : words[static_cast<std::size_t>(2 * lane - kGroup)];
}
constexpr std::uint32_t LaneBits29(const TileArray& words, int lane) {
  const std::uint32_t word = LaneWord(words, lane);
  return lane < kGroup / 2 ? word >> 3 : word & ((1u << 29) - 1);
}
// UD and RR take one bit of the lane's own word: towards zero (UD) or down (RR) where it is set.
constexpr bool LaneBit(const TileArray& words, int lane, std::uint64_t step) {
  return (words[static_cast<std::size_t>(lane)] >> (31 - step % kStepsPerBitTile)) & 1;
}

}  // namespace prism

#endif  // PRISM_SRC_STREAM_H_
