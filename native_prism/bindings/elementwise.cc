#include "bindings.h"

namespace {

// (values, inner), as boundscope_prism.elementwise makes them.
template <class T>
using Layout = std::pair<Array<T>, std::int64_t>;

template <class T>
prism::Operand<T> OperandOf(const Layout<T>& layout, py::ssize_t count) {
  if (layout.first.size() < 1 && count > 0) throw std::invalid_argument("operand: expected at least one value");
  if (layout.second < 1) throw std::invalid_argument("operand: expected an inner size of at least 1");
  return {layout.first.data(), static_cast<std::size_t>(layout.second),
          static_cast<std::size_t>(layout.first.size())};
}

constexpr int OperandCount(prism::Elementwise operation) {
  switch (operation) {
    case prism::Elementwise::kSqrt:
    case prism::Elementwise::kRound:
      return 1;
    case prism::Elementwise::kFma:
      return 3;
    default:
      return 2;
  }
}

template <class T>
void Apply(int number, const std::vector<Layout<T>>& layouts, Array<T> out, const py::tuple& numbers,
           std::uint64_t first) {
  if (number < 0 || number > static_cast<int>(prism::Elementwise::kRound)) {
    throw std::invalid_argument("operation: no such element-wise operation");
  }
  const auto operation = static_cast<prism::Elementwise>(number);
  if (static_cast<int>(layouts.size()) != OperandCount(operation)) {
    throw std::invalid_argument("operands: not as many as the operation has");
  }
  const prism::Rounding rounding = RoundingOf(numbers);
  prism::Operand<T> operands[3];
  for (std::size_t i = 0; i < layouts.size(); ++i) operands[i] = OperandOf(layouts[i], out.size());
  T* const to = out.mutable_data();
  const auto count = static_cast<std::size_t>(out.size());
  const py::gil_scoped_release released;
  prism::Apply(operation, operands[0], operands[1], operands[2], to, count, rounding, first);
}

void Cast(const Array<double>& x, Array<float> out, const py::tuple& numbers, std::uint64_t first) {
  if (x.size() != out.size()) throw std::invalid_argument("out: expected the size of x");
  const prism::Rounding rounding = RoundingOf(numbers);
  const double* const from = x.data();
  float* const to = out.mutable_data();
  const auto count = static_cast<std::size_t>(out.size());
  const py::gil_scoped_release released;
  prism::Cast(from, to, count, rounding, first);
}

template <class T>
void RegisterFor(py::module_& module) {
  module.def("elementwise", &Apply<T>, py::arg("operation"), py::arg("operands").noconvert(), py::arg("out").noconvert(),
             py::arg("rounding"), py::arg("first"));
}

}  // namespace

void RegisterElementwise(py::module_& module) {
  RegisterFor<float>(module);
  RegisterFor<double>(module);
  module.def("cast", &Cast, py::arg("x").noconvert(), py::arg("out").noconvert(), py::arg("rounding"),
             py::arg("first"));
}
