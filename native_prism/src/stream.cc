#include "stream.h"

namespace prism {
namespace {

constexpr std::uint8_t Double(std::uint8_t x) {
  return static_cast<std::uint8_t>((x << 1) ^ ((x & 0x80) ? 0x1B : 0));
}

constexpr std::uint8_t RotateLeft(std::uint8_t x, int n) {
  return static_cast<std::uint8_t>((x << n) | (x >> (8 - n)));
}

// The S-box of FIPS 197, section 5.1.1. 3 generates the multiplicative group of GF(2^8): while p runs
// through the powers of 3, q runs through their inverses.
constexpr std::array<std::uint8_t, 256> MakeSbox() {
  std::array<std::uint8_t, 256> sbox{};
  std::uint8_t p = 1;
  std::uint8_t q = 1;
  do {
    p = static_cast<std::uint8_t>(p ^ Double(p));
    q = static_cast<std::uint8_t>(q ^ (q << 1));
    q = static_cast<std::uint8_t>(q ^ (q << 2));
    q = static_cast<std::uint8_t>(q ^ (q << 4));
    if (q & 0x80) q ^= 0x09;
    sbox[p] = static_cast<std::uint8_t>(q ^ RotateLeft(q, 1) ^ RotateLeft(q, 2) ^ RotateLeft(q, 3) ^
                                        RotateLeft(q, 4) ^ 0x63);
  } while (p != 1);
  sbox[0] = 0x63;
  return sbox;
}

constexpr std::array<std::uint8_t, 256> kSbox = MakeSbox();

// What a byte of the first row contributes to its column of the next state (SubBytes and MixColumns); one of
// row r contributes the same, rotated by r bytes.
constexpr std::array<std::uint32_t, 256> MakeColumns() {
  std::array<std::uint32_t, 256> columns{};
  for (int x = 0; x < 256; ++x) {
    const std::uint32_t once = kSbox[x];
    const std::uint32_t twice = Double(kSbox[x]);
    columns[x] = twice | once << 8 | once << 16 | (twice ^ once) << 24;
  }
  return columns;
}

constexpr std::array<std::uint32_t, 256> kColumns = MakeColumns();

using State = std::array<std::uint32_t, kWordsPerBlock>;  // a column each, its first row lowest

State Columns(const Pair& pair) {
  return {static_cast<std::uint32_t>(pair.low), static_cast<std::uint32_t>(pair.low >> 32),
          static_cast<std::uint32_t>(pair.high), static_cast<std::uint32_t>(pair.high >> 32)};
}

// The byte of `row` that ShiftRows brings to `column`.
std::uint8_t Shifted(const State& state, int column, int row) {
  return static_cast<std::uint8_t>(state[(column + row) % 4] >> (8 * row));
}

std::uint32_t RotateWord(std::uint32_t x, int bytes) {
  return bytes == 0 ? x : x << (8 * bytes) | x >> (32 - 8 * bytes);
}

State Round(const State& state, const Pair& key) {
  State out = Columns(key);
  for (int column = 0; column < 4; ++column) {
    for (int row = 0; row < 4; ++row) out[column] ^= RotateWord(kColumns[Shifted(state, column, row)], row);
  }
  return out;
}

}  // namespace

TileArray ScalarTile(const Stream& stream, std::uint64_t tile) {
  TileArray words{};
  for (int block = 0; block < kBlocksPerTile; ++block) {
    State state = Columns(Counter(stream, tile * kBlocksPerTile + static_cast<std::uint64_t>(block)));
    for (const Pair& key : stream.keys) state = Round(state, key);
    for (int i = 0; i < kWordsPerBlock; ++i) words[static_cast<std::size_t>(block * kWordsPerBlock + i)] = state[i];
  }
  return words;
}

}  // namespace prism
