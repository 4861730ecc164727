#include "config.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pool.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <algorithm>
#include <vector>

#include "pool.h"
#include "reduce-lanes-inl.h"
#include "reduce_rows.h"
#include "targets.h"

HWY_BEFORE_NAMESPACE();
namespace prism {
namespace HWY_NAMESPACE {

enum PoolStage : int { kWindowStage, kAverageStage, kPoolStages };

// A row is a group of 16 outputs of one plane.
template <class T>
class PoolWork {
 public:
  PoolWork(const PoolArguments<T>& arguments, const Rounding& rounding) : arguments_(arguments) {
    for (int stage = 0; stage < kPoolStages; ++stage) stages_[stage] = MakeStream(rounding, stage);
    gathered_.resize(static_cast<std::size_t>(arguments.steps() * kGroup));
    inside_.resize(gathered_.size());
  }

  template <class L, int kRows>
  bool Rows(const L& lanes, std::int64_t row) const {
    if constexpr (kRows > 1) {
      return false;
    } else {
      const PoolArguments<T>& a = arguments_;
      const std::int64_t plane = row / a.groups;
      const std::int64_t first = row % a.groups * kGroup;
      const std::int64_t count = HWY_MIN(std::int64_t{kGroup}, a.outputs() - first);
      const T* const x = a.x + plane * a.height * a.width;
      if constexpr (L::kGuarded) {
        if (plane != ranged_plane_) {
          range_ = RangeOf(x, a.height * a.width);
          ranged_plane_ = plane;
        }
        if (!OrdinarySum(range_, a.steps())) return false;
      }
      const std::uint64_t place =
          a.first_plane * static_cast<std::uint64_t>(a.groups) + static_cast<std::uint64_t>(row);
      HWY_ALIGN typename L::Value sums[kGroup] = {};
      if (Gather(x, first, count)) {
        AddWhole(lanes, place, sums);
      } else {
        AddInside(lanes, place, sums);
      }
      HWY_ALIGN typename L::Value divisors[kGroup];
      for (int l = 0; l < kGroup; ++l) {
        divisors[l] = static_cast<typename L::Value>(l < count ? a.divisors[first + l] : 1);
      }
      if constexpr (L::kGuarded) {
        for (int l = 0; l < count; ++l) {
          if (!OrdinaryResult(sums[l] / divisors[l])) return false;
        }
      }
      typename L::V averages[L::kParts];
      const auto words = lanes.template Place<1>(stages_[kAverageStage], place, 1);
      const auto draw = words.At(0);
      for (int p = 0; p < L::kParts; ++p) {
        averages[p] = lanes.Div(L::LoadLanes(sums + p * L::kLanes), L::LoadLanes(divisors + p * L::kLanes), draw, p);
      }
      StoreGroup<L>(averages, count, a.out + plane * a.outputs() + first);
      return true;
    }
  }

 private:
  // The elements of every step; false where some lane has none at some step.
  bool Gather(const T* x, std::int64_t first, std::int64_t count) const {
    const PoolArguments<T>& a = arguments_;
    bool whole = count == kGroup;
    if (!whole) std::fill(inside_.begin(), inside_.end(), std::uint8_t{0});
    for (std::int64_t l = 0; l < count; ++l) {
      const std::int64_t output = first + l;
      const std::int64_t top = a.down_begin[output / a.across];
      const std::int64_t left = a.across_begin[output % a.across];
      const std::int64_t down = a.down_extent[output / a.across];
      const std::int64_t across = a.across_extent[output % a.across];
      const bool inner = top >= 0 && left >= 0 && top + a.down_steps <= a.height && left + a.across_steps <= a.width &&
                         down == a.down_steps && across == a.across_steps;
      std::int64_t at = l;
      if (inner) {
        const T* from = x + top * a.width + left;
        for (std::int64_t i = 0; i < a.down_steps; ++i, from += a.width) {
          for (std::int64_t j = 0; j < a.across_steps; ++j, at += kGroup) {
            gathered_[static_cast<std::size_t>(at)] = from[j];
          }
        }
        for (at = l; !whole && at < static_cast<std::int64_t>(inside_.size()); at += kGroup) {
          inside_[static_cast<std::size_t>(at)] = 1;
        }
        continue;
      }
      if (whole) {
        whole = false;
        std::fill(inside_.begin(), inside_.end(), std::uint8_t{0});
        for (std::int64_t before = 0; before < l; ++before) {
          for (at = before; at < static_cast<std::int64_t>(inside_.size()); at += kGroup) {
            inside_[static_cast<std::size_t>(at)] = 1;
          }
        }
        at = l;
      }
      for (std::int64_t i = top; i < top + a.down_steps; ++i) {
        for (std::int64_t j = left; j < left + a.across_steps; ++j, at += kGroup) {
          const bool in = i >= 0 && j >= 0 && i < HWY_MIN(a.height, top + down) && j < HWY_MIN(a.width, left + across);
          inside_[static_cast<std::size_t>(at)] = in;
          gathered_[static_cast<std::size_t>(at)] = in ? x[i * a.width + j] : T{0};
        }
      }
    }
    return whole;
  }

  template <class L>
  void AddWhole(const L& lanes, std::uint64_t place, typename L::Value* sums) const {
    const std::int64_t steps = arguments_.steps();
    auto words = lanes.template Place<1>(stages_[kWindowStage], place, static_cast<std::uint64_t>(steps));
    typename L::V sum[L::kParts];
    LoadGroup<L>(gathered_.data(), kGroup, sum);
    for (std::int64_t k = 1; k < steps; ++k) {
      words.Advance();
      const auto draw = words.At(0);
      for (int p = 0; p < L::kParts; ++p) {
        sum[p] = lanes.Add(sum[p], L::LoadPart(gathered_.data() + k * kGroup + p * L::kLanes), draw, p);
      }
    }
    for (int p = 0; p < L::kParts; ++p) L::StoreLanes(sum[p], sums + p * L::kLanes);
  }

  // The same where a lane's first element need not be at the first step, nor every step have one.
  template <class L>
  void AddInside(const L& lanes, std::uint64_t place, typename L::Value* sums) const {
    const std::int64_t steps = arguments_.steps();
    auto words = lanes.template Place<1>(stages_[kWindowStage], place, static_cast<std::uint64_t>(steps));
    bool begun[kGroup] = {};
    HWY_ALIGN typename L::Value added[kGroup];
    for (std::int64_t k = 0; k < steps; ++k) {
      const T* const elements = gathered_.data() + k * kGroup;
      const std::uint8_t* const inside = inside_.data() + k * kGroup;
      const auto draw = words.At(0);
      for (int p = 0; p < L::kParts; ++p) {
        const auto sum = lanes.Add(L::LoadLanes(sums + p * L::kLanes), L::LoadPart(elements + p * L::kLanes), draw, p);
        L::StoreLanes(sum, added + p * L::kLanes);
      }
      for (int l = 0; l < kGroup; ++l) {
        if (inside[l] == 0) continue;
        sums[l] = begun[l] ? added[l] : static_cast<typename L::Value>(elements[l]);
        begun[l] = true;
      }
      words.Advance();
    }
  }

  PoolArguments<T> arguments_;
  Stream stages_[kPoolStages];
  mutable std::vector<T> gathered_;             // [step][lane]
  mutable std::vector<std::uint8_t> inside_;    // the same
  mutable std::int64_t ranged_plane_ = -1;
  mutable Range range_{};
};

void PoolFloat(const PoolArguments<float>& arguments, const Rounding& rounding, std::int64_t begin, std::int64_t end) {
  ForRows<float>(PoolWork<float>(arguments, rounding), rounding, begin, end);
}

void PoolDouble(const PoolArguments<double>& arguments, const Rounding& rounding, std::int64_t begin,
                std::int64_t end) {
  ForRows<double>(PoolWork<double>(arguments, rounding), rounding, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace prism
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace prism {
namespace {

HWY_EXPORT(PoolFloat);
HWY_EXPORT(PoolDouble);

void CheckWindows(const Windows& windows, std::int64_t size, const char* axis) {
  if (windows.begin.size() != windows.extent.size()) {
    throw std::invalid_argument(std::string("windows ") + axis + ": expected as many extents as begins.");
  }
  for (std::size_t i = 0; i < windows.begin.size(); ++i) {
    const std::int64_t begin = std::max<std::int64_t>(windows.begin[i], 0);
    if (windows.extent[i] < 1 || begin >= std::min(size, windows.begin[i] + windows.extent[i])) {
      throw std::invalid_argument(std::string("windows ") + axis + ": window " + std::to_string(i) +
                                  " has no element of the input.");
    }
  }
}

}  // namespace

template <class T>
void AveragePool(const T* x, std::int64_t planes, std::int64_t height, std::int64_t width, const Windows& down,
                 const Windows& across, const std::vector<std::int64_t>& divisors, std::uint64_t first_plane, T* out,
                 const Rounding& rounding) {
  CheckRounding(rounding, kBitsOf<T>);
  CheckRows(planes, height);
  CheckRows(planes, width);
  CheckWindows(down, height, "down");
  CheckWindows(across, width, "across");
  if (divisors.size() != down.begin.size() * across.begin.size()) {
    throw std::invalid_argument("divisors: expected one for each output.");
  }
  if (planes == 0 || divisors.empty()) return;
  PoolArguments<T> arguments{};
  arguments.x = x;
  arguments.height = height;
  arguments.width = width;
  arguments.down_begin = down.begin.data();
  arguments.down_extent = down.extent.data();
  arguments.across_begin = across.begin.data();
  arguments.across_extent = across.extent.data();
  arguments.down = static_cast<std::int64_t>(down.begin.size());
  arguments.across = static_cast<std::int64_t>(across.begin.size());
  arguments.down_steps = *std::max_element(down.extent.begin(), down.extent.end());
  arguments.across_steps = *std::max_element(across.extent.begin(), across.extent.end());
  arguments.groups = (arguments.outputs() + kGroup - 1) / kGroup;
  arguments.divisors = divisors.data();
  arguments.first_plane = first_plane;
  arguments.out = out;
  const std::size_t target = DispatchIndex();
  ForPieces(planes * arguments.groups, arguments.steps() * kGroup, rounding.threads,
            [&](std::int64_t begin, std::int64_t end) {
              if constexpr (sizeof(T) == 4) {
                HWY_DISPATCH_TABLE(PoolFloat)[target](arguments, rounding, begin, end);
              } else {
                HWY_DISPATCH_TABLE(PoolDouble)[target](arguments, rounding, begin, end);
              }
            });
}

template void AveragePool<float>(const float*, std::int64_t, std::int64_t, std::int64_t, const Windows&, const Windows&,
                                 const std::vector<std::int64_t>&, std::uint64_t, float*, const Rounding&);
template void AveragePool<double>(const double*, std::int64_t, std::int64_t, std::int64_t, const Windows&,
                                  const Windows&, const std::vector<std::int64_t>&, std::uint64_t, double*,
                                  const Rounding&);

}  // namespace prism
#endif  // HWY_ONCE
