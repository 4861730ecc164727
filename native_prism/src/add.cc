#include "config.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "add.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "environment.h"
#include "prism/prism.h"
#include "rounding-inl.h"
#include "targets.h"

HWY_BEFORE_NAMESPACE();
namespace prism {
namespace HWY_NAMESPACE {

// Each kernel is placed at a group once and then handles one group after another.

class NearestKernel {
 public:
  NearestKernel(const Draw&, std::uint64_t) {}

  HWY_INLINE void Groups(const float* a, const float* b, float* sum, std::size_t groups) {
    for (std::size_t i = 0; i < groups * kGroup; i += kGroup) AddNearestGroup(a + i, b + i, sum + i);
  }
};

class StochasticKernel {
 public:
  HWY_INLINE StochasticKernel(const Draw& draw, std::uint64_t group)
      : words_(MakeRoundKeys(draw), draw.operation, group) {}

  HWY_INLINE void Groups(const float* a, const float* b, float* sum, std::size_t groups) {
    HWY_ALIGN std::uint32_t words[kGroup];
    TileWords source = words_;
    for (std::size_t i = 0; i < groups * kGroup; i += kGroup) {
      source.Next(words);
      AddStochasticGroup(a + i, b + i, sum + i, words);
    }
    words_ = source;
  }

 private:
  TileWords words_;
};

class UpDownKernel {
 public:
  HWY_INLINE UpDownKernel(const Draw& draw, std::uint64_t group)
      : source_(MakeRoundKeys(draw), draw.operation, group / kGroupsPerUdTile),
        in_tile_(group % kGroupsPerUdTile) {
    source_.Next(words_);
  }

  HWY_INLINE void Groups(const float* a, const float* b, float* sum, std::size_t groups) {
    while (groups != 0) {
      const std::size_t now = HWY_MIN(groups, kGroupsPerUdTile - in_tile_);
      GroupsOfTile(a, b, sum, now);
      a += now * kGroup;
      b += now * kGroup;
      sum += now * kGroup;
      groups -= now;
      in_tile_ += now;
      if (in_tile_ == kGroupsPerUdTile) {
        in_tile_ = 0;
        source_.Next(words_);
      }
    }
  }

 private:
  HWY_INLINE void GroupsOfTile(const float* a, const float* b, float* sum, std::size_t groups) {
    std::uint32_t first_bit = std::uint32_t{1} << in_tile_;
#if PRISM_VECTORS
    auto bit = hn::Set(DU(), first_bit);
#else
    auto bit = first_bit;
#endif
    for (std::size_t i = 0; i < groups * kGroup; i += kGroup) {
      AddUpDownGroup(a + i, b + i, sum + i, words_, bit);
#if PRISM_VECTORS
      bit = hn::Add(bit, bit);
#else
      bit <<= 1;
#endif
    }
  }

  HWY_ALIGN std::uint32_t words_[kGroup];
  TileWords source_;
  std::size_t in_tile_;
};

// Part of a group, through a copy that is padded to a whole one.
template <class Kernel>
HWY_INLINE void PartOfGroup(Kernel& kernel, const float* a, const float* b, float* sum, std::size_t skip,
                            std::size_t count) {
  float a_group[kGroup] = {};
  float b_group[kGroup] = {};
  float sum_group[kGroup];
  std::memcpy(a_group + skip, a, count * sizeof(float));
  std::memcpy(b_group + skip, b, count * sizeof(float));
  kernel.Groups(a_group, b_group, sum_group, 1);
  std::memcpy(sum, sum_group + skip, count * sizeof(float));
}

template <class Kernel>
HWY_INLINE void AddBy(const float* a, const float* b, float* sum, std::size_t count, const Draw& draw,
                      std::uint64_t first) {
  Kernel kernel(draw, first / kGroup);
  const std::size_t skip = static_cast<std::size_t>(first % kGroup);
  if (skip != 0) {
    const std::size_t head = HWY_MIN(count, kGroup - skip);
    PartOfGroup(kernel, a, b, sum, skip, head);
    a += head;
    b += head;
    sum += head;
    count -= head;
  }
  const std::size_t whole = count / kGroup;
  kernel.Groups(a, b, sum, whole);
  const std::size_t done = whole * kGroup;
  if (done != count) PartOfGroup(kernel, a + done, b + done, sum + done, 0, count - done);
}

void AddOnTarget(const float* a, const float* b, float* sum, std::size_t count, Mode mode, const Draw& draw,
                 std::uint64_t first) {
  switch (mode) {
    case Mode::kNearest:
      return AddBy<NearestKernel>(a, b, sum, count, draw, first);
    case Mode::kStochastic:
      return AddBy<StochasticKernel>(a, b, sum, count, draw, first);
    case Mode::kUpDown:
      return AddBy<UpDownKernel>(a, b, sum, count, draw, first);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace prism
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace prism {
namespace {

HWY_EXPORT(AddOnTarget);

}  // namespace

void Add(const float* a, const float* b, float* sum, std::size_t count, Mode mode, const Draw& draw,
         std::uint64_t first) {
  if (count == 0) return;
  const auto add = HWY_DISPATCH_TABLE(AddOnTarget)[DispatchIndex()];
  const DefaultFloatEnvironment environment;
  add(a, b, sum, count, mode, draw, first);
}

}  // namespace prism
#endif  // HWY_ONCE
