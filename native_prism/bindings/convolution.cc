#include <array>
#include <optional>

#include "bindings.h"

namespace {

using Axes = prism::Convolution::Axes;

std::int64_t Volume(const Axes& axes) { return axes[0] * axes[1] * axes[2]; }

// `axes` are input, kernel, stride, dilation, pad before and after, output padding, each of depth, height and width.
template <class T>
void Convolve(const Array<T>& x, const Array<T>& weight, const std::optional<Array<T>>& bias, Array<T>& out,
              const std::array<Axes, 7>& axes, std::int64_t groups, bool transposed, std::uint64_t first_image,
              const py::tuple& rounding) {
  if (x.ndim() < 2 || weight.ndim() < 2 || out.ndim() < 2) throw std::invalid_argument("expected two axes or more");
  prism::Convolution c;
  c.images = x.shape(0);
  c.in_channels = x.shape(1);
  c.out_channels = out.shape(1);
  c.groups = groups;
  c.input = axes[0];
  c.kernel = axes[1];
  c.stride = axes[2];
  c.dilation = axes[3];
  c.pad_before = axes[4];
  c.pad_after = axes[5];
  c.output_padding = axes[6];
  c.transposed = transposed;
  c.first_image = first_image;
  const Axes output = c.OutputSize();
  if (x.size() != c.images * c.in_channels * Volume(c.input) ||
      weight.size() != c.out_channels * (c.in_channels / c.groups) * Volume(c.kernel) ||
      out.size() != c.images * c.out_channels * Volume(output) || (bias && bias->size() != c.out_channels)) {
    throw std::invalid_argument("sizes differ");
  }
  T* const to = out.mutable_data();
  const prism::Rounding numbers = RoundingOf(rounding);
  const py::gil_scoped_release release;
  prism::Convolve<T>(c, x.data(), weight.data(), bias ? bias->data() : nullptr, to, numbers);
}

template <class T>
void Register(py::module_& module) {
  module.def("convolution", &Convolve<T>, py::arg("x").noconvert(), py::arg("weight").noconvert(),
             py::arg("bias").noconvert(), py::arg("out").noconvert(), py::arg("axes"), py::arg("groups"),
             py::arg("transposed"), py::arg("first_image"), py::arg("rounding"));
}

}  // namespace

void RegisterConvolution(py::module_& module) {
  Register<float>(module);
  Register<double>(module);
}
