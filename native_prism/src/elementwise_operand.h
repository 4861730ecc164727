// How a kernel reads an operand that is broadcast: as contiguous memory, piece by piece.

#ifndef PRISM_SRC_ELEMENTWISE_OPERAND_H_
#define PRISM_SRC_ELEMENTWISE_OPERAND_H_

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "prism/prism.h"

namespace prism {

template <class T>
class OperandReader {
 public:
  // A few kilobytes, so that copies of three operands stay in the first cache.
  static constexpr std::size_t kPiece = 2048;

  OperandReader(const Operand<T>& operand, std::size_t count)
      : data_(operand.data),
        inner_(operand.period == 1 ? 1 : operand.inner),
        period_(operand.period),
        whole_(inner_ == 1 && period_ >= count),
        pattern_(!whole_ && inner_ == 1 && period_ <= kPiece) {
    if (whole_) return;
    buffer_.resize(kPiece + (pattern_ ? period_ : 0));
    if (pattern_) {
      for (std::size_t i = 0; i < buffer_.size(); ++i) buffer_[i] = data_[i % period_];
    }
  }

  // The most elements that At gives at once.
  std::size_t Longest() const { return whole_ ? std::numeric_limits<std::size_t>::max() : kPiece; }

  // Elements begin to begin + count, until the next call.
  const T* At(std::size_t begin, std::size_t count) {
    if (whole_) return data_ + begin;
    const std::size_t place = begin / inner_ % period_;
    if (pattern_) return buffer_.data() + place;
    if (inner_ == 1 && place + count <= period_) return data_ + place;
    Copy(place, inner_ - begin % inner_, count);
    return buffer_.data();
  }

 private:
  // From data_[place], of which `left` elements are still to come.
  void Copy(std::size_t place, std::size_t left, std::size_t count) {
    for (std::size_t done = 0; done < count;) {
      std::size_t run = std::min(inner_ == 1 ? period_ - place : left, count - done);
      if (inner_ == 1) {
        std::copy_n(data_ + place, run, buffer_.data() + done);
        place = 0;
      } else {
        std::fill_n(buffer_.data() + done, run, data_[place]);
        place = place + 1 == period_ ? 0 : place + 1;
        left = inner_;
      }
      done += run;
    }
  }

  const T* data_;
  std::size_t inner_;
  std::size_t period_;
  bool whole_;    // one value an element
  bool pattern_;  // the buffer holds a whole piece, from any place of the period on
  std::vector<T> buffer_;
};

}  // namespace prism

#endif  // PRISM_SRC_ELEMENTWISE_OPERAND_H_
