#include "prism/reduce.h"

#include <optional>
#include <string>

#include "bindings.h"

namespace {

// `a` and `b` are (rows, columns), `out` and `mean` have an element for each row. `b` is for "dot", `mean` for
// "variance".
template <class T>
void Reduce(const std::string& name, const Array<T>& a, const std::optional<Array<T>>& b, double correction,
            bool sequential, Array<T>& out, std::optional<Array<T>>& mean, std::uint64_t first_row,
            const py::tuple& rounding) {
  if (a.ndim() != 2 || out.size() != a.shape(0) || (mean && mean->size() != a.shape(0)) ||
      (b && (b->ndim() != 2 || b->shape(0) != a.shape(0) || b->shape(1) != a.shape(1)))) {
    throw std::invalid_argument("sizes differ");
  }
  const py::ssize_t rows = a.shape(0);
  const py::ssize_t columns = a.shape(1);
  const auto order = sequential ? prism::Order::kSequential : prism::Order::kLanes;
  const T* const x = a.data();
  const T* const y = b ? b->data() : nullptr;
  T* const to = out.mutable_data();
  T* const mean_to = mean ? mean->mutable_data() : nullptr;
  const prism::Rounding numbers = RoundingOf(rounding);
  const py::gil_scoped_release release;
  if (name == "sum") {
    prism::Sum(x, rows, columns, order, first_row, to, numbers);
  } else if (name == "dot" && y != nullptr) {
    prism::Dot(x, y, rows, columns, order, first_row, to, numbers);
  } else if (name == "mean") {
    prism::Mean(x, rows, columns, order, first_row, to, numbers);
  } else if (name == "variance") {
    prism::Variance(x, rows, columns, correction, order, first_row, to, mean_to, numbers);
  } else {
    throw std::invalid_argument("no such reduction");
  }
}

template <class T>
void Register(py::module_& module) {
  module.def("reduce", &Reduce<T>, py::arg("name"), py::arg("a").noconvert(), py::arg("b").noconvert(),
             py::arg("correction"), py::arg("sequential"), py::arg("out").noconvert(), py::arg("mean").noconvert(),
             py::arg("first_row"), py::arg("rounding"));
}

}  // namespace

void RegisterReduce(py::module_& module) {
  Register<float>(module);
  Register<double>(module);
}
