#include "bindings.h"

void RegisterReduce(py::module_&) {}
