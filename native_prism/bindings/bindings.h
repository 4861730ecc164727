// What the wrap files share. Arrays arrive checked by boundscope_prism (see _arrays.py): C-contiguous, of one
// dtype, sizes that fit; what is checked again here is what could corrupt memory.

#ifndef PRISM_BINDINGS_BINDINGS_H_
#define PRISM_BINDINGS_BINDINGS_H_

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <stdexcept>

#include "prism/prism.h"

namespace py = pybind11;

template <class T>
using Array = py::array_t<T, py::array::c_style>;

// (mode, precision, seed, sample, operation, threads), as boundscope_prism's Rounding has them.
inline prism::Rounding RoundingOf(const py::tuple& numbers) {
  if (numbers.size() != 6) throw std::invalid_argument("rounding: expected six numbers");
  const int mode = numbers[0].cast<int>();
  if (mode < 0 || mode > 3) throw std::invalid_argument("rounding: no such mode");
  prism::Rounding rounding;
  rounding.mode = static_cast<prism::Mode>(mode);
  rounding.precision = numbers[1].cast<int>();
  rounding.seed = numbers[2].cast<std::uint64_t>();
  rounding.sample = numbers[3].cast<std::uint64_t>();
  rounding.operation = numbers[4].cast<std::uint64_t>();
  rounding.threads = numbers[5].cast<int>();
  return rounding;
}

void RegisterElementwise(py::module_& module);
void RegisterReduce(py::module_& module);
void RegisterNormalize(py::module_& module);
void RegisterPool(py::module_& module);
void RegisterProduct(py::module_& module);
void RegisterConvolution(py::module_& module);

#endif  // PRISM_BINDINGS_BINDINGS_H_
