#include "elementwise.h"

#include "config.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elementwise.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "elementwise-inl.h"
#include "elementwise-wide-inl.h"
#include "elementwise_operand.h"
#include "prism/prism.h"
#include "rounding_check.h"
#include "targets.h"
#include "threads.h"

HWY_BEFORE_NAMESPACE();
namespace prism {
namespace HWY_NAMESPACE {

// Part of a group, through copies that are padded to a whole one.
template <class Operation, class Kernel, class In, class Out>
void PartOfGroup(const Kernel& kernel, std::uint64_t element, const Operands<In>& in, Out* out, std::size_t count) {
  const std::size_t skip = static_cast<std::size_t>(element % kGroup);
  const In* const from[] = {in.a, in.b, in.c};
  In padded[3][kGroup];
  for (int operand = 0; operand < Operation::kOperands; ++operand) {
    std::fill_n(padded[operand], kGroup, In{1});
    std::copy_n(from[operand], count, padded[operand] + skip);
  }
  Out result[kGroup];
  kernel.Groups(element / kGroup, {padded[0], padded[1], padded[2]}, result, 1);
  std::copy_n(result + skip, count, out);
}

// Elements begin to end of a call.
template <class Operation, class Kernel, class In, class Out>
void RunKernel(const ElementwiseCall<In, Out>& call, std::size_t begin, std::size_t end) {
  const Kernel kernel(call.rounding);
  OperandReader<In> a(call.operands[0], call.count);
  OperandReader<In> b(call.operands[Operation::kOperands > 1 ? 1 : 0], call.count);
  OperandReader<In> c(call.operands[Operation::kOperands > 2 ? 2 : 0], call.count);
  const std::size_t longest = std::min({a.Longest(), b.Longest(), c.Longest()});
  for (std::size_t i = begin; i < end;) {
    const std::uint64_t element = call.first + i;
    const std::size_t skip = static_cast<std::size_t>(element % kGroup);
    const bool whole = skip == 0 && end - i >= kGroup;
    const std::size_t now = whole ? std::min(longest, end - i) / kGroup * kGroup : std::min(kGroup - skip, end - i);
    const In* const at = a.At(i, now);
    const Operands<In> in{at, Operation::kOperands > 1 ? b.At(i, now) : at,
                          Operation::kOperands > 2 ? c.At(i, now) : at};
    if (whole) {
      kernel.Groups(element / kGroup, in, call.out + i, now / kGroup);
    } else {
      PartOfGroup<Operation>(kernel, element, in, call.out + i, now);
    }
    i += now;
  }
}

template <class Operation, class In>
void RunOperation(const ElementwiseCall<In, float>& call, std::size_t begin, std::size_t end) {
  constexpr bool kCast = sizeof(In) != sizeof(float);
  constexpr bool kStays = std::is_same_v<Operation, RoundOperation> && !kCast;
  const bool full = call.rounding.precision == 0 || call.rounding.precision == 24;
  switch (call.rounding.mode) {
    case Mode::kNearest:
      if constexpr (!kCast) {
        if (full) return RunKernel<Operation, NearestKernel<Operation, float>>(call, begin, end);
      }
      return RunKernel<Operation, NarrowKernel<Operation, In, Mode::kNearest>>(call, begin, end);
    case Mode::kStochastic:
      if constexpr (kStays) {
        if (full) return RunKernel<Operation, NearestKernel<Operation, float>>(call, begin, end);
      } else {
        if (full) return RunKernel<Operation, StochasticKernel<Operation, In>>(call, begin, end);
      }
      return RunKernel<Operation, NarrowKernel<Operation, In, Mode::kStochastic>>(call, begin, end);
    case Mode::kUpDown:
      if constexpr (!kCast) {
        if (full) return RunKernel<Operation, UpDownKernel<Operation, float>>(call, begin, end);
      }
      return RunKernel<Operation, NarrowKernel<Operation, In, Mode::kUpDown>>(call, begin, end);
    case Mode::kRandom:
      if constexpr (kStays) {
        if (full) return RunKernel<Operation, NearestKernel<Operation, float>>(call, begin, end);
      }
      return RunKernel<Operation, NarrowKernel<Operation, In, Mode::kRandom>>(call, begin, end);
  }
}

template <class Operation, class In>
void RunOperation(const ElementwiseCall<In, double>& call, std::size_t begin, std::size_t end) {
  constexpr bool kStays = std::is_same_v<Operation, RoundOperation>;
  const bool full = call.rounding.precision == 0 || call.rounding.precision == 53;
  if (full) {
    if (call.rounding.mode == Mode::kNearest || (kStays && call.rounding.mode != Mode::kUpDown)) {
      return RunKernel<Operation, NearestKernel<Operation, double>>(call, begin, end);
    }
    if (call.rounding.mode == Mode::kUpDown) {
      return RunKernel<Operation, UpDownKernel<Operation, double>>(call, begin, end);
    }
  }
  switch (call.rounding.mode) {
    case Mode::kNearest:
      return RunKernel<Operation, WideKernel<Operation, Mode::kNearest>>(call, begin, end);
    case Mode::kStochastic:
      return RunKernel<Operation, WideKernel<Operation, Mode::kStochastic>>(call, begin, end);
    case Mode::kUpDown:
      return RunKernel<Operation, WideKernel<Operation, Mode::kUpDown>>(call, begin, end);
    case Mode::kRandom:
      return RunKernel<Operation, WideKernel<Operation, Mode::kRandom>>(call, begin, end);
  }
}

template <class T>
void RunAny(const ElementwiseCall<T, T>& call, std::size_t begin, std::size_t end) {
  switch (call.operation) {
    case Elementwise::kAdd:
      return RunOperation<AddOperation>(call, begin, end);
    case Elementwise::kSubtract:
      return RunOperation<SubtractOperation>(call, begin, end);
    case Elementwise::kMultiply:
      return RunOperation<MultiplyOperation>(call, begin, end);
    case Elementwise::kDivide:
      return RunOperation<DivideOperation>(call, begin, end);
    case Elementwise::kSqrt:
      return RunOperation<SqrtOperation>(call, begin, end);
    case Elementwise::kFma:
      return RunOperation<FmaOperation>(call, begin, end);
    case Elementwise::kRound:
      return RunOperation<RoundOperation>(call, begin, end);
  }
}

void RunFloat(const ElementwiseCall<float, float>& call, std::size_t begin, std::size_t end) {
  RunAny(call, begin, end);
}

void RunDouble(const ElementwiseCall<double, double>& call, std::size_t begin, std::size_t end) {
  RunAny(call, begin, end);
}

void RunCast(const ElementwiseCall<double, float>& call, std::size_t begin, std::size_t end) {
  RunOperation<RoundOperation>(call, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace prism
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace prism {
namespace {

HWY_EXPORT(RunFloat);
HWY_EXPORT(RunDouble);
HWY_EXPORT(RunCast);

// Less than this is not worth another thread.
constexpr std::int64_t kGrain = 64 * 1024;

template <class Run, class In, class Out>
void InPieces(Run run, const ElementwiseCall<In, Out>& call) {
  ParallelFor(static_cast<std::int64_t>(call.count), kGrain, call.rounding.threads,
              [&](std::int64_t begin, std::int64_t end) {
                run(call, static_cast<std::size_t>(begin), static_cast<std::size_t>(end));
              });
}

}  // namespace

void Apply(Elementwise operation, const Operand<float>& a, const Operand<float>& b, const Operand<float>& c,
           float* out, std::size_t count, const Rounding& rounding, std::uint64_t first) {
  CheckRounding(rounding, 24);
  InPieces(HWY_DISPATCH_TABLE(RunFloat)[DispatchIndex()],
           ElementwiseCall<float, float>{operation, {a, b, c}, out, count, rounding, first});
}

void Apply(Elementwise operation, const Operand<double>& a, const Operand<double>& b, const Operand<double>& c,
           double* out, std::size_t count, const Rounding& rounding, std::uint64_t first) {
  CheckRounding(rounding, 53);
  InPieces(HWY_DISPATCH_TABLE(RunDouble)[DispatchIndex()],
           ElementwiseCall<double, double>{operation, {a, b, c}, out, count, rounding, first});
}

void Cast(const double* a, float* out, std::size_t count, const Rounding& rounding, std::uint64_t first) {
  CheckRounding(rounding, 24);
  InPieces(HWY_DISPATCH_TABLE(RunCast)[DispatchIndex()],
           ElementwiseCall<double, float>{Elementwise::kRound, {Operand<double>::Whole(a, count), {}, {}}, out, count, rounding, first});
}

}  // namespace prism
#endif  // HWY_ONCE
