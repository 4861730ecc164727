// The operands of a convolution as a matrix product sees them.

#ifndef PRISM_SRC_CONVOLUTION_WINDOWS_H_
#define PRISM_SRC_CONVOLUTION_WINDOWS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "convolution_plan.h"
#include "gemm.h"
#include "stream.h"

namespace prism {

// Copies `depth` steps of a run of kCount neighbours `distance` apart.
template <int kCount, class T, class To>
void CopyRun(const T* from, std::int64_t distance, const std::int64_t* offsets, int depth, int width, To* to) {
  if (distance == 1) {
    for (int s = 0; s < depth; ++s, to += width) {
      const T* at = from + offsets[s];
      for (int l = 0; l < kCount; ++l) to[l] = static_cast<To>(at[l]);
    }
  } else {
    for (int s = 0; s < depth; ++s, to += width) {
      const T* at = from + offsets[s];
      for (int l = 0; l < kCount; ++l) to[l] = static_cast<To>(at[l * distance]);
    }
  }
}

// Lines are the output positions of one phase in one image after another, steps the offsets given: the rows of im2col
// (Chellapilla, Puri and Simard, "High performance convolutional neural networks for document processing", 2006).
template <class T>
class WindowSource final : public Source<T> {
 public:
  // `padded` is the first image's first channel of the group; `offsets` are the steps' places after a position's own.
  WindowSource(const T* padded, std::int64_t image_stride, const Plan& plan, const Phase& phase,
          const std::vector<std::int64_t>& offsets)
      : padded_(padded), image_stride_(image_stride), plan_(plan), phase_(phase), offsets_(offsets) {}

  void Pack(std::int64_t line, int lines, std::int64_t step, int depth, int width, float* to) const override {
    PackAs(line, lines, step, depth, width, to);
  }
  void Pack(std::int64_t line, int lines, std::int64_t step, int depth, int width, double* to) const override {
    PackAs(line, lines, step, depth, width, to);
  }

 private:
  static constexpr std::int64_t kLongestRun = 12;

  template <class To>
  void PackAs(std::int64_t line, int lines, std::int64_t step, int depth, int width, To* to) const {
    const std::int64_t* offsets = offsets_.data() + step;
    const std::int64_t positions = Volume(phase_.count);
    int done = 0;
    while (done < lines) {
      const std::int64_t image = (line + done) / positions;
      const std::int64_t position = (line + done) % positions;
      Walk walk(phase_.count, phase_.in_first, phase_.in_step, plan_.padded, position);
      const int end = static_cast<int>(std::min<std::int64_t>(lines, done + positions - position));
      while (done < end) {
        const std::int64_t run = std::min({walk.run(), static_cast<std::int64_t>(end - done), kLongestRun});
        Run(static_cast<int>(run), padded_ + image * image_stride_ + walk.place(), walk.step(), offsets, depth, width,
            to + done);
        walk.Advance(run);
        done += static_cast<int>(run);
      }
    }
    for (int l = lines; l < width; ++l) {
      for (int s = 0; s < depth; ++s) to[s * width + l] = To{0};
    }
  }

  template <class To>
  static void Run(int count, const T* from, std::int64_t distance, const std::int64_t* offsets, int depth, int width,
                  To* to) {
    using Copy = void (*)(const T*, std::int64_t, const std::int64_t*, int, int, To*);
    static constexpr Copy kCopies[kLongestRun] = {
        CopyRun<1, T, To>, CopyRun<2, T, To>,  CopyRun<3, T, To>,  CopyRun<4, T, To>,
        CopyRun<5, T, To>, CopyRun<6, T, To>,  CopyRun<7, T, To>,  CopyRun<8, T, To>,
        CopyRun<9, T, To>, CopyRun<10, T, To>, CopyRun<11, T, To>, CopyRun<12, T, To>};
    kCopies[count - 1](from, distance, offsets, depth, width, to);
  }

  const T* padded_;
  std::int64_t image_stride_;
  const Plan& plan_;
  const Phase& phase_;
  const std::vector<std::int64_t>& offsets_;
};

// Weights as they are packed once a call: [16 output channels][step][16], zero where there is no channel.
template <class T>
class PackedWeights final : public Source<T> {
 public:
  PackedWeights(const T* packed, std::int64_t depth) : packed_(packed), depth_(depth) {}

  void Pack(std::int64_t line, int lines, std::int64_t step, int depth, int width, float* to) const override {
    PackAs(line, lines, step, depth, width, to);
  }
  void Pack(std::int64_t line, int lines, std::int64_t step, int depth, int width, double* to) const override {
    PackAs(line, lines, step, depth, width, to);
  }

 private:
  template <class To>
  void PackAs(std::int64_t line, int lines, std::int64_t step, int depth, int width, To* to) const {
    const T* from = packed_ + (line / kGroup * depth_ + step) * kGroup;
    if (line % kGroup == 0 && width == kGroup) {
      for (std::int64_t i = 0; i < std::int64_t{depth} * kGroup; ++i) to[i] = static_cast<To>(from[i]);
      return;
    }
    for (int s = 0; s < depth; ++s) {
      for (int l = 0; l < width; ++l) {
        const std::int64_t column = line + l;
        const T* group = packed_ + (column / kGroup * depth_ + step + s) * kGroup;
        to[s * width + l] = l < lines ? static_cast<To>(group[column % kGroup]) : To{0};
      }
    }
  }

  const T* packed_;
  std::int64_t depth_;
};

}  // namespace prism

#endif  // PRISM_SRC_CONVOLUTION_WINDOWS_H_
