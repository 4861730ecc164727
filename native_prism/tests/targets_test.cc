#include <stdexcept>
#include <string>

#include "check.h"
#include "prism/prism.h"

namespace {

// Each target can be chosen, the best is taken by default, and what is none is refused with the choices.
void TestTargets() {
  const auto targets = prism::Targets();
  CHECK(!targets.empty(), "no target");
  for (const std::string& target : targets) {
    std::printf("target %s\n", target.c_str());
    prism::SetTarget(target);
    CHECK(prism::Target() == target, "asked for %s, got %s", target.c_str(), prism::Target().c_str());
  }
  prism::SetTarget("");
  CHECK(prism::Target() == targets.front(), "the best is %s, got %s", targets.front().c_str(),
        prism::Target().c_str());
  bool refused = false;
  try {
    prism::SetTarget("Z80");
  } catch (const std::invalid_argument& error) {
    refused = std::string(error.what()).find(targets.back()) != std::string::npos;
  }
  CHECK(refused, "an unknown target must be refused with the choices");
}

const Test targets("targets", TestTargets);

}  // namespace
