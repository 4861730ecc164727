#include "config.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <algorithm>
#include <vector>

#include "reduce-lanes-inl.h"
#include "reduce.h"
#include "reduce_rows.h"
#include "targets.h"

HWY_BEFORE_NAMESPACE();
namespace prism {
namespace HWY_NAMESPACE {

template <class T>
class ReduceWork {
 public:
  ReduceWork(const ReduceArguments<T>& arguments, const Rounding& rounding) : arguments_(arguments) {
    for (int stage = 0; stage < kMomentStages; ++stage) stages_[stage] = MakeStream(rounding, stage);
    if (arguments.reduction == Reduction::kVariance) {
      deviations_.resize(static_cast<std::size_t>(4) * StepsOf(arguments.columns) * kGroup);
    }
  }

  template <class L, int kRows>
  bool Rows(const L& lanes, std::int64_t row) const {
    const std::int64_t columns = arguments_.columns;
    const std::uint64_t place = arguments_.first_row + static_cast<std::uint64_t>(row);
    const T* const a = arguments_.a + row * columns;
    double results[kRows];
    switch (arguments_.reduction) {
      case Reduction::kVariance:
        return Variances<L, kRows>(lanes, row);
      case Reduction::kDot: {
        const T* const b = arguments_.b + row * columns;
        if constexpr (L::kGuarded) {
          for (int r = 0; r < kRows; ++r) {
            const Range a_range = RangeOf(a + r * columns, columns);
            if (!OrdinaryDot(a_range, a == b ? a_range : RangeOf(b + r * columns, columns), columns)) return false;
          }
        }
        DotLanes<L, kRows>(lanes, stages_[kSumStage], a, b, columns, columns, place, results);
        break;
      }
      default:
        if constexpr (L::kGuarded) {
          for (int r = 0; r < kRows; ++r) {
            if (!OrdinarySum(RangeOf(a + r * columns, columns), columns)) return false;
          }
        }
        SumLanes<L, kRows>(lanes, stages_[kSumStage], a, columns, columns, place, results);
        break;
    }
    if (arguments_.reduction == Reduction::kMean) {
      for (int r = 0; r < kRows; ++r) {
        results[r] = DivideStage(lanes, stages_[kMeanStage], place + static_cast<std::uint64_t>(r), results[r],
                                 arguments_.divisor);
        if (L::kGuarded && !OrdinaryResult(results[r])) return false;
      }
    }
    for (int r = 0; r < kRows; ++r) arguments_.out[row + r] = CanonicalElement<T>(results[r]);
    return true;
  }

 private:
  template <class L, int kRows>
  bool Variances(const L& lanes, std::int64_t row) const {
    Moments<T> moments[kRows];
    const std::uint64_t place = arguments_.first_row + static_cast<std::uint64_t>(row);
    if (!MomentsOf<L, kRows>(lanes, stages_, arguments_.a + row * arguments_.columns, arguments_.columns, place,
                             arguments_.divisor, deviations_.data(), moments)) {
      return false;
    }
    for (int r = 0; r < kRows; ++r) {
      arguments_.out[row + r] = CanonicalElement<T>(moments[r].variance);
      if (arguments_.mean != nullptr) arguments_.mean[row + r] = CanonicalElement<T>(moments[r].mean);
    }
    return true;
  }

  ReduceArguments<T> arguments_;
  Stream stages_[kMomentStages];
  mutable std::vector<T> deviations_;
};

void ReduceFloat(const ReduceArguments<float>& arguments, const Rounding& rounding, std::int64_t begin,
                 std::int64_t end) {
  ForRows<float>(ReduceWork<float>(arguments, rounding), rounding, begin, end);
}

void ReduceDouble(const ReduceArguments<double>& arguments, const Rounding& rounding, std::int64_t begin,
                  std::int64_t end) {
  ForRows<double>(ReduceWork<double>(arguments, rounding), rounding, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace prism
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace prism {
namespace {

HWY_EXPORT(ReduceFloat);
HWY_EXPORT(ReduceDouble);

void ReduceInLanes(const ReduceArguments<float>& arguments, const Rounding& rounding, std::size_t target,
                   std::int64_t begin, std::int64_t end) {
  HWY_DISPATCH_TABLE(ReduceFloat)[target](arguments, rounding, begin, end);
}

void ReduceInLanes(const ReduceArguments<double>& arguments, const Rounding& rounding, std::size_t target,
                   std::int64_t begin, std::int64_t end) {
  HWY_DISPATCH_TABLE(ReduceDouble)[target](arguments, rounding, begin, end);
}

template <class T>
void Reduce(const ReduceArguments<T>& arguments, std::int64_t rows, Order order, const Rounding& rounding) {
  CheckRounding(rounding, kBitsOf<T>);
  CheckRows(rows, arguments.columns);
  const std::size_t target = DispatchIndex();
  const bool variance = arguments.reduction == Reduction::kVariance;
  ForPieces(rows, (variance ? 3 : 1) * arguments.columns, rounding.threads, [&](std::int64_t begin, std::int64_t end) {
    if (order == Order::kSequential) {
      ReduceSequentially(arguments, rounding, begin, end);
    } else {
      ReduceInLanes(arguments, rounding, target, begin, end);
    }
  });
}

}  // namespace

template <class T>
void Sum(const T* x, std::int64_t rows, std::int64_t columns, Order order, std::uint64_t first_row, T* out,
         const Rounding& rounding) {
  Reduce<T>({Reduction::kSum, x, nullptr, columns, 0, first_row, out, nullptr}, rows, order, rounding);
}

template <class T>
void Dot(const T* a, const T* b, std::int64_t rows, std::int64_t columns, Order order, std::uint64_t first_row, T* out,
         const Rounding& rounding) {
  Reduce<T>({Reduction::kDot, a, b, columns, 0, first_row, out, nullptr}, rows, order, rounding);
}

template <class T>
void Mean(const T* x, std::int64_t rows, std::int64_t columns, Order order, std::uint64_t first_row, T* out,
          const Rounding& rounding) {
  Reduce<T>({Reduction::kMean, x, nullptr, columns, static_cast<double>(columns), first_row, out, nullptr}, rows, order,
            rounding);
}

template <class T>
void Variance(const T* x, std::int64_t rows, std::int64_t columns, double correction, Order order,
              std::uint64_t first_row, T* out, T* mean, const Rounding& rounding) {
  const double divisor = std::max(0.0, static_cast<double>(columns) - correction);
  Reduce<T>({Reduction::kVariance, x, nullptr, columns, divisor, first_row, out, mean}, rows, order, rounding);
}

#define PRISM_INSTANTIATE(T)                                                                                          \
  template void Sum<T>(const T*, std::int64_t, std::int64_t, Order, std::uint64_t, T*, const Rounding&);              \
  template void Dot<T>(const T*, const T*, std::int64_t, std::int64_t, Order, std::uint64_t, T*, const Rounding&);    \
  template void Mean<T>(const T*, std::int64_t, std::int64_t, Order, std::uint64_t, T*, const Rounding&);             \
  template void Variance<T>(const T*, std::int64_t, std::int64_t, double, Order, std::uint64_t, T*, T*, const Rounding&)
PRISM_INSTANTIATE(float);
PRISM_INSTANTIATE(double);
#undef PRISM_INSTANTIATE

}  // namespace prism
#endif  // HWY_ONCE
