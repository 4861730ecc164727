#include "bindings.h"

void RegisterProduct(py::module_&) {}
