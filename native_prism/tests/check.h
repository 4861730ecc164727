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

// A test is a function that a static object of its file names. CMakeLists.txt lists the names again, for ctest.
struct Test {
  Test(const char* test_name, void (*test_run)());

  const char* name;
  void (*run)();
  Test* next;
};

#endif  // PRISM_TESTS_CHECK_H_
