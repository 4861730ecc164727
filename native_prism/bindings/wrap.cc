// The Python module boundscope_prism._prism: one file here for each family of operations.

#include "bindings.h"

PYBIND11_MODULE(_prism, module) {
  module.def("targets", &prism::Targets);
  module.def("target", &prism::Target);
  RegisterElementwise(module);
  RegisterReduce(module);
  RegisterNormalize(module);
  RegisterPool(module);
  RegisterProduct(module);
  RegisterConvolution(module);
}
