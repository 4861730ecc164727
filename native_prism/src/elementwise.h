// One call of an element-wise operation, checked.

#ifndef PRISM_SRC_ELEMENTWISE_H_
#define PRISM_SRC_ELEMENTWISE_H_

#include <cstddef>
#include <cstdint>

#include "prism/prism.h"

namespace prism {

template <class In, class Out>
struct ElementwiseCall {
  Elementwise operation;
  Operand<In> operands[3];
  Out* out;
  std::size_t count;
  Rounding rounding;
  std::uint64_t first;
};

}  // namespace prism

#endif  // PRISM_SRC_ELEMENTWISE_H_
