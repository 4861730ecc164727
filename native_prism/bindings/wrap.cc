// The only file that knows Python. Arrays arrive checked (see boundscope_prism/_arrays.py); what is left here
// cannot corrupt memory.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>

#include "prism/prism.h"

namespace py = pybind11;

namespace {

using Array = py::array_t<float, py::array::c_style>;

// In part: an operand that is the sum itself is fine.
bool OverlapsInPart(const float* sum, const float* operand, std::size_t count) {
  const std::less<const float*> before;
  return sum != operand && before(sum, operand + count) && before(operand, sum + count);
}

// False, with nothing done, where the sum overlaps an operand in part.
bool Add(const Array& a, const Array& b, Array& sum, int mode, std::uint64_t seed, std::uint64_t sample,
         std::uint64_t operation, std::uint64_t first) {
  if (a.size() != sum.size() || b.size() != sum.size()) throw std::invalid_argument("sizes differ");
  if (mode < 0 || mode > 2) throw std::invalid_argument("no such mode");
  const float* a_data = a.data();
  const float* b_data = b.data();
  float* sum_data = sum.mutable_data();
  const auto count = static_cast<std::size_t>(sum.size());
  if (OverlapsInPart(sum_data, a_data, count) || OverlapsInPart(sum_data, b_data, count)) return false;
  const prism::Draw draw{seed, sample, operation};
  const py::gil_scoped_release release;
  prism::Add(a_data, b_data, sum_data, count, static_cast<prism::Mode>(mode), draw, first);
  return true;
}

}  // namespace

PYBIND11_MODULE(_prism, module) {
  module.def("add", &Add, py::arg("a").noconvert(), py::arg("b").noconvert(), py::arg("sum").noconvert(),
             py::arg("mode"), py::arg("seed"), py::arg("sample"), py::arg("operation"), py::arg("first"));
  module.def("targets", &prism::Targets);
  module.def("target", &prism::Target);
}
