// The random words: a counter-based generator, so that any word can be made without those before it.
//
// ARS-5 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011): five AES
// rounds with Weyl round keys. The 128-bit counter is (block, operation); the 128-bit key is a bijection of
// (seed, sample), so different draws never share a stream. A block is four 32-bit words.

#ifndef PRISM_SRC_STREAM_H_
#define PRISM_SRC_STREAM_H_

#include <array>
#include <cstdint>

#include "prism/prism.h"

namespace prism {

constexpr int kRounds = 5;
constexpr int kWordsPerBlock = 4;
// Elements are handled in groups of 16, a tile is the 16 words (4 blocks) that serve one SR group or, one bit
// an element, 32 UD groups:
//   SR: element i uses word i;  UD: element i uses bit (i / 16) % 32 of word 16 (i / 512) + i % 16.
constexpr int kGroup = 16;
constexpr int kBlocksPerTile = kGroup / kWordsPerBlock;
constexpr int kGroupsPerUdTile = 32;

struct Pair {
  std::uint64_t low;
  std::uint64_t high;
};

using RoundKeys = std::array<Pair, kRounds + 1>;

// David Stafford's mix 13, the finalizer of SplitMix64.
constexpr std::uint64_t Mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// A Feistel network: a bijection, so that no two (seed, sample) share a key, with neighbours far apart.
constexpr Pair StreamKey(std::uint64_t seed, std::uint64_t sample) {
  Pair key{seed, sample};
  for (std::uint64_t round = 1; round <= 4; ++round) {
    const std::uint64_t high = key.low ^ Mix(key.high + round * 0x9E3779B97F4A7C15u);
    key.low = key.high;
    key.high = high;
  }
  return key;
}

inline RoundKeys MakeRoundKeys(const Draw& draw) {
  constexpr std::uint64_t kWeylLow = 0x9E3779B97F4A7C15u;   // golden ratio
  constexpr std::uint64_t kWeylHigh = 0xBB67AE8584CAA73Bu;  // sqrt(3) - 1
  RoundKeys keys{};
  keys[0] = StreamKey(draw.seed, draw.sample);
  for (int round = 1; round <= kRounds; ++round) {
    keys[round] = {keys[round - 1].low + kWeylLow, keys[round - 1].high + kWeylHigh};
  }
  return keys;
}

// The four words of one block, without vector instructions.
std::array<std::uint32_t, kWordsPerBlock> ScalarBlock(const RoundKeys& keys, std::uint64_t block,
                                                      std::uint64_t operation);

}  // namespace prism

#endif  // PRISM_SRC_STREAM_H_
