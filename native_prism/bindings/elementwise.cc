#include "bindings.h"

void RegisterElementwise(py::module_&) {}
