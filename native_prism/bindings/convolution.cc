#include "bindings.h"

void RegisterConvolution(py::module_&) {}
