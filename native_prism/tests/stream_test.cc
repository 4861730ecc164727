#include "stream.h"

#include <set>
#include <utility>

#include "check.h"

namespace {

void CheckKnownAnswers() {
  struct Known {
    prism::Draw draw;
    std::uint64_t block;
    std::array<std::uint32_t, 4> words;
  };
  const Known known[] = {
#include "known_words.inc"
  };
  for (const Known& k : known) {
    const auto words = prism::ScalarBlock(prism::MakeRoundKeys(k.draw), k.block, k.draw.operation);
    CHECK(words == k.words, "block %llu of seed %llu gave %08x %08x %08x %08x",
          static_cast<unsigned long long>(k.block), static_cast<unsigned long long>(k.draw.seed), words[0],
          words[1], words[2], words[3]);
  }
}

}  // namespace

void TestStream() {
  CheckKnownAnswers();
  // Two draws never share a key, also where seed and sample change places.
  std::set<std::pair<std::uint64_t, std::uint64_t>> keys;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    for (std::uint64_t sample = 0; sample < 64; ++sample) {
      const prism::Pair key = prism::StreamKey(seed, sample);
      keys.emplace(key.low, key.high);
    }
  }
  CHECK(keys.size() == 64 * 64, "%zu different keys of 4096", keys.size());
}
