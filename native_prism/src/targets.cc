#include "targets.h"

#include <atomic>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "config.h"
#include "hwy/highway.h"
#include "prism/prism.h"

namespace prism {
namespace {

constexpr const char* kVariable = "BOUNDSCOPE_PRISM_TARGET";

// 0 until first needed.
std::atomic<std::int64_t> target_in_use{0};

// In Highway a better target has a lower bit.
std::vector<std::int64_t> UsableTargets() {
  constexpr std::int64_t kAlways = HWY_SCALAR | HWY_EMU128;
  const std::int64_t usable = (hwy::SupportedTargets() | kAlways) & HWY_TARGETS;
  std::vector<std::int64_t> targets;
  for (std::int64_t rest = usable; rest != 0; rest &= rest - 1) targets.push_back(rest & -rest);
  return targets;
}

std::string Upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::int64_t FindTarget(const std::string& name, const std::string& where) {
  const std::vector<std::int64_t> targets = UsableTargets();
  if (name.empty()) return targets.front();
  std::string choices;
  for (const std::int64_t target : targets) {
    if (Upper(name) == hwy::TargetName(target)) return target;
    choices += (choices.empty() ? "" : ", ") + std::string(hwy::TargetName(target));
  }
  throw std::invalid_argument(where + ": expected a target that is compiled in and that this CPU has (" +
                              choices + "), got '" + name + "'.");
}

std::int64_t TargetInUse() {
  std::int64_t target = target_in_use.load(std::memory_order_relaxed);
  if (target == 0) {
    const char* name = std::getenv(kVariable);
    target = FindTarget(name == nullptr ? "" : name, std::string("environment variable ") + kVariable);
    target_in_use.store(target, std::memory_order_relaxed);
  }
  return target;
}

}  // namespace

std::size_t DispatchIndex() {
  [[maybe_unused]] const std::int64_t target = TargetInUse();
#if (HWY_TARGETS & (HWY_TARGETS - 1)) == 0
  return 0;
#else
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  return chosen.GetIndex();
#endif
}

std::vector<std::string> Targets() {
  std::vector<std::string> names;
  for (const std::int64_t target : UsableTargets()) names.emplace_back(hwy::TargetName(target));
  return names;
}

std::string Target() { return hwy::TargetName(TargetInUse()); }

void SetTarget(const std::string& name) {
  target_in_use.store(FindTarget(name, "target"), std::memory_order_relaxed);
}

}  // namespace prism
