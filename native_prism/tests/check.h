// The little that these tests need of a test framework.

#ifndef PRISM_TESTS_CHECK_H_
#define PRISM_TESTS_CHECK_H_

#include <cstdio>
#include <cstdlib>

#define CHECK(condition, ...)                                                   \
  do {                                                                          \
    if (!(condition)) {                                                         \
      std::fprintf(stderr, "%s:%d: %s is false: ", __FILE__, __LINE__, #condition); \
      std::fprintf(stderr, __VA_ARGS__);                                        \
      std::fprintf(stderr, "\n");                                               \
      std::exit(1);                                                             \
    }                                                                           \
  } while (false)

void TestStream();
void TestTargets();
void TestEqualBits();
void TestSplits();
void TestSpecialValues();
void TestEnvironment();

#endif  // PRISM_TESTS_CHECK_H_
