// Where a convolution reads and writes, without a word on arithmetic.

#ifndef PRISM_SRC_CONVOLUTION_PLAN_H_
#define PRISM_SRC_CONVOLUTION_PLAN_H_

#include <cstdint>
#include <vector>

#include "prism/prism.h"

namespace prism {

using Axes = Convolution::Axes;

inline std::int64_t Volume(const Axes& axes) { return axes[0] * axes[1] * axes[2]; }

// One kernel position: its number in the kernel, and where its input lies in a padded channel from a position's own
// place.
struct Tap {
  std::int64_t kernel;
  std::int64_t offset;
};

// Output positions that meet the same kernel positions: all of a convolution, one phase of a transposed one.
struct Phase {
  std::int64_t number = 0;
  Axes count{};
  // In the output, from one position to the next along each axis.
  Axes out_first{};
  Axes out_step{};
  // In the padded input.
  Axes in_first{};
  Axes in_step{};
  std::vector<Tap> taps;
};

struct Plan {
  Axes output{};
  // The input's channels with their zeros around them.
  Axes before{};
  Axes padded{};
  std::int64_t phase_count = 1;
  std::vector<Phase> phases;
};

Plan MakePlan(const Convolution& convolution);

// Goes through a phase's positions in row-major order, by the place in the padded input (or the output) that each has.
class Walk {
 public:
  Walk(const Axes& count, const Axes& first, const Axes& step, const Axes& size, std::int64_t position)
      : count_(count),
        step_{step[0] * size[1] * size[2], step[1] * size[2], step[2]},
        place_((first[0] * size[1] + first[1]) * size[2] + first[2]) {
    at_[2] = position % count[2];
    at_[1] = position / count[2] % count[1];
    const std::int64_t outer = position / count[2] / count[1];
    place_ += outer * step_[0] + at_[1] * step_[1] + at_[2] * step_[2];
  }

  std::int64_t place() const { return place_; }
  std::int64_t step() const { return step_[2]; }
  // How many positions, this one included, follow at a distance of step().
  std::int64_t run() const { return count_[2] - at_[2]; }

  // `positions` is at most run().
  void Advance(std::int64_t positions) {
    place_ += positions * step_[2];
    at_[2] += positions;
    if (at_[2] < count_[2]) return;
    place_ += step_[1] - count_[2] * step_[2];
    at_[2] = 0;
    if (++at_[1] < count_[1]) return;
    place_ += step_[0] - count_[1] * step_[1];
    at_[1] = 0;
  }

 private:
  Axes count_;
  Axes step_;
  std::int64_t place_;
  Axes at_{};
};

}  // namespace prism

#endif  // PRISM_SRC_CONVOLUTION_PLAN_H_
