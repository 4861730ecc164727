#include "bindings.h"

void RegisterNormalize(py::module_&) {}
