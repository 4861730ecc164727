// Convolutions and transposed convolutions with one to three spatial axes. To be included by prism/prism.h only.
//
// Every output element is one sum that starts from its channel's bias (else from zero), to which the products of its
// channel's weights and inputs are added one after another in ascending order of (input channel of the group, kernel
// position, row-major), each step the exact fma(input, weight, sum) rounded by the mode. The zeros of the padding take
// part as steps like any other input, so that UD moves the sum there too.
//
// A start of -0 counts as 0.
//
// A transposed convolution is the convolution of the input, stuffed with stride - 1 zeros between neighbours, with the
// flipped kernel, in that convolution's order; but the stuffed zeros are no steps, only inputs and the zeros at the
// edges are. Output positions that meet the same kernel positions make a phase: an axis has `stride` of them, an output
// coordinate o is in phase o % stride; phases of several axes are numbered row-major.
//
// The random words (see stream.h): with `phases` the product of the strides of a transposed convolution, else 1, `count`
// the output positions of the phase and p the position's row-major number among them, the sum of channel c in image n
// is in lane c % 16 of the stream's row
//
//   (((first_image + n) * count + p) * phases + phase) * ceil(out_channels / 16) + c / 16.
//
// A row has as many steps as a group has input channels times kernel positions; a phase uses the first of them.

#ifndef PRISM_CONVOLUTION_H_
#define PRISM_CONVOLUTION_H_

#include <array>
#include <cstdint>

namespace prism {

struct Rounding;

struct Convolution {
  // Depth, height, width. An axis that is not there has size, kernel, stride and dilation 1 and no padding.
  using Axes = std::array<std::int64_t, 3>;

  std::int64_t images = 0;
  std::int64_t in_channels = 1;
  std::int64_t out_channels = 1;
  std::int64_t groups = 1;
  Axes input{1, 1, 1};
  Axes kernel{1, 1, 1};
  Axes stride{1, 1, 1};
  Axes dilation{1, 1, 1};
  // Zeros around the input; with `transposed` what is cut off the output.
  Axes pad_before{0, 0, 0};
  Axes pad_after{0, 0, 0};
  bool transposed = false;
  // What `transposed` adds at the end of the output.
  Axes output_padding{0, 0, 0};
  // The number of the first image, so that the parts of a batch draw what the whole would.
  std::uint64_t first_image = 0;

  // Throws std::invalid_argument where the numbers are out of range or the output is empty.
  Axes OutputSize() const;
};

// `x` is [images][in_channels][input], `out` [images][out_channels][output], both contiguous; `weight` is
// [out_channels][in_channels / groups][kernel], transposed [in_channels][out_channels / groups][kernel]; `bias` is
// [out_channels] or null. `out` must not overlap what is read. T is float or double.
template <class T>
void Convolve(const Convolution& convolution, const T* x, const T* weight, const T* bias, T* out,
              const Rounding& rounding);

extern template void Convolve<float>(const Convolution&, const float*, const float*, const float*, float*,
                                     const Rounding&);
extern template void Convolve<double>(const Convolution&, const double*, const double*, const double*, double*,
                                      const Rounding&);

}  // namespace prism

#endif  // PRISM_CONVOLUTION_H_
