// Average pooling: plain averages, every target against the scalar one, and windows without an element.

#include "prism/pool.h"

#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.h"
#include "prism/prism.h"

namespace {

using prism::Mode;
using prism::Rounding;
using prism::Windows;

constexpr Mode kModes[] = {Mode::kNearest, Mode::kStochastic, Mode::kUpDown, Mode::kRandom};
constexpr int kPlanes = 3;
constexpr int kHeight = 7;
constexpr int kWidth = 9;

std::vector<float> MakePlanes() {
  std::mt19937_64 random(5);
  std::vector<float> x(kPlanes * kHeight * kWidth);
  for (float& value : x) value = static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-52 - 1);
  return x;
}

// Windows of three, one apart, that begin one before the input.
Windows Around(int size) {
  Windows windows;
  for (int i = 0; i < size; ++i) {
    windows.begin.push_back(i - 1);
    windows.extent.push_back(3);
  }
  return windows;
}

std::vector<float> Pooled(const std::vector<float>& x, const Rounding& rounding) {
  std::vector<float> out(x.size());
  const std::vector<std::int64_t> divisors(kHeight * kWidth, 9);
  prism::AveragePool(x.data(), kPlanes, kHeight, kWidth, Around(kHeight), Around(kWidth), divisors, 2, out.data(),
                     rounding);
  return out;
}

void Averages() {
  const auto x = MakePlanes();
  for (const Mode mode : kModes) {
    const auto out = Pooled(x, Rounding{mode, 0, 1, 2, 3, 2});
    for (int p = 0; p < kPlanes; ++p) {
      for (int i = 0; i < kHeight; ++i) {
        for (int j = 0; j < kWidth; ++j) {
          double sum = 0;
          for (int k = i - 1; k <= i + 1; ++k) {
            for (int l = j - 1; l <= j + 1; ++l) {
              if (k < 0 || l < 0 || k >= kHeight || l >= kWidth) continue;
              sum += static_cast<double>(x[static_cast<std::size_t>((p * kHeight + k) * kWidth + l)]);
            }
          }
          const double got = static_cast<double>(out[static_cast<std::size_t>((p * kHeight + i) * kWidth + j)]);
          CHECK(std::fabs(got - sum / 9) < 1e-5, "plane %d, output %d %d: %g is not %g", p, i, j, got, sum / 9);
        }
      }
    }
  }
}

void OnEveryTarget() {
  auto x = MakePlanes();
  x[3] = 3e38f;
  x[4] = 3e38f;
  x[kHeight * kWidth + 5] = 1e-44f;
  for (const Mode mode : kModes) {
    for (const int precision : {0, 8}) {
      const Rounding rounding{mode, precision, 1, 2, 3, 1};
      prism::SetTarget("SCALAR");
      const auto wanted = Pooled(x, rounding);
      for (const std::string& target : prism::Targets()) {
        prism::SetTarget(target);
        const auto got = Pooled(x, rounding);
        CHECK(std::memcmp(got.data(), wanted.data(), got.size() * sizeof(float)) == 0, "%s, mode %d", target.c_str(),
              static_cast<int>(mode));
      }
    }
  }
  prism::SetTarget("");
}

void Refusals() {
  const float x = 1;
  float out = 0;
  bool refused = false;
  try {
    prism::AveragePool(&x, 1, 1, 1, Windows{{0}, {1}}, Windows{{-2}, {2}}, {1}, 0, &out, Rounding{});
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  CHECK(refused, "a window without an element was taken");
}

}  // namespace

const Test pool_averages("pool_averages", Averages);
const Test pool_targets("pool_targets", OnEveryTarget);
const Test pool_refusals("pool_refusals", Refusals);
