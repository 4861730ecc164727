// Every function on arrays with small shapes and any values: nothing outside of an array is touched, every target and any
// number of threads give the same bits, and an element-wise result is what exact.h says.

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "exact.h"
#include "input.h"
#include "prism/prism.h"
#include "stream.h"

namespace {

template <class T>
constexpr int kPrecision = sizeof(T) == 4 ? 24 : 53;

[[noreturn]] void Fail(const char* what, const std::string& target, std::size_t place) {
  std::fprintf(stderr, "%s on %s at element %zu\n", what, target.c_str(), place);
  std::abort();
}

// What `run` writes to `count` elements must be the same on every target, and with one thread.
template <class T>
std::vector<T> OnEveryTarget(std::size_t count, const prism::Rounding& rounding,
                             const std::function<void(T*, const prism::Rounding&)>& run) {
  std::vector<T> first;
  for (const std::string& target : prism::Targets()) {
    prism::SetTarget(target);
    std::unique_ptr<T[]> out(new T[count]);
    prism::Rounding here = rounding;
    if (!first.empty()) here.threads = 1;
    run(out.get(), here);
    if (first.empty()) {
      first.assign(out.get(), out.get() + count);
      continue;
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (std::memcmp(&first[i], &out[i], sizeof(T)) != 0) Fail("another result", target, i);
    }
  }
  return first;
}

prism::Exact ExactOf(prism::Elementwise operation, double a, double b, double c) {
  switch (operation) {
    case prism::Elementwise::kAdd:
      return prism::ExactAdd(a, b);
    case prism::Elementwise::kSubtract:
      return prism::ExactAdd(a, -b);
    case prism::Elementwise::kMultiply:
      return prism::ExactMultiply(a, b);
    case prism::Elementwise::kDivide:
      return prism::ExactDivide(a, b);
    case prism::Elementwise::kSqrt:
      return prism::ExactSqrt(a);
    case prism::Elementwise::kFma:
      return prism::ExactMultiplyAdd(a, b, c);
    case prism::Elementwise::kRound:
      return prism::ExactValue(a);
  }
  std::abort();
}

prism::Random Draw(const prism::Rounding& rounding, std::uint64_t element) {
  const std::uint64_t step = element / prism::kGroup;
  const int lane = static_cast<int>(element % prism::kGroup);
  const bool words = rounding.mode == prism::Mode::kStochastic;
  const auto tile = prism::ScalarTile(prism::MakeStream(rounding), words ? step : step / prism::kStepsPerBitTile);
  return {prism::LaneWord(tile, lane), prism::LaneBits29(tile, lane), prism::LaneBit(tile, lane, step)};
}

template <class T>
void CheckElement(const prism::Exact& exact, const prism::Format& format, const prism::Rounding& rounding,
                  std::uint64_t element, T got, std::size_t place) {
  const T want = static_cast<T>(prism::Round(exact, format, rounding.mode, Draw(rounding, element)));
  if (want != want ? got == got : std::memcmp(&want, &got, sizeof want) != 0) Fail("not what exact.h says", "all", place);
}

template <class T>
prism::Operand<T> AnyOperand(Input& input, std::size_t count, std::unique_ptr<T[]>& memory) {
  prism::Operand<T> operand;
  operand.inner = static_cast<std::size_t>(input.Number(1, 20));
  operand.period = static_cast<std::size_t>(input.Number(1, 40));
  if (input.Flag()) {
    operand.inner = 1;
    operand.period = std::max<std::size_t>(count, 1);
  }
  memory = input.Array<T>(operand.period);
  operand.data = memory.get();
  return operand;
}

template <class T>
void FuzzElementwise(Input& input) {
  const auto operation = static_cast<prism::Elementwise>(input.Number(0, 6));
  const prism::Rounding rounding = input.Rounding(kPrecision<T>);
  const auto count = static_cast<std::size_t>(input.Number(0, 70));
  const std::uint64_t first = input.Next<std::uint32_t>() >> (input.Flag() ? 0 : 22);
  std::unique_ptr<T[]> memory[3];
  prism::Operand<T> operands[3];
  for (int i = 0; i < 3; ++i) operands[i] = AnyOperand(input, count, memory[i]);
  const auto out = OnEveryTarget<T>(count, rounding, [&](T* to, const prism::Rounding& here) {
    prism::Apply(operation, operands[0], operands[1], operands[2], to, count, here, first);
  });
  const prism::Format format =
      sizeof(T) == 4 ? prism::Float32Format(rounding.precision) : prism::Float64Format(rounding.precision);
  for (std::size_t i = 0; i < count; ++i) {
    double values[3];
    for (int k = 0; k < 3; ++k) values[k] = operands[k].data[i / operands[k].inner % operands[k].period];
    CheckElement(ExactOf(operation, values[0], values[1], values[2]), format, rounding, first + i, out[i], i);
  }
}

void FuzzCast(Input& input) {
  const prism::Rounding rounding = input.Rounding(24);
  const auto count = static_cast<std::size_t>(input.Number(0, 70));
  const std::uint64_t first = input.Next<std::uint16_t>();
  const auto x = input.Array<double>(count);
  const auto out = OnEveryTarget<float>(count, rounding, [&](float* to, const prism::Rounding& here) {
    prism::Cast(x.get(), to, count, here, first);
  });
  for (std::size_t i = 0; i < count; ++i) {
    CheckElement(prism::ExactValue(x[i]), prism::Float32Format(rounding.precision), rounding, first + i, out[i], i);
  }
}

// A matrix of rows x columns in memory, either way up, with gaps between its lines.
template <class T>
prism::Matrix<T> AnyMatrix(Input& input, std::int64_t batches, std::int64_t rows, std::int64_t columns,
                           std::unique_ptr<T[]>& memory, std::int64_t& batch) {
  const bool transposed = input.Flag();
  const std::int64_t lines = transposed ? columns : rows;
  const std::int64_t stride = (transposed ? rows : columns) + input.Number(0, 3);
  batch = input.Flag() ? 0 : lines * stride;
  memory = input.Array<T>(static_cast<std::size_t>(batch * (batches - 1) + lines * stride));
  return {memory.get(), transposed ? 1 : stride, transposed ? stride : 1};
}

template <class T>
void FuzzGemm(Input& input) {
  const prism::Rounding rounding = input.Rounding(kPrecision<T>);
  prism::GemmArguments<T> arguments;
  arguments.batches = input.Number(1, 3);
  arguments.rows = input.Number(0, 20);
  arguments.columns = input.Number(0, 40);
  arguments.depth = input.Number(0, 40);
  std::unique_ptr<T[]> a, b, c, bias;
  arguments.a = AnyMatrix(input, arguments.batches, arguments.rows, arguments.depth, a, arguments.a_batch);
  arguments.b = AnyMatrix(input, arguments.batches, arguments.depth, arguments.columns, b, arguments.b_batch);
  const std::int64_t start = input.Number(0, 2);
  if (start == 1) {
    bias = input.Array<T>(static_cast<std::size_t>(arguments.columns));
    arguments.bias = bias.get();
  } else if (start == 2) {
    arguments.c = AnyMatrix(input, arguments.batches, arguments.rows, arguments.columns, c, arguments.c_batch);
    if (input.Flag()) arguments.beta = input.Array<T>(1)[0];
  }
  if (input.Flag()) arguments.alpha = input.Array<T>(1)[0];
  arguments.first_row = input.Next<std::uint16_t>();
  const auto count = static_cast<std::size_t>(arguments.batches * arguments.rows * arguments.columns);
  OnEveryTarget<T>(count, rounding, [&](T* to, const prism::Rounding& here) {
    prism::GemmArguments<T> now = arguments;
    now.out = to;
    prism::Gemm(now, here);
  });
}

template <class T>
void FuzzConvolution(Input& input) {
  const prism::Rounding rounding = input.Rounding(kPrecision<T>);
  prism::Convolution convolution;
  convolution.images = input.Number(0, 2);
  convolution.groups = input.Number(1, 3);
  convolution.in_channels = convolution.groups * input.Number(1, 3);
  convolution.out_channels = convolution.groups * input.Number(1, 6);
  convolution.transposed = input.Flag();
  convolution.first_image = input.Next<std::uint8_t>();
  const auto axes = static_cast<std::size_t>(input.Number(1, 3));
  for (std::size_t axis = 3 - axes; axis < 3; ++axis) {
    convolution.input[axis] = input.Number(1, axes == 3 ? 4 : 9);
    convolution.kernel[axis] = input.Number(1, 3);
    convolution.stride[axis] = input.Number(1, 3);
    convolution.dilation[axis] = input.Number(1, 2);
    convolution.pad_before[axis] = input.Number(0, 2);
    convolution.pad_after[axis] = input.Number(0, 2);
    if (convolution.transposed) convolution.output_padding[axis] = input.Number(0, 2);
  }
  const prism::Convolution::Axes size = convolution.OutputSize();
  const auto product = [](const prism::Convolution::Axes& n) { return static_cast<std::size_t>(n[0] * n[1] * n[2]); };
  const auto in = static_cast<std::size_t>(convolution.in_channels), out = static_cast<std::size_t>(convolution.out_channels);
  const auto images = static_cast<std::size_t>(convolution.images);
  const auto x = input.Array<T>(images * in * product(convolution.input));
  const auto weight = input.Array<T>(in * out / static_cast<std::size_t>(convolution.groups) * product(convolution.kernel));
  const auto bias = input.Array<T>(out);
  const bool has_bias = input.Flag();
  OnEveryTarget<T>(images * out * product(size), rounding, [&](T* to, const prism::Rounding& here) {
    prism::Convolve(convolution, x.get(), weight.get(), has_bias ? bias.get() : nullptr, to, here);
  });
}

struct Rows {
  std::int64_t rows;
  std::int64_t columns;
  std::uint64_t first;
  std::size_t size() const { return static_cast<std::size_t>(rows * columns); }
};

Rows AnyRows(Input& input) { return {input.Number(0, 6), input.Number(0, 70), input.Next<std::uint16_t>()}; }

template <class T>
void FuzzReduction(Input& input) {
  const prism::Rounding rounding = input.Rounding(kPrecision<T>);
  const std::int64_t kind = input.Number(0, 3);
  const auto order = input.Flag() ? prism::Order::kLanes : prism::Order::kSequential;
  const Rows n = AnyRows(input);
  const double correction = static_cast<double>(input.Number(0, 4)) / 2;
  const auto x = input.Array<T>(n.size());
  const auto y = input.Array<T>(kind == 1 ? n.size() : 0);
  const auto rows = static_cast<std::size_t>(n.rows);
  OnEveryTarget<T>(rows, rounding, [&](T* to, const prism::Rounding& here) {
    std::unique_ptr<T[]> mean(new T[rows]);
    if (kind == 0) prism::Sum(x.get(), n.rows, n.columns, order, n.first, to, here);
    if (kind == 1) prism::Dot(x.get(), y.get(), n.rows, n.columns, order, n.first, to, here);
    if (kind == 2) prism::Mean(x.get(), n.rows, n.columns, order, n.first, to, here);
    if (kind == 3) prism::Variance(x.get(), n.rows, n.columns, correction, order, n.first, to, mean.get(), here);
  });
}

template <class T>
void FuzzNormalization(Input& input) {
  const prism::Rounding rounding = input.Rounding(kPrecision<T>);
  const std::int64_t kind = input.Number(0, 3);
  const Rows n = AnyRows(input);
  const T epsilon = input.Flag() ? T{1e-5} : input.Array<T>(1)[0];
  const std::int64_t lines = n.rows > 0 && n.rows % 2 == 0 ? 2 : 1;
  const auto x = input.Array<T>(n.size());
  const auto weight = input.Array<T>(static_cast<std::size_t>(lines * std::max(n.rows, n.columns)));
  const auto bias = input.Array<T>(static_cast<std::size_t>(lines * std::max(n.rows, n.columns)));
  const prism::Affine<T> affine{input.Flag() ? weight.get() : nullptr, input.Flag() ? bias.get() : nullptr, lines};
  const auto moments = input.Array<T>(static_cast<std::size_t>(2 * n.rows));
  OnEveryTarget<T>(n.size(), rounding, [&](T* to, const prism::Rounding& here) {
    const auto rows = static_cast<std::size_t>(n.rows);
    std::unique_ptr<T[]> mean(new T[rows]), inverse(new T[rows]);
    if (kind == 0) prism::Softmax(x.get(), n.rows, n.columns, n.first, to, here);
    if (kind == 1) prism::LogSoftmax(x.get(), n.rows, n.columns, n.first, to, here);
    if (kind == 2) {
      prism::NormalizeRows(x.get(), n.rows, n.columns, affine, epsilon, n.first, to, mean.get(), inverse.get(), here);
    }
    if (kind == 3) {
      const prism::Affine<T> of_channels{affine.weight, affine.bias, 1};
      prism::NormalizeChannels(x.get(), std::int64_t{1}, n.rows, n.columns, moments.get(), moments.get() + n.rows,
                               of_channels, epsilon, n.first, to, here);
    }
  });
}

prism::Windows AnyWindows(Input& input, std::int64_t size) {
  prism::Windows windows;
  for (std::int64_t i = input.Number(1, 6); i > 0; --i) {
    windows.begin.push_back(input.Number(0, size + 2) - 2);
    windows.extent.push_back(input.Number(1, 5));
  }
  return windows;
}

template <class T>
void FuzzPool(Input& input) {
  const prism::Rounding rounding = input.Rounding(kPrecision<T>);
  const std::int64_t planes = input.Number(0, 3), height = input.Number(1, 9), width = input.Number(1, 9);
  const std::uint64_t first = input.Next<std::uint16_t>();
  const prism::Windows down = AnyWindows(input, height), across = AnyWindows(input, width);
  const std::size_t outputs = down.begin.size() * across.begin.size();
  std::vector<std::int64_t> divisors(outputs);
  for (std::int64_t& divisor : divisors) divisor = input.Number(1, 30);
  const auto x = input.Array<T>(static_cast<std::size_t>(planes * height * width));
  OnEveryTarget<T>(static_cast<std::size_t>(planes) * outputs, rounding, [&](T* to, const prism::Rounding& here) {
    prism::AveragePool(x.get(), planes, height, width, down, across, divisors, first, to, here);
  });
}

template <class T>
void FuzzOne(Input& input) {
  switch (input.Number(0, 5)) {
    case 0:
      return FuzzElementwise<T>(input);
    case 1:
      return FuzzGemm<T>(input);
    case 2:
      return FuzzConvolution<T>(input);
    case 3:
      return FuzzReduction<T>(input);
    case 4:
      return FuzzNormalization<T>(input);
    default:
      return FuzzPool<T>(input);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  try {
    const std::int64_t kind = input.Number(0, 4);
    if (kind == 0) {
      FuzzCast(input);
    } else if (kind < 3) {
      FuzzOne<float>(input);
    } else {
      FuzzOne<double>(input);
    }
  } catch (const std::invalid_argument&) {
    return -1;  // refused as it should be, and not worth keeping
  }
  return 0;
}
