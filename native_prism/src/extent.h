// What magnitudes arrays hold: decides whether fast kernels give the same bits as the exact ones.

#ifndef PRISM_SRC_EXTENT_H_
#define PRISM_SRC_EXTENT_H_

#include <cstdint>
#include <limits>

namespace prism {

struct Extent {
  double largest = 0;                                    // magnitude; infinite where something is not finite
  double smallest = std::numeric_limits<double>::max();  // magnitude, of what is not zero

  void Join(const Extent& other) {
    if (other.largest > largest) largest = other.largest;
    if (other.smallest < smallest) smallest = other.smallest;
  }
};

// Of `count` contiguous values.
Extent ExtentOf(const float* data, std::int64_t count);
Extent ExtentOf(const double* data, std::int64_t count);

}  // namespace prism

#endif  // PRISM_SRC_EXTENT_H_
