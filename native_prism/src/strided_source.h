#ifndef PRISM_SRC_STRIDED_SOURCE_H_
#define PRISM_SRC_STRIDED_SOURCE_H_

#include <algorithm>
#include <cstdint>

#include "gemm.h"

namespace prism {

// Lines and steps that lie at fixed distances.
template <class T>
class StridedSource final : public Source<T> {
 public:
  StridedSource(const T* data, std::int64_t line_stride, std::int64_t step_stride)
      : data_(data), line_stride_(line_stride), step_stride_(step_stride) {}

  void Pack(std::int64_t line, int lines, std::int64_t step, int depth, int width, float* to) const override {
    PackAs(line, lines, step, depth, width, to);
  }
  void Pack(std::int64_t line, int lines, std::int64_t step, int depth, int width, double* to) const override {
    PackAs(line, lines, step, depth, width, to);
  }

 private:
  template <class To>
  void PackAs(std::int64_t line, int lines, std::int64_t step, int depth, int width, To* to) const {
    const T* from = data_ + line * line_stride_ + step * step_stride_;
    if (line_stride_ == 1) {
      for (int s = 0; s < depth; ++s, from += step_stride_, to += width) {
        if (lines == 16) {
          for (int l = 0; l < 16; ++l) to[l] = static_cast<To>(from[l]);
          continue;
        }
        for (int l = 0; l < lines; ++l) to[l] = static_cast<To>(from[l]);
        std::fill(to + lines, to + width, To{0});
      }
      return;
    }
    if (step_stride_ == 1) {
      for (int l = lines; l < width; ++l) {
        for (int s = 0; s < depth; ++s) to[s * width + l] = To{0};
      }
      TransposeLines(from, line_stride_, lines, depth, width, to);
      return;
    }
    for (int s = 0; s < depth; ++s, from += step_stride_, to += width) {
      for (int l = 0; l < lines; ++l) to[l] = static_cast<To>(from[l * line_stride_]);
      std::fill(to + lines, to + width, To{0});
    }
  }

  const T* data_;
  std::int64_t line_stride_;
  std::int64_t step_stride_;
};

}  // namespace prism

#endif  // PRISM_SRC_STRIDED_SOURCE_H_
