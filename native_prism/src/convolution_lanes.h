// Convolutions whose 16 lanes of output channels do not share their inputs: depthwise ones and small groups.

#ifndef PRISM_SRC_CONVOLUTION_LANES_H_
#define PRISM_SRC_CONVOLUTION_LANES_H_

#include <cstdint>

#include "prism/prism.h"
#include "stream.h"

namespace prism {

// Rows are done so many at a time; a kernel that takes fewer divides it.
constexpr std::int64_t kLaneRows = 8;

// Output positions (rows) of 16 output channels (lanes).
template <class T>
struct LaneRows {
  // The input of step k of row r is inputs[bases[r] + offsets[k] + lane], its weight weights[k * 16 + lane].
  const T* inputs;
  const std::int64_t* bases;
  const std::int64_t* offsets;
  const T* weights;
  std::int64_t depth;
  const T* start;  // [16]
  // A multiple of kLaneRows; `sums` is [row][16].
  std::int64_t rows;
  T* sums;
  // The stream's row of the first row, from one to the next, and the steps in one.
  std::uint64_t stream_row;
  std::uint64_t stream_row_step;
  std::uint64_t stream_steps;
};

// Each sum as in prism/convolution.h. `fast` where FastKernelsApply.
void SumLanes(const LaneRows<float>& lanes, const Rounding& rounding, bool fast);
void SumLanes(const LaneRows<double>& lanes, const Rounding& rounding, bool fast);

// to[i * 16 + l] = from[channels[l] + i]: `count` neighbours of 16 channels.
void GatherChannels(const float* from, const std::int64_t* channels, std::int64_t count, float* to);
void GatherChannels(const double* from, const std::int64_t* channels, std::int64_t count, double* to);

}  // namespace prism

#endif  // PRISM_SRC_CONVOLUTION_LANES_H_
