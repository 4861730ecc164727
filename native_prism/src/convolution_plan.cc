#include "convolution_plan.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace prism {
namespace {

constexpr std::int64_t kLargestNumber = std::int64_t{1} << 31;

void Require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(std::string("convolution: ") + message);
}

bool Within(const Axes& axes, std::int64_t least) {
  return std::all_of(axes.begin(), axes.end(), [least](std::int64_t n) { return n >= least && n <= kLargestNumber; });
}

void Check(const Convolution& c) {
  Require(c.images >= 0, "expected a number of images of 0 or more");
  Require(c.in_channels >= 1 && c.out_channels >= 1 && c.groups >= 1, "expected at least one channel and one group");
  Require(c.in_channels % c.groups == 0 && c.out_channels % c.groups == 0,
          "expected numbers of channels that the groups divide");
  Require(Within(c.input, 1) && Within(c.kernel, 1), "expected sizes of at least 1 on every axis");
  Require(Within(c.stride, 1) && Within(c.dilation, 1), "expected strides and dilations of at least 1");
  Require(Within(c.pad_before, 0) && Within(c.pad_after, 0), "expected padding of 0 or more");
  Require(Within(c.output_padding, 0), "expected output padding of 0 or more");
  Require(c.transposed || c.output_padding == Axes{}, "output padding is for transposed convolutions");
}

// One axis of one phase: which kernel positions, and the padded place of each.
struct AxisPhase {
  std::int64_t count;
  std::int64_t out_first;
  std::int64_t out_step;
  std::int64_t in_first;  // before padding is known: input coordinates
  std::int64_t in_step;
  std::vector<Tap> taps;
};

AxisPhase PlainAxis(const Convolution& c, std::size_t axis, std::int64_t output) {
  AxisPhase phase{output, 0, 1, -c.pad_before[axis], c.stride[axis], {}};
  for (std::int64_t k = 0; k < c.kernel[axis]; ++k) phase.taps.push_back({k, k * c.dilation[axis]});
  return phase;
}

// Output o takes input i through kernel position k where o + pad_before = i stride + k dilation.
AxisPhase TransposedAxis(const Convolution& c, std::size_t axis, std::int64_t output, std::int64_t number) {
  const std::int64_t stride = c.stride[axis];
  const std::int64_t remainder = (number + c.pad_before[axis]) % stride;
  const std::int64_t count = output > number ? (output - number + stride - 1) / stride : 0;
  AxisPhase phase{count, number, stride, (number + c.pad_before[axis]) / stride, 1, {}};
  for (std::int64_t k = c.kernel[axis]; k-- > 0;) {
    const std::int64_t distance = k * c.dilation[axis];
    if (distance % stride == remainder) phase.taps.push_back({k, (remainder - distance) / stride});
  }
  return phase;
}

std::vector<AxisPhase> AxisPhases(const Convolution& c, std::size_t axis, std::int64_t output) {
  if (!c.transposed) return {PlainAxis(c, axis, output)};
  std::vector<AxisPhase> phases;
  for (std::int64_t number = 0; number < c.stride[axis]; ++number) {
    phases.push_back(TransposedAxis(c, axis, output, number));
  }
  return phases;
}

// Finds how far the phases of an axis reach beyond the input, and moves them into what is then the padded axis.
void Pad(std::vector<AxisPhase>& phases, std::int64_t input, std::int64_t* before, std::int64_t* padded) {
  std::int64_t first = 0;
  std::int64_t last = input - 1;
  for (const AxisPhase& phase : phases) {
    if (phase.count == 0) continue;
    for (const Tap& tap : phase.taps) {
      first = std::min(first, phase.in_first + tap.offset);
      last = std::max(last, phase.in_first + tap.offset + (phase.count - 1) * phase.in_step);
    }
  }
  *before = -first;
  *padded = last - first + 1;
  for (AxisPhase& phase : phases) phase.in_first -= first;
}

Phase Joined(const AxisPhase& d, const AxisPhase& h, const AxisPhase& w, const Axes& kernel, const Axes& padded) {
  Phase phase;
  phase.count = {d.count, h.count, w.count};
  phase.out_first = {d.out_first, h.out_first, w.out_first};
  phase.out_step = {d.out_step, h.out_step, w.out_step};
  phase.in_first = {d.in_first, h.in_first, w.in_first};
  phase.in_step = {d.in_step, h.in_step, w.in_step};
  for (const Tap& a : d.taps) {
    for (const Tap& b : h.taps) {
      for (const Tap& c : w.taps) {
        phase.taps.push_back({(a.kernel * kernel[1] + b.kernel) * kernel[2] + c.kernel,
                              (a.offset * padded[1] + b.offset) * padded[2] + c.offset});
      }
    }
  }
  return phase;
}

}  // namespace

Axes Convolution::OutputSize() const {
  Check(*this);
  Axes output{};
  for (std::size_t axis = 0; axis < output.size(); ++axis) {
    const std::int64_t reach = dilation[axis] * (kernel[axis] - 1) + 1;
    const std::int64_t pads = pad_before[axis] + pad_after[axis];
    if (transposed) {
      output[axis] = (input[axis] - 1) * stride[axis] - pads + reach + output_padding[axis];
    } else {
      const std::int64_t room = input[axis] + pads - reach;
      output[axis] = room < 0 ? 0 : room / stride[axis] + 1;
    }
    Require(output[axis] >= 1, "the output is empty: the kernel is larger than the padded input, or all is cut off");
    Require(output[axis] <= kLargestNumber, "the output is too large");
  }
  return output;
}

Plan MakePlan(const Convolution& convolution) {
  Plan plan;
  plan.output = convolution.OutputSize();
  std::array<std::vector<AxisPhase>, 3> axes;
  for (std::size_t axis = 0; axis < axes.size(); ++axis) {
    axes[axis] = AxisPhases(convolution, axis, plan.output[axis]);
    Pad(axes[axis], convolution.input[axis], &plan.before[axis], &plan.padded[axis]);
  }
  plan.phase_count = convolution.transposed ? Volume(convolution.stride) : 1;
  std::int64_t number = 0;
  for (const AxisPhase& d : axes[0]) {
    for (const AxisPhase& h : axes[1]) {
      for (const AxisPhase& w : axes[2]) {
        Phase phase = Joined(d, h, w, convolution.kernel, plan.padded);
        phase.number = number++;
        if (Volume(phase.count) > 0) plan.phases.push_back(std::move(phase));
      }
    }
  }
  return plan;
}

}  // namespace prism
