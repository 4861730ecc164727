#include <cstring>

#include "check.h"

int main(int argc, char** argv) {
  const struct {
    const char* name;
    void (*run)();
  } tests[] = {
      {"stream", TestStream}, {"targets", TestTargets},              {"equal_bits", TestEqualBits},
      {"splits", TestSplits}, {"special_values", TestSpecialValues}, {"environment", TestEnvironment},
  };
  int ran = 0;
  for (const auto& test : tests) {
    if (argc > 1 && std::strcmp(argv[1], test.name) != 0) continue;
    test.run();
    std::printf("%s: passed\n", test.name);
    ++ran;
  }
  CHECK(ran > 0, "no test is named %s", argv[1]);
  return 0;
}
