#include "config.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "normalize.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <algorithm>
#include <vector>

#include "normalize-exp-inl.h"
#include "normalize.h"
#include "normalize_log.h"
#include "reduce-lanes-inl.h"
#include "reduce_rows.h"
#include "targets.h"

HWY_BEFORE_NAMESPACE();
namespace prism {
namespace HWY_NAMESPACE {

enum NormalizeStage : int {
  kEpsilonStage = kMomentStages,
  kRootStage,
  kInverseStage,
  kScaleStage,
  kAffineStage,
  kShiftStage,  // x - mean where the mean is given
  kNormalizeStages,
};

// One number for each column, or one for all: then there are 16 of it.
template <class T>
struct Spread {
  const T* at = nullptr;
  std::int64_t step = 1;

  template <class L>
  HWY_INLINE void Load(std::int64_t i, std::int64_t columns, typename L::V* group) const {
    LoadGroup<L>(at + i * step, columns - i, group);
  }
};

template <class T>
struct Filled {
  explicit Filled(T x) { std::fill(values, values + kGroup, x); }
  Spread<T> spread() const { return {values, 0}; }
  T values[kGroup];
};

// Whether d * inverse * weight + bias is within what StochasticLanes does.
inline bool OrdinaryScaling(const Range& d, const Range& inverse, const Range* weight, const Range* bias) {
  // Half and twice: what rounding may do.
  const double least = 0.5 * d.smallest * inverse.smallest;
  const double most = 2.0 * d.largest * inverse.largest;
  if (!(least >= 0x1p-100 && most <= 0x1p100)) return false;
  if (bias != nullptr && !(bias->largest <= 0x1p100)) return false;
  if (weight == nullptr) return true;
  return most * weight->largest <= 0x1p120 && least * weight->smallest >= (bias != nullptr ? kLeastProduct : 0x1p-124);
}

// (d * inverse) * weight + bias of one row.
template <class L, class T = typename L::Element>
HWY_NOINLINE void Scale(const L& lanes, const Stream* stages, const T* d, std::int64_t columns, std::uint64_t row,
                        const Spread<T>& inverse, const Spread<T>& weight, const Spread<T>& bias, T* out) {
  auto scale = lanes.template Place<1>(stages[kScaleStage], row, StepsOf(columns));
  auto affine = lanes.template Place<1>(stages[kAffineStage], row, StepsOf(columns));
  const bool weighted = weight.at != nullptr;
  const bool biased = bias.at != nullptr;
  for (std::int64_t i = 0; i < columns; i += kGroup) {
    typename L::V y[L::kParts];
    typename L::V factor[L::kParts];
    LoadGroup<L>(d + i, columns - i, y);
    inverse.template Load<L>(i, columns, factor);
    const auto scale_draw = scale.At(0);
    for (int p = 0; p < L::kParts; ++p) y[p] = lanes.Mul(y[p], factor[p], scale_draw, p);
    scale.Advance();
    if (weighted || biased) {
      typename L::V added[L::kParts];
      if (weighted) weight.template Load<L>(i, columns, factor);
      if (biased) bias.template Load<L>(i, columns, added);
      const auto draw = affine.At(0);
      for (int p = 0; p < L::kParts; ++p) {
        if (weighted && biased) {
          y[p] = lanes.MulAdd(y[p], factor[p], added[p], draw, p);
        } else {
          y[p] = weighted ? lanes.Mul(y[p], factor[p], draw, p) : lanes.Add(y[p], added[p], draw, p);
        }
      }
      affine.Advance();
    }
    StoreGroup<L>(y, columns - i, out + i);
  }
}

// 1 / sqrt(variance + epsilon); false where L does not do.
template <class L>
bool InverseOf(const L& lanes, const Stream* stages, std::uint64_t row, double variance, double epsilon,
               double* inverse) {
  const double sum = ScalarStage(lanes, stages[kEpsilonStage], row, [&](const auto& draw) HWY_ATTR {
    return lanes.Add(L::Broadcast(variance), L::Broadcast(epsilon), draw, 0);
  });
  if (L::kGuarded && !(sum > 0 && OrdinaryResult(sum))) return false;
  const double root = ScalarStage(lanes, stages[kRootStage], row, [&](const auto& draw) HWY_ATTR {
    return lanes.Sqrt(L::Broadcast(sum), draw, 0);
  });
  *inverse = DivideStage(lanes, stages[kInverseStage], row, 1.0, root);
  return true;
}

// ---------------------------------------------------------------- by each row's own moments

template <class T>
class NormalizeRowsWork {
 public:
  NormalizeRowsWork(const RowsArguments<T>& arguments, const Rounding& rounding) : arguments_(arguments) {
    for (int stage = 0; stage < kNormalizeStages; ++stage) stages_[stage] = MakeStream(rounding, stage);
    room_ = static_cast<std::int64_t>(StepsOf(arguments.columns)) * kGroup;
    deviations_.resize(static_cast<std::size_t>(4 * room_));
    if constexpr (sizeof(T) == 4) {
      const std::int64_t affine = arguments.affine.lines * arguments.columns;
      if (arguments.affine.weight != nullptr) weight_range_ = RangeOf(arguments.affine.weight, affine);
      if (arguments.affine.bias != nullptr) bias_range_ = RangeOf(arguments.affine.bias, affine);
    }
  }

  template <class L, int kRows>
  bool Rows(const L& lanes, std::int64_t row) const {
    const std::int64_t columns = arguments_.columns;
    const std::uint64_t place = arguments_.first_row + static_cast<std::uint64_t>(row);
    Moments<T> moments[kRows];
    if (!MomentsOf<L, kRows>(lanes, stages_, arguments_.x + row * columns, columns, place, static_cast<double>(columns),
                             deviations_.data(), moments)) {
      return false;
    }
    double inverses[kRows];
    for (int r = 0; r < kRows; ++r) {
      if (!InverseOf(lanes, stages_, place + static_cast<std::uint64_t>(r), moments[r].variance,
                     static_cast<double>(arguments_.epsilon), inverses + r)) {
        return false;
      }
      if constexpr (L::kGuarded) {
        const auto inverse = static_cast<float>(inverses[r]);
        if (!OrdinaryScaling(moments[r].deviations, {inverse, inverse},
                             arguments_.affine.weight != nullptr ? &weight_range_ : nullptr,
                             arguments_.affine.bias != nullptr ? &bias_range_ : nullptr)) {
          return false;
        }
      }
    }
    // From here on nothing is given up, so that `out` may be x.
    for (int r = 0; r < kRows; ++r) Finish(lanes, row + r, deviations_.data() + r * room_, moments[r], inverses[r]);
    return true;
  }

 private:
  template <class L>
  void Finish(const L& lanes, std::int64_t row, const T* deviations, const Moments<T>& moments, double inverse) const {
    const std::int64_t columns = arguments_.columns;
    const std::int64_t line = row % arguments_.affine.lines * columns;
    Spread<T> weight;
    Spread<T> bias;
    if (arguments_.affine.weight != nullptr) weight.at = arguments_.affine.weight + line;
    if (arguments_.affine.bias != nullptr) bias.at = arguments_.affine.bias + line;
    const Filled<T> filled(static_cast<T>(inverse));
    Scale(lanes, stages_, deviations, columns, arguments_.first_row + static_cast<std::uint64_t>(row), filled.spread(),
          weight, bias, arguments_.out + row * columns);
    if (arguments_.mean != nullptr) arguments_.mean[row] = CanonicalElement<T>(moments.mean);
    if (arguments_.inverse != nullptr) arguments_.inverse[row] = CanonicalElement<T>(inverse);
  }

  RowsArguments<T> arguments_;
  Stream stages_[kNormalizeStages];
  std::int64_t room_;
  mutable std::vector<T> deviations_;
  Range weight_range_{};
  Range bias_range_{};
};

// ---------------------------------------------------------------- by moments that are given

template <class T>
class InverseWork {
 public:
  InverseWork(const ChannelsArguments<T>& arguments, const Rounding& rounding) : arguments_(arguments) {
    for (int stage = 0; stage < kNormalizeStages; ++stage) stages_[stage] = MakeStream(rounding, stage);
  }
  template <class L, int kRows>
  bool Rows(const L& lanes, std::int64_t channel) const {
    for (int r = 0; r < kRows; ++r) {
      const auto variance = static_cast<double>(arguments_.variance[channel + r]);
      double inverse = 0;
      if (!InverseOf(lanes, stages_, static_cast<std::uint64_t>(channel + r), variance,
                     static_cast<double>(arguments_.epsilon), &inverse)) {
        return false;
      }
      arguments_.inverse[channel + r] = CanonicalElement<T>(inverse);
    }
    return true;
  }

 private:
  ChannelsArguments<T> arguments_;
  Stream stages_[kNormalizeStages];
};

template <class T>
class NormalizeChannelsWork {
 public:
  NormalizeChannelsWork(const ChannelsArguments<T>& arguments, const Rounding& rounding)
      : arguments_(arguments), columns_(arguments.length == 1 ? arguments.channels : arguments.length) {
    for (int stage = 0; stage < kNormalizeStages; ++stage) stages_[stage] = MakeStream(rounding, stage);
    deviations_.resize(StepsOf(columns_) * kGroup);
    if constexpr (sizeof(T) == 4) {
      mean_range_ = RangeOf(arguments.mean, arguments.channels);
      inverse_range_ = RangeOf(arguments.inverse, arguments.channels);
      if (arguments.affine.weight != nullptr) weight_range_ = RangeOf(arguments.affine.weight, arguments.channels);
      if (arguments.affine.bias != nullptr) bias_range_ = RangeOf(arguments.affine.bias, arguments.channels);
    }
  }

  template <class L, int kRows>
  bool Rows(const L& lanes, std::int64_t row) const {
    if constexpr (kRows > 1) {
      return false;  // rows do not wait for each other here
    } else {
      const T* const x = arguments_.x + row * columns_;
      const bool each = arguments_.length == 1;
      const std::int64_t channel = each ? 0 : row % arguments_.channels;
      const std::int64_t rows_a_batch = each ? 1 : arguments_.channels;
      const std::uint64_t place =
          arguments_.first_batch * static_cast<std::uint64_t>(rows_a_batch) + static_cast<std::uint64_t>(row);
      const T zero{0};
      const T* const weights = arguments_.affine.weight;
      const T* const biases = arguments_.affine.bias;
      const Filled<T> mean(arguments_.mean[channel]);
      const Filled<T> inverse(arguments_.inverse[channel]);
      const Filled<T> weight(weights != nullptr ? weights[channel] : zero);
      const Filled<T> bias(biases != nullptr ? biases[channel] : zero);
      const auto choose = [each](const Filled<T>& one, const T* all) {
        return each ? Spread<T>{all, 1} : one.spread();
      };
      const Spread<T> means = choose(mean, arguments_.mean);
      if constexpr (L::kGuarded) {
        Range range = RangeOf(x, columns_);
        range.largest = HWY_MAX(range.largest, mean_range_.largest);
        if (!OrdinarySum(range, 2) || !(mean_range_.largest < kMost)) return false;
      }
      Shift(lanes, x, place, means);
      if constexpr (L::kGuarded) {
        const Range* const weight_range = weights != nullptr ? &weight_range_ : nullptr;
        const Range* const bias_range = biases != nullptr ? &bias_range_ : nullptr;
        if (!OrdinaryScaling(RangeOf(deviations_.data(), columns_), inverse_range_, weight_range, bias_range)) {
          return false;
        }
      }
      Scale(lanes, stages_, deviations_.data(), columns_, place, choose(inverse, arguments_.inverse),
            weights != nullptr ? choose(weight, weights) : Spread<T>{},
            biases != nullptr ? choose(bias, biases) : Spread<T>{}, arguments_.out + row * columns_);
      return true;
    }
  }

 private:
  template <class L>
  void Shift(const L& lanes, const T* x, std::uint64_t row, const Spread<T>& means) const {
    auto words = lanes.template Place<1>(stages_[kShiftStage], row, StepsOf(columns_));
    for (std::int64_t i = 0; i < columns_; i += kGroup) {
      typename L::V group[L::kParts];
      typename L::V mean[L::kParts];
      LoadGroup<L>(x + i, columns_ - i, group);
      means.template Load<L>(i, columns_, mean);
      const auto draw = words.At(0);
      for (int p = 0; p < L::kParts; ++p) {
        L::StorePart(lanes.Sub(group[p], mean[p], draw, p), deviations_.data() + i + p * L::kLanes);
      }
      words.Advance();
    }
  }

  ChannelsArguments<T> arguments_;
  std::int64_t columns_;
  Stream stages_[kNormalizeStages];
  mutable std::vector<T> deviations_;
  Range mean_range_{};
  Range inverse_range_{};
  Range weight_range_{};
  Range bias_range_{};
};

// ---------------------------------------------------------------- softmax

enum SoftmaxStage : int { kTermStage, kExpStage, kExpSumStage, kQuotientStage, kLogStage = 3, kDifferenceStage,
                          kSoftmaxStages };

// The largest element, NaN where there is one, and the smallest that is not -infinity.
template <class T>
struct Peak {
  T largest;
  T smallest;
};

template <class T>
HWY_INLINE Peak<T> PeakOf(const T* x, std::int64_t count) {
  const NativeTag<T> d;
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  Peak<T> peak{-kInfinity, kInfinity};
  bool nan = false;
  std::int64_t i = 0;
  if (count >= kLanes) {
    auto most = hn::Set(d, -kInfinity);
    auto least = hn::Set(d, kInfinity);
    auto ordered = hn::Eq(most, most);
    for (; i + kLanes <= count; i += kLanes) {
      const auto v = hn::LoadU(d, x + i);
      ordered = hn::And(ordered, hn::Eq(v, v));
      most = hn::Max(most, v);
      least = hn::Min(least, hn::IfThenElse(hn::Eq(v, hn::Set(d, -kInfinity)), hn::Set(d, kInfinity), v));
    }
    nan = !hn::AllTrue(d, ordered);
    HWY_ALIGN T flat[2][kLanes];
    hn::Store(most, d, flat[0]);
    hn::Store(least, d, flat[1]);
    for (int l = 0; l < kLanes; ++l) {
      peak.largest = std::max(peak.largest, flat[0][l]);
      peak.smallest = std::min(peak.smallest, flat[1][l]);
    }
  }
  for (; i < count; ++i) {
    nan = nan || x[i] != x[i];
    peak.largest = std::max(peak.largest, x[i]);
    if (x[i] != -kInfinity) peak.smallest = std::min(peak.smallest, x[i]);
  }
  if (nan) peak.largest = std::numeric_limits<T>::quiet_NaN();
  return peak;
}

// Below this, exp and the quotient are normal float32 for any row that is not longer than kMostColumns.
constexpr double kLeastTerm = -60;

template <class T>
class SoftmaxWork {
 public:
  SoftmaxWork(const SoftmaxArguments<T>& arguments, const Rounding& rounding)
      : arguments_(arguments), room_(static_cast<std::int64_t>(StepsOf(arguments.columns)) * kGroup) {
    for (int stage = 0; stage < kSoftmaxStages; ++stage) stages_[stage] = MakeStream(rounding, stage);
    powers_.resize(static_cast<std::size_t>(4 * room_));
  }

  template <class L, int kRows>
  bool Rows(const L& lanes, std::int64_t row) const {
    const std::int64_t columns = arguments_.columns;
    const std::uint64_t place = arguments_.first_row + static_cast<std::uint64_t>(row);
    T largest[kRows];
    for (int r = 0; r < kRows; ++r) {
      const Peak<T> peak = PeakOf(arguments_.x + (row + r) * columns, columns);
      largest[r] = peak.largest;
      if constexpr (L::kGuarded) {
        const double least = static_cast<double>(peak.smallest) - static_cast<double>(peak.largest);
        if (columns > kMostColumns || !(std::fabs(peak.largest) < 0x1p100f && least >= kLeastTerm)) return false;
      }
    }
    for (int r = 0; r < kRows; ++r) Terms(lanes, row + r, largest[r], powers_.data() + r * room_);
    double sums[kRows];
    SumLanes<L, kRows>(lanes, stages_[kExpSumStage], powers_.data(), room_, columns, place, sums);
    for (int r = 0; r < kRows; ++r) {
      if (arguments_.logarithm) {
        Differences(lanes, row + r, sums[r]);
      } else {
        Quotients(lanes, row + r, powers_.data() + r * room_, sums[r]);
      }
    }
    return true;
  }

 private:
  // x - largest goes to `out` where it is needed later, its exp to `powers`.
  template <class L>
  HWY_NOINLINE void Terms(const L& lanes, std::int64_t row, T largest, T* powers) const {
    const std::int64_t columns = arguments_.columns;
    const std::uint64_t place = arguments_.first_row + static_cast<std::uint64_t>(row);
    auto term_words = lanes.template Place<1>(stages_[kTermStage], place, StepsOf(columns));
    auto exp_words = lanes.template Place<1>(stages_[kExpStage], place, StepsOf(columns));
    const auto peak = L::Broadcast(static_cast<double>(largest));
    const T* const x = arguments_.x + row * columns;
    T* const out = arguments_.out + row * columns;
    const hn::Rebind<T, DCarrier> narrow;
    HWY_ALIGN T terms[kGroup];
    HWY_ALIGN double values[kGroup];
    for (std::int64_t i = 0; i < columns; i += kGroup) {
      typename L::V group[L::kParts];
      LoadGroup<L>(x + i, columns - i, group);
      const auto draw = term_words.At(0);
      for (int p = 0; p < L::kParts; ++p) {
        group[p] = lanes.Sub(group[p], peak, draw, p);
        L::StorePart(group[p], terms + p * L::kLanes);
      }
      term_words.Advance();
      if (arguments_.logarithm) StoreGroup<L>(group, columns - i, out + i);
      for (int p = 0; p < kParts64; ++p) {
        const auto t = hn::LoadU(narrow, terms + p * kLanes64);
        if constexpr (sizeof(T) == 4) {
          hn::Store(Exp<11, false>(hn::PromoteTo(DCarrier(), t)), DCarrier(), values + p * kLanes64);
        } else {
          hn::Store(Exp<13, true>(t), DCarrier(), values + p * kLanes64);
        }
      }
      const auto exp_draw = exp_words.At(0);
      for (int p = 0; p < L::kParts; ++p) {
        L::StorePart(lanes.RoundDoubles(values + p * L::kLanes, exp_draw, p), powers + i + p * L::kLanes);
      }
      exp_words.Advance();
    }
  }

  template <class L>
  HWY_NOINLINE void Quotients(const L& lanes, std::int64_t row, const T* powers, double sum) const {
    const std::int64_t columns = arguments_.columns;
    const std::uint64_t place = arguments_.first_row + static_cast<std::uint64_t>(row);
    auto words = lanes.template Place<1>(stages_[kQuotientStage], place, StepsOf(columns));
    const auto divisor = L::Broadcast(sum);
    for (std::int64_t i = 0; i < columns; i += kGroup) {
      typename L::V group[L::kParts];
      LoadGroup<L>(powers + i, columns - i, group);
      const auto draw = words.At(0);
      for (int p = 0; p < L::kParts; ++p) group[p] = lanes.Div(group[p], divisor, draw, p);
      words.Advance();
      StoreGroup<L>(group, columns - i, arguments_.out + row * columns + i);
    }
  }

  template <class L>
  HWY_NOINLINE void Differences(const L& lanes, std::int64_t row, double sum) const {
    const std::int64_t columns = arguments_.columns;
    const std::uint64_t place = arguments_.first_row + static_cast<std::uint64_t>(row);
    HWY_ALIGN double value[kGroup];
    std::fill(value, value + kGroup, Log(sum));
    const double log_sum = ScalarStage(lanes, stages_[kLogStage], place, [&](const auto& draw) HWY_ATTR {
      return lanes.RoundDoubles(value, draw, 0);
    });
    auto words = lanes.template Place<1>(stages_[kDifferenceStage], place, StepsOf(columns));
    const auto subtracted = L::Broadcast(log_sum);
    T* const out = arguments_.out + row * columns;
    for (std::int64_t i = 0; i < columns; i += kGroup) {
      typename L::V group[L::kParts];
      LoadGroup<L>(out + i, columns - i, group);
      const auto draw = words.At(0);
      for (int p = 0; p < L::kParts; ++p) group[p] = lanes.Sub(group[p], subtracted, draw, p);
      words.Advance();
      StoreGroup<L>(group, columns - i, out + i);
    }
  }

  SoftmaxArguments<T> arguments_;
  std::int64_t room_;
  Stream stages_[kSoftmaxStages];
  mutable std::vector<T> powers_;
};

// ---------------------------------------------------------------- entries

template <class Work, class T, class Arguments>
void RunRows(const Arguments& arguments, const Rounding& rounding, std::int64_t begin, std::int64_t end) {
  ForRows<T>(Work(arguments, rounding), rounding, begin, end);
}

void NormalizeRowsFloat(const RowsArguments<float>& a, const Rounding& rounding, std::int64_t begin, std::int64_t end) {
  RunRows<NormalizeRowsWork<float>, float>(a, rounding, begin, end);
}
void NormalizeRowsDouble(const RowsArguments<double>& a, const Rounding& rounding, std::int64_t begin,
                         std::int64_t end) {
  RunRows<NormalizeRowsWork<double>, double>(a, rounding, begin, end);
}
void InversesFloat(const ChannelsArguments<float>& a, const Rounding& rounding, std::int64_t begin, std::int64_t end) {
  RunRows<InverseWork<float>, float>(a, rounding, begin, end);
}
void InversesDouble(const ChannelsArguments<double>& a, const Rounding& rounding, std::int64_t begin,
                    std::int64_t end) {
  RunRows<InverseWork<double>, double>(a, rounding, begin, end);
}
void NormalizeChannelsFloat(const ChannelsArguments<float>& a, const Rounding& rounding, std::int64_t begin,
                            std::int64_t end) {
  RunRows<NormalizeChannelsWork<float>, float>(a, rounding, begin, end);
}
void NormalizeChannelsDouble(const ChannelsArguments<double>& a, const Rounding& rounding, std::int64_t begin,
                             std::int64_t end) {
  RunRows<NormalizeChannelsWork<double>, double>(a, rounding, begin, end);
}
void SoftmaxFloat(const SoftmaxArguments<float>& a, const Rounding& rounding, std::int64_t begin, std::int64_t end) {
  RunRows<SoftmaxWork<float>, float>(a, rounding, begin, end);
}
void SoftmaxDouble(const SoftmaxArguments<double>& a, const Rounding& rounding, std::int64_t begin, std::int64_t end) {
  RunRows<SoftmaxWork<double>, double>(a, rounding, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace prism
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace prism {
namespace {

HWY_EXPORT(NormalizeRowsFloat);
HWY_EXPORT(NormalizeRowsDouble);
HWY_EXPORT(InversesFloat);
HWY_EXPORT(InversesDouble);
HWY_EXPORT(NormalizeChannelsFloat);
HWY_EXPORT(NormalizeChannelsDouble);
HWY_EXPORT(SoftmaxFloat);
HWY_EXPORT(SoftmaxDouble);

// The function of the type and the target.
#define PRISM_ON_TARGET(T, name, target)                             \
  [](std::size_t index) {                                            \
    if constexpr (sizeof(T) == 4) {                                  \
      return HWY_DISPATCH_TABLE(name##Float)[index];                 \
    } else {                                                         \
      return HWY_DISPATCH_TABLE(name##Double)[index];                \
    }                                                                \
  }(target)

template <class T>
void SoftmaxRows(const SoftmaxArguments<T>& arguments, std::int64_t rows, const Rounding& rounding) {
  CheckRounding(rounding, kBitsOf<T>);
  CheckRows(rows, arguments.columns);
  const auto run = PRISM_ON_TARGET(T, Softmax, DispatchIndex());
  ForPieces(rows, 4 * arguments.columns, rounding.threads,
            [&](std::int64_t begin, std::int64_t end) { run(arguments, rounding, begin, end); });
}

}  // namespace

template <class T>
void NormalizeRows(const T* x, std::int64_t rows, std::int64_t columns, const Affine<T>& affine, T epsilon,
                   std::uint64_t first_row, T* out, T* mean, T* inverse, const Rounding& rounding) {
  CheckRounding(rounding, kBitsOf<T>);
  CheckRows(rows, columns);
  if (affine.lines < 1) throw std::invalid_argument("lines: expected at least 1.");
  const auto run = PRISM_ON_TARGET(T, NormalizeRows, DispatchIndex());
  const RowsArguments<T> arguments{x, columns, affine, epsilon, first_row, out, mean, inverse};
  ForPieces(rows, 5 * columns, rounding.threads,
            [&](std::int64_t begin, std::int64_t end) { run(arguments, rounding, begin, end); });
}

template <class T>
void NormalizeChannels(const T* x, std::int64_t batch, std::int64_t channels, std::int64_t length, const T* mean,
                       const T* variance, const Affine<T>& affine, T epsilon, std::uint64_t first_batch, T* out,
                       const Rounding& rounding) {
  CheckRounding(rounding, kBitsOf<T>);
  CheckRows(batch, channels);
  CheckRows(channels, length);
  const std::size_t target = DispatchIndex();
  std::vector<T> inverses(static_cast<std::size_t>(channels));
  const ChannelsArguments<T> arguments{x,      channels, length,      mean, variance, inverses.data(),
                                       affine, epsilon,  first_batch, out};
  const auto invert = PRISM_ON_TARGET(T, Inverses, target);
  const auto run = PRISM_ON_TARGET(T, NormalizeChannels, target);
  // Through ParallelFor for its floating-point environment.
  ParallelFor(channels, channels, 1,
              [&](std::int64_t begin, std::int64_t end) { invert(arguments, rounding, begin, end); });
  ForPieces(length == 1 ? batch : batch * channels, 3 * (length == 1 ? channels : length), rounding.threads,
            [&](std::int64_t begin, std::int64_t end) { run(arguments, rounding, begin, end); });
}

template <class T>
void Softmax(const T* x, std::int64_t rows, std::int64_t columns, std::uint64_t first_row, T* out,
             const Rounding& rounding) {
  SoftmaxRows<T>({x, columns, false, first_row, out}, rows, rounding);
}

template <class T>
void LogSoftmax(const T* x, std::int64_t rows, std::int64_t columns, std::uint64_t first_row, T* out,
                const Rounding& rounding) {
  SoftmaxRows<T>({x, columns, true, first_row, out}, rows, rounding);
}

#define PRISM_INSTANTIATE(T)                                                                                         \
  template void NormalizeRows<T>(const T*, std::int64_t, std::int64_t, const Affine<T>&, T, std::uint64_t, T*, T*,   \
                                 T*, const Rounding&);                                                               \
  template void NormalizeChannels<T>(const T*, std::int64_t, std::int64_t, std::int64_t, const T*, const T*,         \
                                     const Affine<T>&, T, std::uint64_t, T*, const Rounding&);                       \
  template void Softmax<T>(const T*, std::int64_t, std::int64_t, std::uint64_t, T*, const Rounding&);                \
  template void LogSoftmax<T>(const T*, std::int64_t, std::int64_t, std::uint64_t, T*, const Rounding&)
PRISM_INSTANTIATE(float);
PRISM_INSTANTIATE(double);
#undef PRISM_INSTANTIATE
#undef PRISM_ON_TARGET

}  // namespace prism
#endif  // HWY_ONCE
