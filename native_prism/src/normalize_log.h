#ifndef PRISM_SRC_NORMALIZE_LOG_H_
#define PRISM_SRC_NORMALIZE_LOG_H_

#include <cmath>

namespace prism {

// log(x) of x > 0 by the same operations everywhere, to 2^-51. With x = 2^k m, sqrt(1/2) <= m < sqrt(2), and
// s = (m - 1) / (m + 1), |s| < 0.1716, log(m) is the series 2 (s + s^3/3 + s^5/5 + ...), cut where a term is below
// 2^-55 of the first.
inline double Log(double x) {
  if (!(x > 0) || std::isinf(x)) return x == 0 ? -HUGE_VAL : (x < 0 ? x - x : x);
  int k = 0;
  double m = std::frexp(x, &k);
  if (m < 0.70710678118654752) {
    m *= 2;
    k -= 1;
  }
  const double f = m - 1;
  const double s = f / (2 + f);
  const double square = s * s;
  double sum = 1.0 / 23;
  for (int odd = 21; odd >= 3; odd -= 2) sum = std::fma(sum, square, 1.0 / odd);
  // 2 s = f - f s, of which f is exact.
  const double log_m = f - s * (f - 2 * square * sum);
  return std::fma(k, 0x1.62e42fefa39efp-1, std::fma(k, 0x1.abc9e3b39803fp-56, log_m));
}

}  // namespace prism

#endif  // PRISM_SRC_NORMALIZE_LOG_H_
