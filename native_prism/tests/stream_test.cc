#include "stream.h"

#include <array>
#include <set>
#include <utility>

#include "check.h"

namespace {

// The words are those that AES by its definition gives.
void TestKnownWords() {
  struct Known {
    struct {
      std::uint64_t seed, sample, operation;
      int stage;
    } key;
    std::uint64_t tile;
    prism::TileArray words;
  };
  const Known known[] = {
#include "known_words.inc"
  };
  for (const Known& k : known) {
    prism::Rounding rounding;
    rounding.seed = k.key.seed;
    rounding.sample = k.key.sample;
    rounding.operation = k.key.operation;
    const auto words = prism::ScalarTile(prism::MakeStream(rounding, k.key.stage), k.tile);
    for (std::size_t i = 0; i < words.size(); ++i) {
      CHECK(words[i] == k.words[i], "tile %llu of seed %llu, word %zu: expected %08x, got %08x",
            static_cast<unsigned long long>(k.tile), static_cast<unsigned long long>(k.key.seed), i, k.words[i],
            words[i]);
    }
  }
}

// Two samples never share a key, also where seed and sample change places.
void TestKeys() {
  std::set<std::pair<std::uint64_t, std::uint64_t>> keys;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    for (std::uint64_t sample = 0; sample < 64; ++sample) {
      const prism::Pair key = prism::StreamKey(seed, sample);
      keys.emplace(key.low, key.high);
    }
  }
  CHECK(keys.size() == 64 * 64, "%zu different keys of 4096", keys.size());
}

// No two lanes of a tile share a bit of what SR draws, and every lane has a word of its own.
void TestLanes() {
  std::set<int> places;
  for (int word = 0; word < prism::kGroup; ++word) {
    for (int bit = 0; bit < 32; ++bit) {
      prism::TileArray words{};
      words[static_cast<std::size_t>(word)] = 1u << bit;
      int lanes = 0;
      for (int lane = 0; lane < prism::kGroup; ++lane) {
        lanes += prism::LaneBits29(words, lane) != 0 ? 1 : 0;
        if (prism::LaneWord(words, lane) != 0) places.insert(lane);
      }
      CHECK(lanes <= 1, "bit %d of word %d is drawn by %d lanes", bit, word, lanes);
    }
  }
  CHECK(places.size() == prism::kGroup, "%zu lanes have a word", places.size());
}

const Test known_words("known_words", TestKnownWords);
const Test keys("keys", TestKeys);
const Test lanes("lanes", TestLanes);

}  // namespace
