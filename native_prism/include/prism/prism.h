// Stochastic arithmetic on arrays of float32.
//
// The bits of a result depend on the operands and on the four numbers of the draw (seed, sample, operation,
// element index), and on nothing else: not on the vector width, the split of the array or the thread.

#ifndef PRISM_PRISM_H_
#define PRISM_PRISM_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace prism {

// With x the exact real result of the operation:
enum class Mode : int {
  // x rounded to nearest, ties to even.
  kNearest = 0,
  // x where it is a float32, else one of its two float32 neighbours, the upper one with probability
  // (x - lower) / (upper - lower), to within 2^-29. A result beyond the largest float32 is as in kNearest.
  kStochastic = 1,
  // x rounded to nearest, then the next float32 above or below, each with probability 1/2. Zero, infinities
  // and NaN stay.
  kUpDown = 2,
};

// What the random words of one operation on one array are keyed by.
struct Draw {
  std::uint64_t seed = 0;
  std::uint64_t sample = 0;
  std::uint64_t operation = 0;
};

// sum[i] = a[i] + b[i] for i < count, rounded by `mode`. Element i uses the random word of index `first` + i,
// so that a part of an array gives the same bits as the whole. `sum` may be `a` or `b` but must not overlap
// them otherwise. A NaN result is always the quiet NaN 0x7FC00000. The caller's floating-point environment
// (rounding direction, flush-to-zero) neither matters nor changes. Throws std::invalid_argument where the
// environment variable BOUNDSCOPE_PRISM_TARGET names no usable target.
void Add(const float* a, const float* b, float* sum, std::size_t count, Mode mode, const Draw& draw,
         std::uint64_t first = 0);

// The targets (instruction sets, in Highway's names) that are compiled in and that this CPU has, best first.
std::vector<std::string> Targets();

// The target in use: the one that BOUNDSCOPE_PRISM_TARGET names when first needed, else the best.
std::string Target();

// Uses `name` (in any case) from now on, or the best target where `name` is empty. Throws
// std::invalid_argument, naming the choices, where it is not one of Targets().
void SetTarget(const std::string& name);

}  // namespace prism

#endif  // PRISM_PRISM_H_
