#include "prism/normalize.h"

#include <optional>

#include "bindings.h"

namespace {

template <class T>
prism::Affine<T> AffineOf(const std::optional<Array<T>>& weight, const std::optional<Array<T>>& bias,
                          py::ssize_t columns) {
  prism::Affine<T> affine;
  py::ssize_t size = columns;
  if (weight) size = weight->size();
  if (weight && bias && weight->size() != bias->size()) throw std::invalid_argument("sizes differ");
  if (!weight && bias) size = bias->size();
  if (columns == 0 || size == 0 || size % columns != 0) throw std::invalid_argument("sizes differ");
  affine.lines = size / columns;
  affine.weight = weight ? weight->data() : nullptr;
  affine.bias = bias ? bias->data() : nullptr;
  return affine;
}

// x and out are (rows, columns), weight and bias (lines, columns), mean and inverse have an element for each row.
template <class T>
void NormalizeRows(const Array<T>& x, const std::optional<Array<T>>& weight, const std::optional<Array<T>>& bias,
                   T epsilon, Array<T>& out, std::optional<Array<T>>& mean, std::optional<Array<T>>& inverse,
                   std::uint64_t first_row, const py::tuple& rounding) {
  if (x.ndim() != 2 || out.size() != x.size() || (mean && mean->size() != x.shape(0)) ||
      (inverse && inverse->size() != x.shape(0))) {
    throw std::invalid_argument("sizes differ");
  }
  const prism::Affine<T> affine = AffineOf(weight, bias, x.shape(1));
  T* const mean_to = mean ? mean->mutable_data() : nullptr;
  T* const inverse_to = inverse ? inverse->mutable_data() : nullptr;
  T* const to = out.mutable_data();
  const prism::Rounding numbers = RoundingOf(rounding);
  const py::gil_scoped_release release;
  prism::NormalizeRows(x.data(), x.shape(0), x.shape(1), affine, epsilon, first_row, to, mean_to, inverse_to, numbers);
}

// x and out are (batch, channels, length), the others have an element for each channel.
template <class T>
void NormalizeChannels(const Array<T>& x, const Array<T>& mean, const Array<T>& variance,
                       const std::optional<Array<T>>& weight, const std::optional<Array<T>>& bias, T epsilon,
                       Array<T>& out, std::uint64_t first_batch, const py::tuple& rounding) {
  if (x.ndim() != 3 || out.size() != x.size() || mean.size() != x.shape(1) || variance.size() != x.shape(1)) {
    throw std::invalid_argument("sizes differ");
  }
  const prism::Affine<T> affine = AffineOf(weight, bias, x.shape(1));
  if (affine.lines != 1) throw std::invalid_argument("sizes differ");
  T* const to = out.mutable_data();
  const prism::Rounding numbers = RoundingOf(rounding);
  const py::gil_scoped_release release;
  prism::NormalizeChannels(x.data(), x.shape(0), x.shape(1), x.shape(2), mean.data(), variance.data(), affine, epsilon,
                           first_batch, to, numbers);
}

template <class T>
void Softmax(const Array<T>& x, bool logarithm, Array<T>& out, std::uint64_t first_row, const py::tuple& rounding) {
  if (x.ndim() != 2 || out.size() != x.size()) throw std::invalid_argument("sizes differ");
  T* const to = out.mutable_data();
  const prism::Rounding numbers = RoundingOf(rounding);
  const py::gil_scoped_release release;
  if (logarithm) {
    prism::LogSoftmax(x.data(), x.shape(0), x.shape(1), first_row, to, numbers);
  } else {
    prism::Softmax(x.data(), x.shape(0), x.shape(1), first_row, to, numbers);
  }
}

template <class T>
void Register(py::module_& module) {
  module.def("normalize_rows", &NormalizeRows<T>, py::arg("x").noconvert(), py::arg("weight").noconvert(),
             py::arg("bias").noconvert(), py::arg("epsilon"), py::arg("out").noconvert(), py::arg("mean").noconvert(),
             py::arg("inverse").noconvert(), py::arg("first_row"), py::arg("rounding"));
  module.def("normalize_channels", &NormalizeChannels<T>, py::arg("x").noconvert(), py::arg("mean").noconvert(),
             py::arg("variance").noconvert(), py::arg("weight").noconvert(), py::arg("bias").noconvert(),
             py::arg("epsilon"), py::arg("out").noconvert(), py::arg("first_batch"), py::arg("rounding"));
  module.def("softmax", &Softmax<T>, py::arg("x").noconvert(), py::arg("logarithm"), py::arg("out").noconvert(),
             py::arg("first_row"), py::arg("rounding"));
}

}  // namespace

void RegisterNormalize(py::module_& module) {
  Register<float>(module);
  Register<double>(module);
}
