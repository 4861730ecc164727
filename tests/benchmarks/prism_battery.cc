// Statistical tests of the stream's words. Prints a line for each: its name, the law that its statistic follows for
// ideal words, the statistic and the law's parameter.
//
//     prism_battery ORDER LOG2_BYTES     runs the tests
//     prism_battery ORDER raw            writes words until nobody reads them
//
// Laws: chi2 (degrees of freedom), normal (0), poisson (mean).

#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "prism_words.h"

namespace {

constexpr std::size_t kHistory = 8192;  // words before a chunk that are still there
constexpr std::size_t kChunk = 1 << 17;

using U32 = std::uint32_t;
using U64 = std::uint64_t;
using Counts = std::vector<U64>;

void Print(const std::string& name, const char* law, double statistic, double parameter) {
  std::printf("%s %s %.17g %.17g\n", name.c_str(), law, statistic, parameter);
}

double ChiSquare(const Counts& counts, const std::vector<double>& probabilities) {
  double total = 0;
  for (const U64 count : counts) total += static_cast<double>(count);
  double sum = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = total * probabilities[i];
    sum += (static_cast<double>(counts[i]) - expected) * (static_cast<double>(counts[i]) - expected) / expected;
  }
  return sum;
}

std::vector<double> Uniform(std::size_t n) { return std::vector<double>(n, 1.0 / static_cast<double>(n)); }

void PrintUniform(const std::string& name, const Counts& counts) {
  Print(name, "chi2", ChiSquare(counts, Uniform(counts.size())), static_cast<double>(counts.size() - 1));
}

U32 Reversed(U32 x) {
  x = (x >> 1 & 0x55555555) | (x & 0x55555555) << 1;
  x = (x >> 2 & 0x33333333) | (x & 0x33333333) << 2;
  x = (x >> 4 & 0x0F0F0F0F) | (x & 0x0F0F0F0F) << 4;
  return __builtin_bswap32(x);
}

// Weights of 32-bit words, the rare ones together.
constexpr int kLightest = 7;
constexpr int kWeights = 19;
int Weight(U32 x) { return std::clamp(__builtin_popcount(x), kLightest, 32 - kLightest) - kLightest; }

std::vector<double> WeightProbabilities() {
  std::vector<double> probabilities(kWeights);
  double choose = 1;
  for (int k = 0; k <= 32; ++k) {
    probabilities[static_cast<std::size_t>(std::clamp(k, kLightest, 32 - kLightest) - kLightest)] +=
        std::ldexp(choose, -32);
    choose = choose * (32 - k) / (k + 1);
  }
  return probabilities;
}

// A test sees chunks: `w` has `n` words, and w[-kHistory] is there too.
struct Test {
  virtual ~Test() = default;
  virtual void Add(const U32* w, std::size_t n) = 0;
  virtual void Report() = 0;
};

// ---- frequencies

struct Frequencies : Test {
  Counts bytes = Counts(64 * 256);
  Counts low = Counts(65536), high = Counts(65536);
  void Add(const U32* w, std::size_t n) override {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t b = 0; b < 4; ++b) ++bytes[(i % 16 * 4 + b) * 256 + (w[i] >> (8 * b) & 255)];
      ++low[w[i] & 65535];
      ++high[w[i] >> 16];
    }
  }
  void Report() override {
    Print("bytes_by_place", "chi2", ChiSquare(bytes, Uniform(bytes.size())), 64 * 255);
    PrintUniform("low_halves", low);
    PrintUniform("high_halves", high);
  }
};

// Bytes of two words some way apart. Good (1953): overlapping pairs, less what single bytes contribute.
struct BytePairs : Test {
  static constexpr int kLags[] = {1, 2, 3, 4, 8, 12, 16, 32, 64, 256, 1024, 4096};
  static constexpr int kPlaces[][2] = {{24, 24}, {0, 0}, {24, 0}, {8, 16}};
  std::vector<std::vector<U32>> tables{48, std::vector<U32>(65536)};
  std::size_t chunk = 0;
  void Add(const U32* w, std::size_t n) override {
    for (std::size_t t = chunk++ % 4; t < 48; t += 4) {  // each table has a quarter of the chunks
      const int lag = kLags[t / 4];
      const int* place = kPlaces[(t + t / 4) % 4];
      U32* table = tables[t / 4 * 4 + (t + t / 4) % 4].data();
      for (std::size_t i = 0; i < n; ++i) {
        ++table[(*(w + i - lag) >> place[0] & 255) << 8 | (w[i] >> place[1] & 255)];
      }
    }
  }
  void Report() override {
    for (std::size_t t = 0; t < 48; ++t) {
      Counts pairs(tables[t].begin(), tables[t].end()), first(256), second(256);
      for (std::size_t i = 0; i < 65536; ++i) {
        first[i >> 8] += pairs[i];
        second[i & 255] += pairs[i];
      }
      const double singles = ChiSquare(first, Uniform(256)) + ChiSquare(second, Uniform(256));
      Print("byte_pairs_lag" + std::to_string(kLags[t / 4]) + "_" + std::to_string(t % 4), "chi2",
            ChiSquare(pairs, Uniform(65536)) - singles, 255.0 * 255);
    }
  }
};

// ---- weights

struct WeightPairs : Test {
  static constexpr int kLags[] = {1, 2, 4, 16, 64, 1024};
  Counts counts = Counts(6 * kWeights * kWeights);
  void Add(const U32* w, std::size_t n) override {
    std::vector<std::uint8_t> weights(n + 1024);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] = static_cast<std::uint8_t>(Weight(*(w + i - 1024)));
    }
    for (std::size_t t = 0; t < 6; ++t) {
      U64* table = counts.data() + t * kWeights * kWeights;
      const std::uint8_t* left = weights.data() + 1024 - kLags[t];
      for (std::size_t i = 0; i < n; ++i) ++table[left[i] * kWeights + weights[i + 1024]];
    }
  }
  void Report() override {
    const std::vector<double> single = WeightProbabilities();
    std::vector<double> pair;
    for (const double p : single) {
      for (const double q : single) pair.push_back(p * q);
    }
    for (std::size_t t = 0; t < 6; ++t) {
      const auto begin = counts.begin() + static_cast<std::ptrdiff_t>(t * pair.size());
      const Counts pairs(begin, begin + static_cast<std::ptrdiff_t>(pair.size()));
      Counts first(kWeights), second(kWeights);
      for (std::size_t i = 0; i < pairs.size(); ++i) {
        first[i / kWeights] += pairs[i];
        second[i % kWeights] += pairs[i];
      }
      Print("weight_pairs_lag" + std::to_string(kLags[t]), "chi2",
            ChiSquare(pairs, pair) - ChiSquare(first, single) - ChiSquare(second, single),
            (kWeights - 1.0) * (kWeights - 1.0));
    }
  }
};

// Light, middling or heavy: eight words in a row, of blocks in a row, of tiles in a row; and eight bytes of low weight.
struct WeightTuples : Test {
  static constexpr std::size_t kStrides[] = {1, 4, 16};
  Counts counts[3] = {Counts(6561), Counts(6561), Counts(6561)};
  Counts byte_counts = Counts(65536);
  static U64 Class(U32 x) {
    const int weight = __builtin_popcount(x);
    return weight < 15 ? 0 : weight < 18 ? 1 : 2;
  }
  void Add(const U32* w, std::size_t n) override {
    for (std::size_t t = 0; t < 3; ++t) {
      const std::size_t stride = kStrides[t];
      for (std::size_t i = 0; i < n; i += 8 * stride) {
        for (std::size_t offset = 0; offset < stride; ++offset) {
          U64 code = 0;
          for (std::size_t k = 0; k < 8; ++k) code = code * 3 + Class(w[i + offset + k * stride]);
          ++counts[t][code];
        }
      }
    }
    for (std::size_t i = 0; i < n; i += 4) {
      U64 code = 0;  // sixteen bytes: whether more than four bits are set
      for (std::size_t k = 0; k < 16; ++k) {
        code = code << 1 | (__builtin_popcount(w[i + k / 4] >> (k % 4 * 8) & 255) > 4 ? 1u : 0u);
      }
      ++byte_counts[code];
    }
  }
  void Report() override {
    double by_weight[3] = {0, 0, 0};
    double choose = 1;
    for (int k = 0; k <= 32; ++k) {
      by_weight[k < 15 ? 0 : k < 18 ? 1 : 2] += std::ldexp(choose, -32);
      choose = choose * (32 - k) / (k + 1);
    }
    std::vector<double> p(6561, 1.0);
    for (std::size_t code = 0; code < 6561; ++code) {
      for (std::size_t k = 0, rest = code; k < 8; ++k, rest /= 3) p[code] *= by_weight[rest % 3];
    }
    for (std::size_t t = 0; t < 3; ++t) {
      Print("weight_tuples_stride" + std::to_string(kStrides[t]), "chi2", ChiSquare(counts[t], p), 6560);
    }
    std::vector<double> q(65536, 1.0);
    for (std::size_t code = 0; code < 65536; ++code) {
      for (int k = 0; k < 16; ++k) q[code] *= (code >> k & 1 ? 93.0 : 163.0) / 256;
    }
    Print("byte_weight_tuples", "chi2", ChiSquare(byte_counts, q), 65535);
  }
};

// The spread of the number of ones in blocks of 2^4 to 2^16 words.
struct BlockWeights : Test {
  double squares[17] = {};
  double blocks[17] = {};
  void Add(const U32* w, std::size_t n) override {
    std::vector<U32> sums(n);
    for (std::size_t i = 0; i < n; ++i) sums[i] = static_cast<U32>(__builtin_popcount(w[i]));
    for (int level = 1; level <= 16; ++level) {
      n /= 2;
      for (std::size_t i = 0; i < n; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
      if (level < 4) continue;
      const double mean = std::ldexp(16.0, level);
      for (std::size_t i = 0; i < n; ++i) squares[level] += (sums[i] - mean) * (sums[i] - mean);
      blocks[level] += static_cast<double>(n);
    }
  }
  void Report() override {
    for (int level = 4; level <= 16; level += 2) {
      Print("block_weights_2^" + std::to_string(level), "normal",
            (squares[level] / std::ldexp(8.0, level) - blocks[level]) / std::sqrt(2 * blocks[level]), 0);
    }
  }
};

// ---- differences

struct Differences : Test {
  static constexpr int kLags[] = {1, 2, 4, 8, 16, 32, 64, 1024, 4096};
  Counts xors[9], pairs_of_xors[9], differences[9];
  std::size_t chunk = 0;
  Differences() {
    for (int t = 0; t < 9; ++t) {
      xors[t].resize(kWeights);
      pairs_of_xors[t].resize(kWeights);
      differences[t].resize(65536);
    }
  }
  void Add(const U32* w, std::size_t n) override {
    for (std::size_t t = chunk++ % 2; t < 9; t += 2) {  // each lag has half of the chunks
      const int lag = kLags[t];
      for (std::size_t i = 0; i < n; ++i) {
        const U32* x = w + i;
        const U32 first = x[0] ^ *(x - lag);
        ++xors[t][static_cast<std::size_t>(Weight(first))];
        if (lag < 1024) {
          ++pairs_of_xors[t][static_cast<std::size_t>(Weight(first ^ *(x - 2 * lag) ^ *(x - 3 * lag)))];
        }
        ++differences[t][(x[0] - *(x - lag)) >> 16];
      }
    }
  }
  void Report() override {
    const std::vector<double> p = WeightProbabilities();
    for (std::size_t t = 0; t < 9; ++t) {
      const std::string lag = std::to_string(kLags[t]);
      Print("xor_lag" + lag, "chi2", ChiSquare(xors[t], p), kWeights - 1);
      if (kLags[t] < 1024) Print("xor_of_four_lag" + lag, "chi2", ChiSquare(pairs_of_xors[t], p), kWeights - 1);
      PrintUniform("difference_lag" + lag, differences[t]);
    }
  }
};

// The xor of 2^k blocks in a row: few rounds of AES leave such sums unbalanced.
struct BlockSums : Test {
  static constexpr int kLevels[] = {2, 6, 8, 12, 15};
  std::array<U32, 4> sums[5] = {};
  U64 blocks = 0;
  Counts counts[5] = {Counts(kWeights), Counts(kWeights), Counts(kWeights), Counts(kWeights), Counts(kWeights)};
  void Add(const U32* w, std::size_t n) override {
    for (std::size_t i = 0; i < n; i += 4) {
      ++blocks;
      for (std::size_t t = 0; t < 5; ++t) {
        for (std::size_t k = 0; k < 4; ++k) sums[t][k] ^= w[i + k];
        if (blocks % (U64{1} << kLevels[t]) != 0) continue;
        for (const U32 sum : sums[t]) ++counts[t][static_cast<std::size_t>(Weight(sum))];
        sums[t] = {};
      }
    }
  }
  void Report() override {
    for (std::size_t t = 0; t < 5; ++t) {
      Print("block_sums_2^" + std::to_string(kLevels[t]), "chi2", ChiSquare(counts[t], WeightProbabilities()),
            kWeights - 1);
    }
  }
};

struct Correlations : Test {
  std::vector<double> sums = std::vector<double>(514);
  double pairs = 0;
  std::size_t chunk = 0;
  void Add(const U32* w, std::size_t n) override {
    if (chunk++ % 8 != 0) return;
    std::vector<float> high(n + 256), low(n + 256);
    for (std::size_t i = 0; i < high.size(); ++i) {
      const U32 x = *(w + i - 256);
      high[i] = static_cast<float>(static_cast<std::int32_t>(x)) * 0x1p-31f;
      low[i] = static_cast<float>(static_cast<std::int32_t>(Reversed(x))) * 0x1p-31f;
    }
    for (int half = 0; half < 2; ++half) {
      const std::vector<float>& u = half == 0 ? high : low;
      for (std::size_t lag = 1; lag <= 256; ++lag) {
        double total = 0;
        for (std::size_t begin = 256; begin < u.size(); begin += 1024) {
          float part[16] = {};
          for (std::size_t i = begin; i < begin + 1024; i += 16) {
            for (std::size_t k = 0; k < 16; ++k) part[k] += u[i + k] * u[i + k - lag];
          }
          for (const float x : part) total += static_cast<double>(x);
        }
        sums[static_cast<std::size_t>(half) * 257 + lag] += total;
      }
    }
    pairs += static_cast<double>(n);
  }
  void Report() override {
    for (std::size_t half = 0; half < 2; ++half) {
      double sum = 0;
      for (std::size_t lag = 1; lag <= 256; ++lag) sum += 9 * sums[half * 257 + lag] * sums[half * 257 + lag] / pairs;
      Print(half == 0 ? "correlation_256_lags" : "correlation_256_lags_reversed", "chi2", sum, 256);
    }
  }
};

// ---- order

struct Gaps : Test {
  static constexpr std::size_t kLongest = 400;
  Counts counts[2] = {Counts(kLongest + 1), Counts(kLongest + 1)};
  std::size_t gap[2] = {};
  void Add(const U32* w, std::size_t n) override {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t t = 0; t < 2; ++t) {
        if ((t == 0 ? w[i] >> 26 : w[i] & 63) == 0) {
          ++counts[t][std::min(gap[t], kLongest)];
          gap[t] = 0;
        } else {
          ++gap[t];
        }
      }
    }
  }
  void Report() override {
    std::vector<double> p;
    for (std::size_t k = 0; k < kLongest; ++k) p.push_back(std::pow(63.0 / 64, static_cast<double>(k)) / 64);
    p.push_back(std::pow(63.0 / 64, static_cast<double>(kLongest)));
    Print("gaps_high", "chi2", ChiSquare(counts[0], p), kLongest);
    Print("gaps_low", "chi2", ChiSquare(counts[1], p), kLongest);
  }
};

// Knuth, The Art of Computer Programming 2, 3.3.2 G: ascending runs, the word that ends one left out.
struct Runs : Test {
  Counts counts[2] = {Counts(9), Counts(9)};
  std::size_t length[2] = {};
  U32 last[2] = {};
  void Add(const U32* w, std::size_t n) override {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t t = 0; t < 2; ++t) {
        const U32 x = t == 0 ? w[i] : Reversed(w[i]);
        if (length[t] > 0 && x < last[t]) {
          ++counts[t][std::min<std::size_t>(length[t], 9) - 1];
          length[t] = 0;
        } else {
          ++length[t];
          last[t] = x;
        }
      }
    }
  }
  void Report() override {
    std::vector<double> p;
    double factorial = 1;
    for (int r = 1; r <= 8; ++r) {
      factorial *= r;
      p.push_back(1 / factorial - 1 / (factorial * (r + 1)));
    }
    p.push_back(1 / (factorial * 9));
    Print("runs_high", "chi2", ChiSquare(counts[0], p), 8);
    Print("runs_low", "chi2", ChiSquare(counts[1], p), 8);
  }
};

// ---- one bit of each word

constexpr int kBits[] = {0, 3, 7, 16, 28, 31};

struct BitPatterns : Test {
  Counts words[6], tiles[6];
  BitPatterns() {
    for (int t = 0; t < 6; ++t) {
      words[t].resize(65536);
      tiles[t].resize(65536);
    }
  }
  void Add(const U32* w, std::size_t n) override {
    for (std::size_t t = 0; t < 6; ++t) {
      for (std::size_t i = 0; i < n; i += 16) {
        U32 pattern = 0;
        for (std::size_t k = 0; k < 16; ++k) pattern = pattern << 1 | (w[i + k] >> kBits[t] & 1);
        ++words[t][pattern];
      }
      for (std::size_t i = 0; i < n; i += 256) {
        for (std::size_t lane = 0; lane < 16; lane += 5) {
          U32 pattern = 0;
          for (std::size_t k = 0; k < 16; ++k) pattern = pattern << 1 | (w[i + lane + 16 * k] >> kBits[t] & 1);
          ++tiles[t][pattern];
        }
      }
    }
  }
  void Report() override {
    for (std::size_t t = 0; t < 6; ++t) {
      PrintUniform("bit" + std::to_string(kBits[t]) + "_of_16_words", words[t]);
      PrintUniform("bit" + std::to_string(kBits[t]) + "_of_16_tiles", tiles[t]);
    }
  }
};

int Rank(std::vector<U64> rows, int columns) {
  int rank = 0;
  for (int column = 0; column < columns && rank < static_cast<int>(rows.size()); ++column) {
    const U64 bit = U64{1} << column;
    std::size_t pivot = static_cast<std::size_t>(rank);
    while (pivot < rows.size() && (rows[pivot] & bit) == 0) ++pivot;
    if (pivot == rows.size()) continue;
    std::swap(rows[pivot], rows[static_cast<std::size_t>(rank)]);
    for (std::size_t i = pivot + 1; i < rows.size(); ++i) {
      if (rows[i] & bit) rows[i] ^= rows[static_cast<std::size_t>(rank)];
    }
    ++rank;
  }
  return rank;
}

std::vector<double> RankProbabilities(int n) {  // of n, n - 1, n - 2, less
  std::vector<double> p;
  double rest = 1;
  for (int lost = 0; lost < 3; ++lost) {
    const int r = n - lost;
    double x = std::ldexp(1.0, r * (2 * n - r) - n * n);
    for (int i = 0; i < r; ++i) x *= (1 - std::ldexp(1.0, i - n)) * (1 - std::ldexp(1.0, i - n)) / (1 - std::ldexp(1.0, i - r));
    p.push_back(x);
    rest -= x;
  }
  p.push_back(rest);
  return p;
}

struct Ranks : Test {
  Counts words = Counts(4), planes[6] = {Counts(4), Counts(4), Counts(4), Counts(4), Counts(4), Counts(4)};
  std::size_t chunk = 0;
  void Add(const U32* w, std::size_t n) override {
    if (chunk++ % 16 != 0) return;
    for (std::size_t i = 0; i < n; i += 32) {
      ++words[static_cast<std::size_t>(std::min(3, 32 - Rank(std::vector<U64>(w + i, w + i + 32), 32)))];
    }
    for (std::size_t t = 0; t < 6; ++t) {
      for (std::size_t i = 0; i < n; i += 4096) {
        std::vector<U64> rows(64);
        for (std::size_t k = 0; k < 4096; ++k) rows[k / 64] = rows[k / 64] << 1 | (w[i + k] >> kBits[t] & 1);
        ++planes[t][static_cast<std::size_t>(std::min(3, 64 - Rank(rows, 64)))];
      }
    }
  }
  void Report() override {
    Print("rank_words", "chi2", ChiSquare(words, RankProbabilities(32)), 3);
    for (std::size_t t = 0; t < 6; ++t) {
      Print("rank_bit" + std::to_string(kBits[t]), "chi2", ChiSquare(planes[t], RankProbabilities(64)), 3);
    }
  }
};

// Berlekamp and Massey; bits[i] in turn.
int LinearComplexity(const std::vector<std::uint8_t>& bits) {
  const std::size_t size = bits.size() / 64 + 2;
  std::vector<U64> c(size), b(size), history(size);
  c[0] = b[0] = 1;
  int complexity = 0;
  int last = -1;
  const auto shift_xor = [size](std::vector<U64>& to, const std::vector<U64>& from, int by) {
    const std::size_t whole = static_cast<std::size_t>(by) / 64;
    const int part = by % 64;
    for (std::size_t i = size; i-- > whole;) {
      U64 x = from[i - whole] << part;
      if (part != 0 && i > whole) x |= from[i - whole - 1] >> (64 - part);
      to[i] ^= x;
    }
  };
  for (int n = 0; n < static_cast<int>(bits.size()); ++n) {
    for (std::size_t i = size; i-- > 0;) history[i] = history[i] << 1 | (i > 0 ? history[i - 1] >> 63 : 0);
    history[0] |= bits[static_cast<std::size_t>(n)];
    U64 discrepancy = 0;
    for (std::size_t i = 0; i < size; ++i) discrepancy ^= c[i] & history[i];
    if (__builtin_parityll(discrepancy) == 0) continue;
    const std::vector<U64> before = c;
    shift_xor(c, b, n - last);
    if (2 * complexity <= n) {
      complexity = n + 1 - complexity;
      last = n;
      b = before;
    }
  }
  return complexity;
}

// NIST SP 800-22, 2.10, on 1000 bits at a time of one bit of each word.
struct Complexities : Test {
  static constexpr int kLength = 1000;
  Counts counts[6] = {Counts(7), Counts(7), Counts(7), Counts(7), Counts(7), Counts(7)};
  std::size_t chunk = 0;
  void Add(const U32* w, std::size_t n) override {
    if (chunk++ % 128 != 0) return;
    const double mean = kLength / 2.0 + (9 - 1) / 36.0;  // and an even number of bits
    for (std::size_t t = 0; t < 6; ++t) {
      for (std::size_t i = 0; i + kLength <= n; i += kLength) {
        std::vector<std::uint8_t> bits(kLength);
        for (std::size_t k = 0; k < kLength; ++k) bits[k] = static_cast<std::uint8_t>(w[i + k] >> kBits[t] & 1);
        const double x = LinearComplexity(bits) - mean + 2.0 / 9;
        ++counts[t][static_cast<std::size_t>(std::clamp(static_cast<int>(std::ceil(x + 2.5)), 0, 6))];
      }
    }
  }
  void Report() override {
    const std::vector<double> p = {1.0 / 96, 1.0 / 32, 1.0 / 8, 1.0 / 2, 1.0 / 4, 1.0 / 16, 1.0 / 48};
    for (std::size_t t = 0; t < 6; ++t) {
      Print("linear_complexity_bit" + std::to_string(kBits[t]), "chi2", ChiSquare(counts[t], p), 6);
    }
  }
};

// ---- repetitions

// Marsaglia's birthday spacings (2^13 days of a year of 2^32) and collisions (2^24 balls, 2^32 urns), on whole words, reversed
// words, and words made of the same byte of four words of a lane, the first 2^24 of each.
struct Repetitions : Test {
  static constexpr std::size_t kCount = 1 << 24;
  static constexpr const char* kNames[] = {"words", "reversed", "low_bytes", "high_bytes"};
  std::vector<U32> kept[4];
  void Add(const U32* w, std::size_t n) override {
    if (kept[3].size() >= kCount) return;
    for (std::size_t i = 0; i < n && kept[0].size() < kCount; ++i) {
      kept[0].push_back(w[i]);
      kept[1].push_back(Reversed(w[i]));
    }
    for (std::size_t i = 0; i < n && kept[3].size() < kCount; i += 64) {
      for (std::size_t lane = 0; lane < 16; ++lane) {
        const U32* x = w + i + lane;
        kept[2].push_back((x[0] & 255) << 24 | (x[16] & 255) << 16 | (x[32] & 255) << 8 | (x[48] & 255));
        kept[3].push_back((x[0] >> 24) << 24 | (x[16] >> 24) << 16 | (x[32] >> 24) << 8 | x[48] >> 24);
      }
    }
  }
  void Report() override {
    for (std::size_t t = 0; t < 4; ++t) {
      std::vector<U32>& words = kept[t];
      constexpr std::size_t kDays = 1 << 13;
      double repeats = 0;
      for (std::size_t begin = 0; begin + kDays <= words.size(); begin += kDays) {
        std::vector<U32> days(words.begin() + static_cast<std::ptrdiff_t>(begin),
                              words.begin() + static_cast<std::ptrdiff_t>(begin + kDays));
        std::sort(days.begin(), days.end());
        for (std::size_t i = kDays - 1; i > 0; --i) days[i] -= days[i - 1];
        std::sort(days.begin(), days.end());
        for (std::size_t i = 1; i < kDays; ++i) repeats += days[i] == days[i - 1] ? 1 : 0;
      }
      const double samples = static_cast<double>(words.size() / kDays);
      Print(std::string("birthdays_") + kNames[t], "poisson", repeats, samples * 32);
      std::sort(words.begin(), words.end());
      double collisions = 0;
      for (std::size_t i = 1; i < words.size(); ++i) collisions += words[i] == words[i - 1] ? 1 : 0;
      const double n = static_cast<double>(words.size());
      Print(std::string("collisions_") + kNames[t], "poisson", collisions,
            n + 0x1p32 * std::expm1(n * std::log1p(-0x1p-32)));
    }
  }
};

void Run(const std::string& order, int log2_bytes) {
  Frequencies frequencies;
  BytePairs byte_pairs;
  WeightPairs weight_pairs;
  WeightTuples weight_tuples;
  BlockWeights block_weights;
  Differences differences;
  BlockSums block_sums;
  Correlations correlations;
  Gaps gaps;
  Runs runs;
  BitPatterns bit_patterns;
  Ranks ranks;
  Complexities complexities;
  Repetitions repetitions;
  Test* const tests[] = {&frequencies, &byte_pairs,   &weight_pairs, &weight_tuples, &block_weights,
                         &differences, &block_sums,   &correlations, &gaps,          &runs,
                         &bit_patterns, &ranks, &complexities, &repetitions};
  Words words(order);
  std::vector<U32> buffer(kHistory + kChunk);
  words.Fill(buffer.data(), kHistory);
  for (U64 chunks = (U64{1} << log2_bytes) / 4 / kChunk; chunks > 0; --chunks) {
    words.Fill(buffer.data() + kHistory, kChunk);
    for (Test* test : tests) test->Add(buffer.data() + kHistory, kChunk);
    std::copy(buffer.end() - kHistory, buffer.end(), buffer.begin());
  }
  for (Test* test : tests) test->Report();
}

void WriteRaw(const std::string& order) {
  Words words(order);
  std::vector<U32> buffer(kChunk);
  do {
    words.Fill(buffer.data(), buffer.size());
  } while (std::fwrite(buffer.data(), sizeof(U32), buffer.size(), stdout) == buffer.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  if (std::string(argv[2]) == "raw") {
    WriteRaw(argv[1]);
  } else {
    Run(argv[1], std::atoi(argv[2]));
  }
  return 0;
}
