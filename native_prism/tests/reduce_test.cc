// Sums over rows on every target against exact.h in the stated order.

#include "prism/reduce.h"

#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.h"
#include "exact.h"
#include "prism/prism.h"
#include "stream.h"

namespace {

using prism::Mode;
using prism::Order;
using prism::Rounding;

constexpr Mode kModes[] = {Mode::kNearest, Mode::kStochastic, Mode::kUpDown, Mode::kRandom};

template <class T>
prism::Format FormatOf(int precision) {
  return sizeof(T) == 4 ? prism::Float32Format(precision) : prism::Float64Format(precision);
}

template <class T>
bool SameBits(T a, T b) {
  if constexpr (sizeof(T) == 4) {
    return prism::BitsOf<std::uint32_t>(a) == prism::BitsOf<std::uint32_t>(b);
  } else {
    return prism::BitsOf<std::uint64_t>(a) == prism::BitsOf<std::uint64_t>(b);
  }
}

// What lane l of `row` draws at `step`.
prism::Random Drawn(const prism::Stream& stream, Mode mode, std::uint64_t row, std::uint64_t steps, std::uint64_t step,
                    int lane) {
  const bool bits = mode != Mode::kStochastic;
  const std::uint64_t tiles = bits ? (steps + prism::kStepsPerBitTile - 1) / prism::kStepsPerBitTile : steps;
  const auto words = prism::ScalarTile(stream, row * tiles + (bits ? step / prism::kStepsPerBitTile : step));
  return {prism::LaneWord(words, lane), prism::LaneBits29(words, lane), prism::LaneBit(words, lane, step)};
}

template <class T>
T SumOf(const T* x, int columns, std::uint64_t row, const Rounding& rounding) {
  const prism::Stream stream = prism::MakeStream(rounding, 0);
  const auto format = FormatOf<T>(rounding.precision);
  const auto steps = static_cast<std::uint64_t>((columns + 15) / 16);
  double sums[16] = {};
  int lanes = columns < 16 ? columns : 16;
  for (int i = 0; i < columns; ++i) {
    const auto step = static_cast<std::uint64_t>(i / 16);
    double& sum = sums[i % 16];
    sum = step == 0 ? static_cast<double>(x[i])
                    : prism::Round(prism::ExactAdd(sum, static_cast<double>(x[i])), format, rounding.mode,
                                   Drawn(stream, rounding.mode, row, steps + 4, step, i % 16));
  }
  for (int half = 8, level = 0; half >= 1; half /= 2, ++level) {
    for (int l = 0; l < half && l + half < lanes; ++l) {
      const std::uint64_t step = steps + static_cast<std::uint64_t>(level);
      sums[l] = prism::Round(prism::ExactAdd(sums[l], sums[l + half]), format, rounding.mode,
                             Drawn(stream, rounding.mode, row, steps + 4, step, l));
    }
    lanes = lanes < half ? lanes : half;
  }
  const auto result = static_cast<T>(sums[0]);
  if (result == result) return result;
  return sizeof(T) == 4 ? static_cast<T>(prism::BitsOf<float>(prism::kCanonicalNan))
                        : static_cast<T>(prism::BitsOf<double>(prism::kCanonicalNan64));
}

// Ordinary rows, and rows with zeros, infinities, tiny and huge elements.
template <class T>
std::vector<T> MakeRows(int rows, int columns) {
  std::mt19937_64 random(7);
  std::vector<T> x(static_cast<std::size_t>(rows * columns));
  for (int r = 0; r < rows; ++r) {
    for (int i = 0; i < columns; ++i) {
      const double unit = static_cast<double>(random() >> 11) * 0x1p-52 - 1;
      double value = unit;
      if (r == 4) value = random() % 3 == 0 ? 0.0 : unit;
      if (r == 5) value = unit * static_cast<double>(std::numeric_limits<T>::min()) * 3;
      if (r == 6) value = unit * static_cast<double>(std::numeric_limits<T>::max());
      if (r == 7 && i == columns / 2) value = std::numeric_limits<double>::infinity();
      x[static_cast<std::size_t>(r * columns + i)] = static_cast<T>(value);
    }
  }
  return x;
}

template <class T>
void CheckSums() {
  constexpr int kRows = 9;
  for (const int columns : {1, 5, 16, 33, 530}) {
    const auto x = MakeRows<T>(kRows, columns);
    for (const Mode mode : kModes) {
      for (const int precision : {0, 8}) {
        const Rounding rounding{mode, precision, 3, 4, 5, 2};
        std::vector<T> sums(kRows);
        prism::Sum(x.data(), kRows, columns, Order::kLanes, 11, sums.data(), rounding);
        for (int r = 0; r < kRows; ++r) {
          const T wanted = SumOf(x.data() + r * columns, columns, static_cast<std::uint64_t>(11 + r), rounding);
          const T got = sums[static_cast<std::size_t>(r)];
          CHECK(SameBits(got, wanted), "%s, %d columns, mode %d, precision %d, row %d: %a is not %a",
                prism::Target().c_str(), columns, static_cast<int>(mode), precision, r, static_cast<double>(got),
                static_cast<double>(wanted));
        }
      }
    }
  }
}

void OnEveryTarget() {
  for (const std::string& target : prism::Targets()) {
    prism::SetTarget(target);
    CheckSums<float>();
    CheckSums<double>();
  }
  prism::SetTarget("");
}

// Every reduction of a part of the rows gives the bits of the whole, and so do more threads.
template <class T>
void CheckSplits() {
  constexpr int kRows = 9;
  constexpr int kColumns = 83;
  const auto x = MakeRows<T>(kRows, kColumns);
  for (const Mode mode : kModes) {
    for (const Order order : {Order::kLanes, Order::kSequential}) {
      const Rounding rounding{mode, 0, 3, 4, 5, 1};
      std::vector<T> whole(kRows);
      std::vector<T> part(kRows);
      prism::Variance(x.data(), kRows, kColumns, 1.0, order, 2, whole.data(), static_cast<T*>(nullptr), rounding);
      prism::Variance(x.data(), 4, kColumns, 1.0, order, 2, part.data(), static_cast<T*>(nullptr), rounding);
      prism::Variance(x.data() + 4 * kColumns, kRows - 4, kColumns, 1.0, order, 6, part.data() + 4,
                      static_cast<T*>(nullptr), rounding);
      for (std::size_t r = 0; r < kRows; ++r) CHECK(SameBits(whole[r], part[r]), "row %zu", r);
    }
  }
}

void Splits() {
  CheckSplits<float>();
  CheckSplits<double>();
}

void Refusals() {
  const float x = 1;
  float out = 0;
  bool refused = false;
  try {
    prism::Sum(&x, 1, 0, Order::kLanes, 0, &out, Rounding{});
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  CHECK(refused, "a sum of nothing was taken");
  refused = false;
  try {
    prism::Sum(&x, 1, 1, Order::kLanes, 0, &out, Rounding{Mode::kNearest, 25, 0, 0, 0, 1});
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  CHECK(refused, "a precision of 25 bits was taken for float32");
}

}  // namespace

const Test reduce_targets("reduce_targets", OnEveryTarget);
const Test reduce_splits("reduce_splits", Splits);
const Test reduce_refusals("reduce_refusals", Refusals);
