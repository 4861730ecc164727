// Normalizations and softmax: every target against the scalar one, rows that need a guard among them; splits.

#include "prism/normalize.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.h"
#include "prism/prism.h"

namespace {

using prism::Mode;
using prism::Rounding;

constexpr Mode kModes[] = {Mode::kNearest, Mode::kStochastic, Mode::kUpDown, Mode::kRandom};
constexpr int kRows = 7;

template <class T>
std::vector<T> MakeRows(int columns) {
  std::mt19937_64 random(11);
  std::vector<T> x(static_cast<std::size_t>(kRows * columns));
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < columns; ++i) {
      double value = (static_cast<double>(random() >> 11) * 0x1p-52 - 1) * 4;
      if (r == 3) value *= 40;                                                             // exp far apart
      if (r == 4) value *= static_cast<double>(std::numeric_limits<T>::min());             // tiny
      if (r == 5 && i % 2 == 0) value = -std::numeric_limits<double>::infinity();          // masked
      if (r == 6 && i == columns / 2) value = std::numeric_limits<double>::quiet_NaN();
      x[static_cast<std::size_t>(r * columns + i)] = static_cast<T>(value);
    }
  }
  return x;
}

// All results of all functions, one after another.
template <class T>
std::vector<T> Results(int columns, const Rounding& rounding) {
  const auto x = MakeRows<T>(columns);
  std::vector<T> weight(static_cast<std::size_t>(columns), T(1.5));
  std::vector<T> bias(static_cast<std::size_t>(columns), T(-0.25));
  const std::size_t size = x.size();
  std::vector<T> out(4 * size + 2 * kRows);
  const prism::Affine<T> affine{weight.data(), bias.data(), 1};
  T* to = out.data();
  prism::NormalizeRows(x.data(), kRows, columns, affine, T(1e-5), 3, to, to + 4 * size, to + 4 * size + kRows,
                       rounding);
  prism::Softmax(x.data(), kRows, columns, 3, to + size, rounding);
  prism::LogSoftmax(x.data(), kRows, columns, 3, to + 2 * size, rounding);
  std::vector<T> moments(kRows, T(0.75));
  const prism::Affine<T> channels{moments.data(), moments.data(), 1};
  prism::NormalizeChannels(x.data(), 1, kRows, columns, moments.data(), moments.data(), channels, T(1e-5), 3,
                           to + 3 * size, rounding);
  return out;
}

template <class T>
void CheckTargets() {
  for (const int columns : {1, 16, 45, 530}) {
    for (const Mode mode : kModes) {
      for (const int precision : {0, 8}) {
        const Rounding rounding{mode, precision, 3, 4, 5, 1};
        prism::SetTarget("SCALAR");
        const auto wanted = Results<T>(columns, rounding);
        for (const std::string& target : prism::Targets()) {
          prism::SetTarget(target);
          const auto got = Results<T>(columns, rounding);
          for (std::size_t i = 0; i < got.size(); ++i) {
            CHECK(std::memcmp(&got[i], &wanted[i], sizeof(T)) == 0, "%s, %d columns, mode %d, place %zu: %a is not %a",
                  target.c_str(), columns, static_cast<int>(mode), i, static_cast<double>(got[i]),
                  static_cast<double>(wanted[i]));
          }
        }
      }
    }
  }
  prism::SetTarget("");
}

void OnEveryTarget() {
  CheckTargets<float>();
  CheckTargets<double>();
}

void Sums() {
  constexpr int kColumns = 200;
  const auto x = MakeRows<float>(kColumns);
  for (const Mode mode : kModes) {
    std::vector<float> out(x.size());
    prism::Softmax(x.data(), kRows, kColumns, 0, out.data(), Rounding{mode, 0, 1, 2, 3, 1});
    for (int r = 0; r < kRows - 1; ++r) {
      double sum = 0;
      for (int i = 0; i < kColumns; ++i) sum += static_cast<double>(out[static_cast<std::size_t>(r * kColumns + i)]);
      CHECK(std::fabs(sum - 1) < 1e-5, "row %d of mode %d sums to %g", r, static_cast<int>(mode), sum);
    }
  }
}

void Refusals() {
  const float x = 1;
  float out = 0;
  bool refused = false;
  try {
    prism::Softmax(&x, 1, 0, 0, &out, Rounding{});
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  CHECK(refused, "a softmax of nothing was taken");
}

}  // namespace

const Test normalize_targets("normalize_targets", OnEveryTarget);
const Test normalize_sums("normalize_sums", Sums);
const Test normalize_refusals("normalize_refusals", Refusals);
