// Rounding direction and flush-to-zero belong to the thread that calls us, and a caller may have changed them.

#ifndef PRISM_SRC_ENVIRONMENT_H_
#define PRISM_SRC_ENVIRONMENT_H_

#include <cfenv>

namespace prism {

// Round to nearest with subnormals, while it lives.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() { std::fesetenv(&saved_); }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
  std::fenv_t saved_;
};

class RoundingDirection {
 public:
  explicit RoundingDirection(int direction) : saved_(std::fegetround()) { std::fesetround(direction); }
  ~RoundingDirection() { std::fesetround(saved_); }
  RoundingDirection(const RoundingDirection&) = delete;
  RoundingDirection& operator=(const RoundingDirection&) = delete;

 private:
  int saved_;
};

}  // namespace prism

#endif  // PRISM_SRC_ENVIRONMENT_H_
