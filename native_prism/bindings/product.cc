#include <optional>

#include "bindings.h"

namespace {

// Strides in elements; what boundscope_prism passes has strides of whole elements.
template <class T>
prism::Matrix<T> MatrixOf(const py::array_t<T>& array) {
  return {array.data(), array.strides(1) / static_cast<py::ssize_t>(sizeof(T)),
          array.strides(2) / static_cast<py::ssize_t>(sizeof(T))};
}

template <class T>
void Gemm(const py::array_t<T>& a, const py::array_t<T>& b, const std::optional<Array<T>>& bias,
          const std::optional<py::array_t<T>>& c, Array<T>& out, T alpha, T beta, std::uint64_t first_row,
          const py::tuple& rounding) {
  if (a.ndim() != 3 || b.ndim() != 3 || out.ndim() != 3) throw std::invalid_argument("expected three axes");
  prism::GemmArguments<T> arguments;
  arguments.batches = out.shape(0);
  arguments.rows = out.shape(1);
  arguments.columns = out.shape(2);
  arguments.depth = a.shape(2);
  const auto fits = [&](const py::array& x, py::ssize_t rows, py::ssize_t columns) {
    return x.shape(0) == out.shape(0) && x.shape(1) == rows && x.shape(2) == columns;
  };
  if (!fits(a, arguments.rows, arguments.depth) || !fits(b, arguments.depth, arguments.columns) ||
      (c && (c->ndim() != 3 || !fits(*c, arguments.rows, arguments.columns))) ||
      (bias && bias->size() != arguments.columns)) {
    throw std::invalid_argument("sizes differ");
  }
  arguments.a = MatrixOf(a);
  arguments.b = MatrixOf(b);
  arguments.a_batch = a.strides(0) / static_cast<py::ssize_t>(sizeof(T));
  arguments.b_batch = b.strides(0) / static_cast<py::ssize_t>(sizeof(T));
  if (bias) arguments.bias = bias->data();
  if (c) {
    arguments.c = MatrixOf(*c);
    arguments.c_batch = c->strides(0) / static_cast<py::ssize_t>(sizeof(T));
  }
  arguments.alpha = alpha;
  arguments.beta = beta;
  arguments.out = out.mutable_data();
  arguments.first_row = first_row;
  const prism::Rounding numbers = RoundingOf(rounding);
  const py::gil_scoped_release release;
  prism::Gemm(arguments, numbers);
}

template <class T>
void Register(py::module_& module) {
  module.def("gemm", &Gemm<T>, py::arg("a").noconvert(), py::arg("b").noconvert(), py::arg("bias").noconvert(),
             py::arg("c").noconvert(), py::arg("out").noconvert(), py::arg("alpha"), py::arg("beta"),
             py::arg("first_row"), py::arg("rounding"));
}

}  // namespace

void RegisterProduct(py::module_& module) {
  Register<float>(module);
  Register<double>(module);
}
