// Sums of one element after another: nothing for vectors, so plain C++ for every target.

#include <cmath>
#include <cstdint>
#include <limits>

#include "exact.h"
#include "reduce.h"
#include "reduce_rows.h"
#include "stream.h"

namespace prism {
namespace {

// Operations of one row and stage; element i draws at lane i % 16, step i / 16.
template <class T>
class ElementRounder {
 public:
  ElementRounder(const Rounding& rounding, int stage, std::uint64_t row, std::int64_t columns)
      : stream_(MakeStream(rounding, stage)),
        mode_(rounding.mode),
        bits_(rounding.mode != Mode::kStochastic),
        format_(sizeof(T) == 4 ? Float32Format(rounding.precision) : Float64Format(rounding.precision)),
        full_(format_.precision == (sizeof(T) == 4 ? 24 : 53)) {
    const std::uint64_t steps = static_cast<std::uint64_t>((columns + kGroup - 1) / kGroup);
    first_ = row * (bits_ ? (steps + kStepsPerBitTile - 1) / kStepsPerBitTile : steps);
  }

  T Add(T a, T b, std::int64_t i) {
    const double x = static_cast<double>(a) + static_cast<double>(b);
    return Rounded(sizeof(T) == 4 ? static_cast<T>(a + b) : static_cast<T>(x), x, i, [&] { return ExactAdd(a, b); });
  }
  T MulAdd(T a, T b, T c, std::int64_t i) {
    // The product of two float32 is a float64.
    const double x = sizeof(T) == 4 ? static_cast<double>(a) * b + c : std::fma(a, b, c);
    return Rounded(full_ && mode_ < Mode::kRandom && mode_ != Mode::kStochastic ? std::fma(a, b, c) : T{0}, x, i,
                   [&] { return ExactMultiplyAdd(a, b, c); });
  }
  T Divide(T a, double b) {
    return static_cast<T>(Round(ExactDivide(static_cast<double>(a), b), format_, mode_, Draw(0)));
  }

 private:
  template <class ExactOperation>
  T Rounded(T nearest, double carrier, std::int64_t i, const ExactOperation& exact) {
    if (full_ && mode_ == Mode::kNearest) return nearest;
    const Random random = Draw(i);
    if (full_ && mode_ == Mode::kUpDown && std::isnormal(nearest)) return Moved(nearest, random.bit);
    if (full_ && sizeof(T) == 4 && mode_ == Mode::kStochastic) {
      const double magnitude = std::fabs(carrier);
      if (magnitude >= 0x1p-126 && magnitude < 0x1p127) {
        constexpr std::uint64_t kMask = ~((std::uint64_t{1} << 29) - 1);
        return static_cast<T>(BitsOf<double>((BitsOf<std::uint64_t>(carrier) + random.bits29) & kMask));
      }
    }
    return static_cast<T>(Round(exact(), format_, mode_, random));
  }

  static T Moved(T nearest, bool towards) {
    using Image = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    const Image image = BitsOf<Image>(nearest);
    return BitsOf<T>(towards ? image - 1 : image + 1);
  }

  Random Draw(std::int64_t i) {
    if (mode_ == Mode::kNearest) return {};
    const auto step = static_cast<std::uint64_t>(i / kGroup);
    const std::uint64_t tile = first_ + (bits_ ? step / kStepsPerBitTile : step);
    if (!drawn_ || tile != tile_) {
      words_ = ScalarTile(stream_, tile);
      tile_ = tile;
      drawn_ = true;
    }
    const int lane = static_cast<int>(i % kGroup);
    return {LaneWord(words_, lane), LaneBits29(words_, lane), LaneBit(words_, lane, step)};
  }

  Stream stream_;
  Mode mode_;
  bool bits_;
  Format format_;
  bool full_;
  std::uint64_t first_ = 0;
  bool drawn_ = false;
  std::uint64_t tile_ = 0;
  TileArray words_{};
};

template <class T>
T SumOf(const T* x, const ReduceArguments<T>& arguments, const Rounding& rounding, std::uint64_t row) {
  ElementRounder<T> rounder(rounding, 0, row, arguments.columns);
  T sum = x[0];
  for (std::int64_t i = 1; i < arguments.columns; ++i) sum = rounder.Add(sum, x[i], i);
  return sum;
}

template <class T>
T VarianceOf(const T* x, T mean, const ReduceArguments<T>& arguments, const Rounding& rounding, std::uint64_t row) {
  ElementRounder<T> deviations(rounding, 2, row, arguments.columns);
  ElementRounder<T> squares(rounding, 3, row, arguments.columns);
  T sum = 0;
  for (std::int64_t i = 0; i < arguments.columns; ++i) {
    const T d = deviations.Add(x[i], -mean, i);
    sum = squares.MulAdd(d, d, sum, i);
  }
  return ElementRounder<T>(rounding, 4, row, 1).Divide(sum, arguments.divisor);
}

}  // namespace

template <class T>
void ReduceSequentially(const ReduceArguments<T>& arguments, const Rounding& rounding, std::int64_t begin,
                        std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const std::uint64_t row = arguments.first_row + static_cast<std::uint64_t>(r);
    const T* const a = arguments.a + r * arguments.columns;
    T result = 0;
    if (arguments.reduction == Reduction::kDot) {
      const T* const b = arguments.b + r * arguments.columns;
      ElementRounder<T> rounder(rounding, 0, row, arguments.columns);
      for (std::int64_t i = 0; i < arguments.columns; ++i) result = rounder.MulAdd(a[i], b[i], result, i);
    } else {
      result = SumOf(a, arguments, rounding, row);
    }
    if (arguments.reduction == Reduction::kMean || arguments.reduction == Reduction::kVariance) {
      result = ElementRounder<T>(rounding, 1, row, 1).Divide(result, static_cast<double>(arguments.columns));
    }
    if (arguments.reduction == Reduction::kVariance) {
      if (arguments.mean != nullptr) arguments.mean[r] = CanonicalElement<T>(static_cast<double>(result));
      result = VarianceOf(a, result, arguments, rounding, row);
    }
    arguments.out[r] = CanonicalElement<T>(static_cast<double>(result));
  }
}

template void ReduceSequentially<float>(const ReduceArguments<float>&, const Rounding&, std::int64_t, std::int64_t);
template void ReduceSequentially<double>(const ReduceArguments<double>&, const Rounding&, std::int64_t, std::int64_t);

}  // namespace prism
