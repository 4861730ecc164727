#ifndef PRISM_SRC_ROUNDING_CHECK_H_
#define PRISM_SRC_ROUNDING_CHECK_H_

#include <stdexcept>
#include <string>

#include "prism/prism.h"

namespace prism {

// Throws std::invalid_argument where `rounding` is not as prism.h describes, for results of `bits` significand bits.
inline void CheckRounding(const Rounding& rounding, int bits) {
  if (rounding.precision != 0 && (rounding.precision < 2 || rounding.precision > bits)) {
    throw std::invalid_argument("precision: expected 0 or 2 to " + std::to_string(bits) + ", got " +
                                std::to_string(rounding.precision) + ".");
  }
  if (rounding.operation >> 56 != 0) {
    throw std::invalid_argument("operation: expected less than 2^56, got " + std::to_string(rounding.operation) +
                                ".");
  }
  if (rounding.threads < 1) {
    throw std::invalid_argument("threads: expected at least 1, got " + std::to_string(rounding.threads) + ".");
  }
}

}  // namespace prism

#endif  // PRISM_SRC_ROUNDING_CHECK_H_
