// Stochastic arithmetic on arrays of float32 and float64.
//
// The bits of a result depend on the operands, on the shape of the operation and on the numbers of the rounding
// (seed, sample, operation, and the element's own place), and on nothing else: not on the vector width, the split
// of a batch or the number of threads. Nor does the caller's floating-point environment (rounding direction,
// flush-to-zero) matter, and it does not change. A NaN result is always the quiet NaN 0x7FC00000 (float32) or
// 0x7FF8000000000000 (float64).
//
// Every function throws std::invalid_argument where the rounding is not as described, where an argument is out of
// its range, or where the environment variable BOUNDSCOPE_PRISM_TARGET names no usable target.

#ifndef PRISM_PRISM_H_
#define PRISM_PRISM_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace prism {

// With x the exact real result of one operation on floating-point operands, and floats those of the precision asked for:
enum class Mode : int {
  // x rounded to nearest, ties to even.
  kNearest = 0,
  // SR: x where it is a float, else one of its two neighbours, the upper one with probability
  // (x - lower) / (upper - lower), to within 2^-29. A result beyond the largest float is as in kNearest.
  kStochastic = 1,
  // UD: x rounded to nearest, then the next float above or below, each with probability 1/2. Zero, infinities
  // and NaN stay.
  kUpDown = 2,
  // RR: x where it is a float, else one of its two neighbours, each with probability 1/2. A result beyond the
  // largest float is as in kNearest.
  kRandom = 3,
};

struct Rounding {
  Mode mode = Mode::kNearest;
  // Significand bits of a result, the hidden one included: 2 to 24 for float32, 2 to 53 for float64; 0 for all of them.
  // The exponents stay those of the type.
  int precision = 0;
  std::uint64_t seed = 0;
  std::uint64_t sample = 0;
  // Below 2^56. Operations of one sample that share it share their random words.
  std::uint64_t operation = 0;
  // The most threads that a call uses, the caller's own included.
  int threads = 1;
};

// The targets (instruction sets, in Highway's names) that are compiled in and that this CPU has, best first.
std::vector<std::string> Targets();

// The target in use: the one that BOUNDSCOPE_PRISM_TARGET names when first needed, else the best.
std::string Target();

// Uses `name` (in any case) from now on, or the best target where `name` is empty. Throws
// std::invalid_argument, naming the choices, where it is not one of Targets().
void SetTarget(const std::string& name);

}  // namespace prism

#include "prism/convolution.h"  // IWYU pragma: export
#include "prism/elementwise.h"  // IWYU pragma: export
#include "prism/normalize.h"  // IWYU pragma: export
#include "prism/pool.h"  // IWYU pragma: export
#include "prism/product.h"  // IWYU pragma: export
#include "prism/reduce.h"  // IWYU pragma: export

#endif  // PRISM_PRISM_H_
