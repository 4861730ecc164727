#include <cstring>

#include "check.h"

namespace {

Test* first_test = nullptr;

}  // namespace

Test::Test(const char* test_name, void (*test_run)()) : name(test_name), run(test_run), next(first_test) {
  first_test = this;
}

int main(int argc, char** argv) {
  int ran = 0;
  for (const Test* test = first_test; test != nullptr; test = test->next) {
    if (argc > 1 && std::strcmp(argv[1], test->name) != 0) continue;
    test->run();
    std::printf("%s: passed\n", test->name);
    ++ran;
  }
  CHECK(ran > 0, "no test is named %s", argc > 1 ? argv[1] : "anything");
  return 0;
}
