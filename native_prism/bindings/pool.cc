#include "bindings.h"

void RegisterPool(py::module_&) {}
