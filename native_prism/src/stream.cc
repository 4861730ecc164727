#include "stream.h"

namespace prism {
namespace {

using Bytes = std::array<std::uint8_t, 16>;

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

Bytes ToBytes(const Pair& pair) {
  Bytes bytes{};
  for (int i = 0; i < 8; ++i) {
    bytes[i] = static_cast<std::uint8_t>(pair.low >> (8 * i));
    bytes[i + 8] = static_cast<std::uint8_t>(pair.high >> (8 * i));
  }
  return bytes;
}

Bytes SubBytesAndShiftRows(const Bytes& state) {
  Bytes out{};
  for (int column = 0; column < 4; ++column) {
    for (int row = 0; row < 4; ++row) {
      out[4 * column + row] = kSbox[state[4 * ((column + row) % 4) + row]];
    }
  }
  return out;
}

Bytes MixColumns(const Bytes& state) {
  Bytes out{};
  for (int column = 0; column < 4; ++column) {
    const std::uint8_t* s = &state[4 * column];
    const std::uint8_t all = static_cast<std::uint8_t>(s[0] ^ s[1] ^ s[2] ^ s[3]);
    for (int row = 0; row < 4; ++row) {
      const std::uint8_t pair = static_cast<std::uint8_t>(s[row] ^ s[(row + 1) % 4]);
      out[4 * column + row] = static_cast<std::uint8_t>(s[row] ^ all ^ Double(pair));
    }
  }
  return out;
}

void AddKey(Bytes& state, const Pair& key) {
  const Bytes bytes = ToBytes(key);
  for (int i = 0; i < 16; ++i) state[i] ^= bytes[i];
}

}  // namespace

std::array<std::uint32_t, kWordsPerBlock> ScalarBlock(const RoundKeys& keys, std::uint64_t block,
                                                      std::uint64_t operation) {
  Bytes state = ToBytes({block, operation});
  AddKey(state, keys[0]);
  for (int round = 1; round <= kRounds; ++round) {
    state = SubBytesAndShiftRows(state);
    if (round < kRounds) state = MixColumns(state);
    AddKey(state, keys[round]);
  }
  std::array<std::uint32_t, kWordsPerBlock> words{};
  for (int i = 0; i < 16; ++i) words[i / 4] |= static_cast<std::uint32_t>(state[i]) << (8 * (i % 4));
  return words;
}

}  // namespace prism
