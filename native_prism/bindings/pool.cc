#include "prism/pool.h"

#include <vector>

#include "bindings.h"

namespace {

// x is (planes, height, width), out (planes, outputs down, outputs across).
template <class T>
void AveragePool(const Array<T>& x, const prism::Windows& down, const prism::Windows& across,
                 const std::vector<std::int64_t>& divisors, Array<T>& out, std::uint64_t first_plane,
                 const py::tuple& rounding) {
  const auto outputs = static_cast<py::ssize_t>(down.begin.size() * across.begin.size());
  if (x.ndim() != 3 || out.ndim() != 3 || out.size() != x.shape(0) * outputs) {
    throw std::invalid_argument("sizes differ");
  }
  T* const to = out.mutable_data();
  const prism::Rounding numbers = RoundingOf(rounding);
  const py::gil_scoped_release release;
  prism::AveragePool(x.data(), x.shape(0), x.shape(1), x.shape(2), down, across, divisors, first_plane, to, numbers);
}

using Sizes = std::vector<std::int64_t>;

template <class T>
void Register(py::module_& module) {
  module.def(
      "average_pool",
      [](const Array<T>& x, const Sizes& down_begin, const Sizes& down_extent, const Sizes& across_begin,
         const Sizes& across_extent, const Sizes& divisors, Array<T>& out, std::uint64_t first_plane,
         const py::tuple& rounding) {
        AveragePool<T>(x, {down_begin, down_extent}, {across_begin, across_extent}, divisors, out, first_plane,
                       rounding);
      },
      py::arg("x").noconvert(), py::arg("down_begin"), py::arg("down_extent"), py::arg("across_begin"),
      py::arg("across_extent"), py::arg("divisors"), py::arg("out").noconvert(), py::arg("first_plane"),
      py::arg("rounding"));
}

}  // namespace

void RegisterPool(py::module_& module) {
  Register<float>(module);
  Register<double>(module);
}
