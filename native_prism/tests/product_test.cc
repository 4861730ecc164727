// Matrix products on every target against exact.h, the definition, step by step.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "exact.h"
#include "prism/prism.h"
#include "stream.h"

namespace {

using prism::Mode;
using prism::Rounding;

constexpr Mode kModes[] = {Mode::kNearest, Mode::kStochastic, Mode::kUpDown, Mode::kRandom};

template <class T>
struct Case {
  std::int64_t rows, columns, depth;
  std::vector<T> a, b, bias;
};

// Ordinary values, many zeros, products near underflow, sums near overflow, any bits, all products subnormal.
constexpr int kKinds = 6;

template <class T>
T Draw(int kind, std::mt19937& random) {
  std::normal_distribution<double> normal;
  const double x = normal(random);
  const int spread = static_cast<int>(random() % 20);
  switch (kind) {
    case 1:
      return random() % 3 == 0 ? T{0} : static_cast<T>(x);
    case 2:
      return static_cast<T>(std::ldexp(x, -70 + spread));
    case 3:
      return static_cast<T>(std::ldexp(x, 60 + spread % 6));
    case 4: {
      const auto bits = static_cast<std::uint32_t>(random());
      return static_cast<T>(prism::BitsOf<float>(bits));
    }
    case 5:
      return static_cast<T>(std::ldexp(x, -74));
    default:
      return static_cast<T>(x);
  }
}

template <class T>
Case<T> Make(std::int64_t rows, std::int64_t columns, std::int64_t depth, int kind, std::mt19937& random) {
  Case<T> made{rows, columns, depth, {}, {}, {}};
  for (std::int64_t i = 0; i < rows * depth; ++i) made.a.push_back(Draw<T>(kind, random));
  for (std::int64_t i = 0; i < depth * columns; ++i) made.b.push_back(Draw<T>(kind, random));
  for (std::int64_t i = 0; i < columns; ++i) {
    made.bias.push_back(random() % 4 == 0 ? static_cast<T>(-0.0) : Draw<T>(kind, random));
  }
  return made;
}

template <class T>
T Expected(const Case<T>& input, std::int64_t i, std::int64_t j, const Rounding& rounding, std::uint64_t first_row) {
  const prism::Stream stream = prism::MakeStream(rounding);
  const prism::Format format =
      sizeof(T) == 4 ? prism::Float32Format(rounding.precision) : prism::Float64Format(rounding.precision);
  const auto groups = static_cast<std::uint64_t>((input.columns + 15) / 16);
  const std::uint64_t row = (first_row + static_cast<std::uint64_t>(i)) * groups + static_cast<std::uint64_t>(j / 16);
  const auto depth = static_cast<std::uint64_t>(input.depth);
  const int lane = static_cast<int>(j % 16);
  double sum = static_cast<double>(input.bias[static_cast<std::size_t>(j)]) + 0.0;
  for (std::uint64_t k = 0; k < depth; ++k) {
    const std::uint64_t tile =
        rounding.mode == Mode::kStochastic ? row * depth + k : row * ((depth + 31) / 32) + k / 32;
    const prism::TileArray words = prism::ScalarTile(stream, tile);
    const prism::Random random{prism::LaneWord(words, lane), prism::LaneBits29(words, lane),
                               prism::LaneBit(words, lane, k)};
    const double a = input.a[static_cast<std::size_t>(i * input.depth) + k];
    const double b = input.b[k * static_cast<std::size_t>(input.columns) + static_cast<std::size_t>(j)];
    sum = prism::Round(prism::ExactMultiplyAdd(a, b, sum), format, rounding.mode, random);
  }
  return static_cast<T>(sum);
}

template <class T>
void CheckCase(const Case<T>& input, int kind, const std::vector<int>& precisions) {
  std::vector<T> out(static_cast<std::size_t>(input.rows * input.columns));
  for (const std::string& target : prism::Targets()) {
    prism::SetTarget(target);
    for (const Mode mode : kModes) {
      for (const int precision : precisions) {
        const Rounding rounding{mode, precision, 5, 2, 77, 2};
        prism::GemmArguments<T> arguments;
        arguments.rows = input.rows;
        arguments.columns = input.columns;
        arguments.depth = input.depth;
        arguments.a = {input.a.data(), input.depth, 1};
        arguments.b = {input.b.data(), input.columns, 1};
        arguments.bias = input.bias.data();
        arguments.out = out.data();
        arguments.first_row = 3;
        prism::Gemm(arguments, rounding);
        for (std::int64_t i = 0; i < input.rows; ++i) {
          for (std::int64_t j = 0; j < input.columns; ++j) {
            const T expected = Expected(input, i, j, rounding, 3);
            const T got = out[static_cast<std::size_t>(i * input.columns + j)];
            CHECK(std::memcmp(&expected, &got, sizeof(T)) == 0,
                  "target %s, mode %d, precision %d, kind %d, (%d, %d): expected %a, got %a", target.c_str(),
                  static_cast<int>(mode), precision, kind, static_cast<int>(i), static_cast<int>(j),
                  static_cast<double>(expected), static_cast<double>(got));
          }
        }
      }
    }
  }
  prism::SetTarget("");
}

void ProductsOfFloats() {
  std::mt19937 random(1);
  for (int kind = 0; kind < kKinds; ++kind) {
    CheckCase(Make<float>(5, 19, 70, kind, random), kind, {0, 8, 11, 23, 24});
    CheckCase(Make<float>(13, 16, 290, kind, random), kind, {0});
  }
}

void ProductsOfDoubles() {
  std::mt19937 random(2);
  for (int kind = 0; kind < kKinds; ++kind) CheckCase(Make<double>(3, 17, 40, kind, random), kind, {0, 24, 53});
}

// Rows that are split, or done by more threads, have the bits of the whole.
void SplitProducts() {
  std::mt19937 random(3);
  const Case<float> input = Make<float>(150, 200, 33, 0, random);
  for (const Mode mode : kModes) {
    std::vector<float> whole(150 * 200), parts(150 * 200);
    prism::GemmArguments<float> arguments;
    arguments.rows = 150;
    arguments.columns = 200;
    arguments.depth = 33;
    arguments.a = {input.a.data(), 33, 1};
    arguments.b = {input.b.data(), 200, 1};
    arguments.out = whole.data();
    prism::Gemm(arguments, Rounding{mode, 0, 1, 0, 0, 1});
    for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{7}, std::int64_t{64}}) {
      for (std::int64_t begin = 0; begin < 150; begin += rows) {
        arguments.rows = std::min(rows, 150 - begin);
        arguments.a.data = input.a.data() + begin * 33;
        arguments.out = parts.data() + begin * 200;
        arguments.first_row = static_cast<std::uint64_t>(begin);
        prism::Gemm(arguments, Rounding{mode, 0, 1, 0, 0, 3});
      }
      CHECK(std::memcmp(whole.data(), parts.data(), whole.size() * sizeof(float)) == 0, "mode %d in parts of %d rows",
            static_cast<int>(mode), static_cast<int>(rows));
    }
  }
}

const Test floats("products_of_floats", ProductsOfFloats);
const Test doubles("products_of_doubles", ProductsOfDoubles);
const Test splits("split_products", SplitProducts);

}  // namespace
