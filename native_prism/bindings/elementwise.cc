#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

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

constexpr std::size_t OperandCount(prism::Elementwise operation) {
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

void CheckOperands(int number, std::size_t count) {
  if (number < 0 || number > static_cast<int>(prism::Elementwise::kRound)) {
    throw std::invalid_argument("operation: no such element-wise operation");
  }
  if (count != OperandCount(static_cast<prism::Elementwise>(number))) {
    throw std::invalid_argument("operands: not as many as the operation has");
  }
}

template <class T>
void Apply(int number, const std::vector<Layout<T>>& layouts, Array<T> out, const py::tuple& numbers,
           std::uint64_t first) {
  CheckOperands(number, layouts.size());
  const prism::Rounding rounding = RoundingOf(numbers);
  prism::Operand<T> operands[3];
  for (std::size_t i = 0; i < layouts.size(); ++i) operands[i] = OperandOf(layouts[i], out.size());
  T* const to = out.mutable_data();
  const auto count = static_cast<std::size_t>(out.size());
  const py::gil_scoped_release released;
  prism::Apply(static_cast<prism::Elementwise>(number), operands[0], operands[1], operands[2], to, count, rounding, first);
}

// What an operation on arrays of one shape and type needs to know of each.
struct Memory {
  py::detail::PyArray_Proxy* array = nullptr;
  const char* begin = nullptr;
  py::ssize_t bytes = 0;

  bool Overlaps(const Memory& other) const {
    return begin < other.begin + other.bytes && other.begin < begin + bytes && begin != other.begin;
  }
};

// Whether `object` is a plain contiguous array of the type `descriptor`, and of the shape of `like` where that is given.
bool MemoryOf(py::handle object, const PyObject* descriptor, const Memory* like, Memory& memory) {
  const auto& api = py::detail::npy_api::get();
  if (Py_TYPE(object.ptr()) != api.PyArray_Type_) return false;
  memory.array = py::detail::array_proxy(object.ptr());
  constexpr int kNeeded = py::detail::npy_api::NPY_ARRAY_C_CONTIGUOUS_ | py::detail::npy_api::NPY_ARRAY_ALIGNED_;
  if (memory.array->descr != descriptor || (memory.array->flags & kNeeded) != kNeeded) return false;
  if (like != nullptr && (memory.array->nd != like->array->nd ||
                          !std::equal(memory.array->dimensions, memory.array->dimensions + memory.array->nd,
                                      like->array->dimensions))) {
    return false;
  }
  memory.begin = memory.array->data;
  memory.bytes = reinterpret_cast<const py::array*>(&object)->nbytes();
  return true;
}

template <class T>
py::object ApplyPlain(int number, const py::tuple& operands, const py::object& out, const prism::Rounding& rounding,
                      std::uint64_t first) {
  const py::dtype descriptor = py::dtype::of<T>();
  Memory memory[3];
  prism::Operand<T> layouts[3];
  const std::size_t operand_count = operands.size();
  for (std::size_t i = 0; i < operand_count; ++i) {
    if (!MemoryOf(operands[i], descriptor.ptr(), i == 0 ? nullptr : &memory[0], memory[i])) return py::none();
    layouts[i] = {reinterpret_cast<const T*>(memory[i].begin), 1, 1};
  }
  const auto count = static_cast<std::size_t>(memory[0].bytes) / sizeof(T);
  for (auto& layout : layouts) layout.period = std::max<std::size_t>(count, 1);
  py::object result = out;
  if (out.is_none()) {
    result = py::array(descriptor, std::vector<py::ssize_t>(memory[0].array->dimensions,
                                                           memory[0].array->dimensions + memory[0].array->nd));
  }
  Memory written;
  if (!MemoryOf(result, descriptor.ptr(), &memory[0], written)) return py::none();
  if ((written.array->flags & py::detail::npy_api::NPY_ARRAY_WRITEABLE_) == 0) return py::none();
  for (std::size_t i = 0; i < operand_count; ++i) {
    if (written.Overlaps(memory[i])) return py::none();
  }
  T* const to = reinterpret_cast<T*>(written.array->data);
  const py::gil_scoped_release released;
  prism::Apply(static_cast<prism::Elementwise>(number), layouts[0], layouts[1], layouts[2], to, count, rounding, first);
  return result;
}

// The whole operation where there is nothing to convert, broadcast or refuse: boundscope_prism does those, and calls
// `elementwise`, where this gives None.
py::object Plain(int number, const py::tuple& operands, const py::object& out, const py::tuple& numbers,
                 std::uint64_t first) {
  CheckOperands(number, operands.size());
  const prism::Rounding rounding = RoundingOf(numbers);
  if (rounding.precision <= 24) {
    py::object result = ApplyPlain<float>(number, operands, out, rounding, first);
    if (!result.is_none()) return result;
  }
  return ApplyPlain<double>(number, operands, out, rounding, first);
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
  module.def("elementwise_plain", &Plain, py::arg("operation"), py::arg("operands"), py::arg("out"),
             py::arg("rounding"), py::arg("first"));
  module.def("cast", &Cast, py::arg("x").noconvert(), py::arg("out").noconvert(), py::arg("rounding"),
             py::arg("first"));
}
