#include "config.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gemm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "hwy/aligned_allocator.h"

#include "environment.h"
#include "gemm-inl.h"
#include "gemm.h"
#include "targets.h"
#include "threads.h"

#ifndef PRISM_SRC_GEMM_CC_ONCE_
#define PRISM_SRC_GEMM_CC_ONCE_
namespace prism {

constexpr std::int64_t kDepthBlock = 256;  // steps packed at a time: a multiple of 32
constexpr std::int64_t kRowBlock = 240;    // rows packed at a time

// A part of the output: whole groups of columns.
struct Piece {
  std::int64_t row_begin;
  std::int64_t row_end;
  std::int64_t group_begin;
  std::int64_t group_end;
};

inline int Exponent(double x) { return std::ilogb(x); }

// Whether the kernels without guards give the definition's bits: nothing can overflow or become NaN, and
//
// - SR of full precision: every product is a multiple of 2^-149, so that subnormal sums are exact;
// - UD, RR, fewer bits: no sum but zero can be subnormal. A sum is at least half of a product of the smallest operands,
//   or the difference of two values that are multiples of that product's last place; steps of zero products take less
//   than half of it away in 2^22 steps.
template <class T>
bool FastKernelsApply(const Product<T>& product, const Rounding& rounding) {
  constexpr int kBits = std::numeric_limits<T>::digits;
  constexpr int kLeast = std::numeric_limits<T>::min_exponent - 1;
  const bool full = rounding.precision == 0 || rounding.precision == kBits;
  const bool stochastic = rounding.mode == Mode::kStochastic;
  if (!full && (!stochastic || kBits == 53)) return false;
  if (stochastic && kBits == 53) return false;
  const double most = product.a_extent.largest * product.b_extent.largest * static_cast<double>(product.depth) +
                      product.start_extent.largest;
  if (!(most <= std::ldexp(1.0, std::numeric_limits<T>::max_exponent - 3))) return false;
  if (rounding.mode == Mode::kNearest) return true;
  if (product.depth >= std::int64_t{1} << 22) return false;
  const int least = Exponent(product.a_extent.smallest) + Exponent(product.b_extent.smallest) - 2 * (kBits - 1);
  if (stochastic && full) return least >= kLeast - (kBits - 1);
  return least >= kLeast + 2 && Exponent(product.start_extent.smallest) >= kLeast + 2;
}

// Sums of one group of columns, [row][16], from and to where they are kept.
template <class T>
struct Sums {
  const Product<T>& product;
  std::int64_t column;
  int columns;

  void Load(std::int64_t row, int rows, bool first, T* to) const {
    for (int r = 0; r < rows; ++r, to += kGroup) {
      std::fill(to, to + kGroup, T{0});
      const T* from = product.out + (row + r) * product.out_row_stride + column * product.out_column_stride;
      if (!first || product.accumulate) {
        for (int l = 0; l < columns; ++l) to[l] = from[l * product.out_column_stride];
      } else if (product.bias != nullptr) {
        for (int l = 0; l < columns; ++l) to[l] = product.bias[column + l];
      }
      if (first) {
        for (int l = 0; l < columns; ++l) to[l] += T{0};
      }
    }
  }

  void Store(std::int64_t row, int rows, const T* from) const {
    for (int r = 0; r < rows; ++r, from += kGroup) {
      T* to = product.out + (row + r) * product.out_row_stride + column * product.out_column_stride;
      for (int l = 0; l < columns; ++l) to[l * product.out_column_stride] = from[l];
    }
  }
};

}  // namespace prism
#endif  // PRISM_SRC_GEMM_CC_ONCE_

HWY_BEFORE_NAMESPACE();
namespace prism {
namespace HWY_NAMESPACE {

constexpr bool kWide = HWY_TARGET <= HWY_AVX3 && HWY_TARGET != HWY_SCALAR;

// How many rows keep the arithmetic units busy within the registers that there are.
template <class T, Mode kMode>
constexpr int HardwareRows() {
  if (HWY_TARGET == HWY_SCALAR) return 1;
  const int rows = kWide ? 12 : kMode == Mode::kNearest ? 6 : 4;
  return sizeof(T) == 4 ? rows : rows / 2;
}
constexpr int kStochasticRows = HWY_TARGET == HWY_SCALAR ? 1 : kWide ? 6 : 3;

// Runs the kernel on `rows` rows, at most kRows at a time, as its template argument says.
template <template <int> class Kernel, int kRows>
struct Blocks {
  using Element = typename Kernel<1>::Element;
  using Sum = typename Kernel<1>::Sum;

  static constexpr int Next(std::int64_t rows) {
    return rows >= kRows ? kRows : rows >= 4 && kRows > 4 ? 4 : rows >= 2 && kRows > 2 ? 2 : 1;
  }

  static void Run(int rows, const Element* a, const Element* b, int depth, const Place& place, Sum* sums) {
    if (rows == kRows) {
      Kernel<kRows>::Run(a, b, depth, place, sums);
    } else if (rows == 4) {
      Kernel<(kRows > 4 ? 4 : 1)>::Run(a, b, depth, place, sums);
    } else if (rows == 2) {
      Kernel<(kRows > 2 ? 2 : 1)>::Run(a, b, depth, place, sums);
    } else {
      Kernel<1>::Run(a, b, depth, place, sums);
    }
  }
};

// Kernels that also go across.
template <template <int, bool> class Kernel, int kRows>
struct BlocksAcross {
  template <int kCount>
  using AlongRows = Kernel<kCount, false>;
  using Along = Blocks<AlongRows, kRows>;
  using Element = typename Along::Element;
  using Sum = typename Along::Sum;
  static constexpr int kAcross = 4;

  static constexpr int Next(std::int64_t rows) { return Along::Next(rows); }
  static void Run(int rows, const Element* a, const Element* b, int depth, const Place& place, Sum* sums) {
    Along::Run(rows, a, b, depth, place, sums);
  }
  static void RunAcross(int groups, const Element* a, const Element* b, int depth, const Place& place, Sum* sums) {
    if (groups == kAcross) {
      Kernel<kAcross, true>::Run(a, b, depth, place, sums);
    } else {
      for (int g = 0; g < groups; ++g) {
        Place own = place;
        own.row += static_cast<std::uint64_t>(g);
        Kernel<1, false>::Run(a, b + g * place.b_stride, depth, own, sums + g * kGroup);
      }
    }
  }
};

template <class Block, class T>
void MultiplyPiece(const Product<T>& product, const Rounding& rounding, const Stream& stream, const Piece& piece) {
  using Element = typename Block::Element;
  const NarrowFormat format(sizeof(T) == 4 ? rounding.precision : 0);
  const std::int64_t depth_block = std::min(kDepthBlock, std::max<std::int64_t>(product.depth, 1));
  const std::int64_t row_block = std::min(kRowBlock, piece.row_end - piece.row_begin);
  const auto a = hwy::AllocateAligned<Element>(static_cast<std::size_t>(row_block * depth_block));
  const auto b = hwy::AllocateAligned<Element>(static_cast<std::size_t>(kGroup * depth_block));
  if (a == nullptr || b == nullptr) throw std::bad_alloc();
  HWY_ALIGN T sums[16 * kGroup];
  const auto stream_steps = static_cast<std::uint64_t>(product.stream_steps != 0 ? product.stream_steps : product.depth);
  for (std::int64_t row = piece.row_begin; row < piece.row_end; row += row_block) {
    const std::int64_t rows = std::min(row_block, piece.row_end - row);
    for (std::int64_t step = 0; step == 0 || step < product.depth; step += depth_block) {
      const int depth = static_cast<int>(std::min(depth_block, product.depth - step));
      for (std::int64_t r = 0; r < rows;) {
        const int now = Block::Next(rows - r);
        product.a->Pack(row + r, now, step, depth, now, a.get() + r * depth);
        r += now;
      }
      for (std::int64_t group = piece.group_begin; group < piece.group_end; ++group) {
        const std::int64_t column = group * kGroup;
        const int columns = static_cast<int>(std::min<std::int64_t>(kGroup, product.columns - column));
        product.b->Pack(column, columns, step, depth, kGroup, b.get());
        const Sums<T> kept{product, column, columns};
        for (std::int64_t r = 0; r < rows;) {
          const int now = Block::Next(rows - r);
          const std::uint64_t stream_row =
              (product.first_row + static_cast<std::uint64_t>(row + r)) * product.groups_per_row +
              product.first_group + static_cast<std::uint64_t>(group);
          const Place place{&stream, &format, rounding.precision, stream_row, product.groups_per_row,
                            stream_steps, static_cast<std::uint64_t>(step), 0};
          kept.Load(row + r, now, step == 0, sums);
          Block::Run(now, a.get() + r * depth, b.get(), depth, place, sums);
          kept.Store(row + r, now, sums);
          r += now;
        }
      }
    }
  }
}

// The same for so few rows that each goes across groups instead.
template <class Block, class T>
void MultiplyPieceAcross(const Product<T>& product, const Rounding& rounding, const Stream& stream,
                         const Piece& piece) {
  using Element = typename Block::Element;
  const NarrowFormat format(sizeof(T) == 4 ? rounding.precision : 0);
  const std::int64_t depth_block = std::min(kDepthBlock, std::max<std::int64_t>(product.depth, 1));
  const auto a = hwy::AllocateAligned<Element>(static_cast<std::size_t>(depth_block));
  const auto b = hwy::AllocateAligned<Element>(static_cast<std::size_t>(Block::kAcross * kGroup * depth_block));
  if (a == nullptr || b == nullptr) throw std::bad_alloc();
  HWY_ALIGN T sums[Block::kAcross * kGroup];
  const auto stream_steps = static_cast<std::uint64_t>(product.stream_steps != 0 ? product.stream_steps : product.depth);
  for (std::int64_t group = piece.group_begin; group < piece.group_end; group += Block::kAcross) {
    const int groups = static_cast<int>(std::min<std::int64_t>(Block::kAcross, piece.group_end - group));
    for (std::int64_t step = 0; step == 0 || step < product.depth; step += depth_block) {
      const int depth = static_cast<int>(std::min(depth_block, product.depth - step));
      const auto columns = [&](int g) {
        return static_cast<int>(std::min<std::int64_t>(kGroup, product.columns - (group + g) * kGroup));
      };
      for (int g = 0; g < groups; ++g) {
        product.b->Pack((group + g) * kGroup, columns(g), step, depth, kGroup, b.get() + g * kGroup * depth);
      }
      for (std::int64_t row = piece.row_begin; row < piece.row_end; ++row) {
        product.a->Pack(row, 1, step, depth, 1, a.get());
        const std::uint64_t stream_row =
            (product.first_row + static_cast<std::uint64_t>(row)) * product.groups_per_row + product.first_group +
            static_cast<std::uint64_t>(group);
        const Place place{&stream, &format, rounding.precision, stream_row, 1, stream_steps,
                          static_cast<std::uint64_t>(step), std::int64_t{kGroup} * depth};
        for (int g = 0; g < groups; ++g) {
          const Sums<T> kept{product, (group + g) * kGroup, columns(g)};
          kept.Load(row, 1, step == 0, sums + g * kGroup);
        }
        Block::RunAcross(groups, a.get(), b.get(), depth, place, sums);
        for (int g = 0; g < groups; ++g) {
          const Sums<T> kept{product, (group + g) * kGroup, columns(g)};
          kept.Store(row, 1, sums + g * kGroup);
        }
      }
    }
  }
}

template <class Block, class T>
void MultiplyFast(const Product<T>& product, const Rounding& rounding, const Stream& stream, const Piece& piece) {
  if (piece.row_end - piece.row_begin < 4) {
    MultiplyPieceAcross<Block>(product, rounding, stream, piece);
  } else {
    MultiplyPiece<Block>(product, rounding, stream, piece);
  }
}

template <int kRows, bool kAcross>
using FullStochastic = StochasticKernel<true, kRows, kAcross>;
template <int kRows, bool kAcross>
using PartStochastic = StochasticKernel<false, kRows, kAcross>;

template <class T, Mode kMode>
struct Hardware {
  template <int kRows, bool kAcross>
  using Kernel = HardwareKernel<T, kMode, kRows, kAcross>;
};

template <Mode kMode>
struct Narrow {
  template <int kRows>
  using Kernel = NarrowKernel<kMode, kRows>;
};

template <Mode kMode>
struct Definition {
  template <int kRows>
  struct Kernel {
    using Element = double;
    using Sum = double;
    static void Run(const double* a, const double* b, int depth, const Place& place, double* sums) {
      ExactKernel<kRows>::Run(kMode, a, b, depth, place, sums);
    }
  };
};

template <class T, Mode kMode>
void MultiplyBy(const Product<T>& product, const Rounding& rounding, const Stream& stream, const Piece& piece,
                bool fast) {
  if (fast && kMode == Mode::kStochastic) {
    if constexpr (sizeof(T) == 4) {
      if (rounding.precision == 0 || rounding.precision == 24) {
        return MultiplyFast<BlocksAcross<FullStochastic, kStochasticRows>>(product, rounding, stream, piece);
      }
      return MultiplyFast<BlocksAcross<PartStochastic, kStochasticRows>>(product, rounding, stream, piece);
    }
  }
  if (fast && kMode != Mode::kStochastic) {
    const RoundingDirection direction(kMode == Mode::kRandom ? FE_UPWARD : FE_TONEAREST);
    constexpr Mode kHardware = kMode == Mode::kStochastic ? Mode::kNearest : kMode;
    return MultiplyFast<BlocksAcross<Hardware<T, kHardware>::template Kernel, HardwareRows<T, kHardware>()>>(
        product, rounding, stream, piece);
  }
  if constexpr (sizeof(T) == 4) {
    MultiplyPiece<Blocks<Narrow<kMode>::template Kernel, 2>>(product, rounding, stream, piece);
  } else {
    MultiplyPiece<Blocks<Definition<kMode>::template Kernel, 1>>(product, rounding, stream, piece);
  }
}

template <class T>
void MultiplyPieceOnTarget(const Product<T>& product, const Rounding& rounding, const Piece& piece, bool fast) {
  const Stream stream = MakeStream(rounding);
  switch (rounding.mode) {
    case Mode::kNearest:
      return MultiplyBy<T, Mode::kNearest>(product, rounding, stream, piece, fast);
    case Mode::kStochastic:
      return MultiplyBy<T, Mode::kStochastic>(product, rounding, stream, piece, fast);
    case Mode::kUpDown:
      return MultiplyBy<T, Mode::kUpDown>(product, rounding, stream, piece, fast);
    case Mode::kRandom:
      return MultiplyBy<T, Mode::kRandom>(product, rounding, stream, piece, fast);
  }
}

void MultiplyFloats(const Product<float>& product, const Rounding& rounding, const Piece& piece, bool fast) {
  MultiplyPieceOnTarget(product, rounding, piece, fast);
}

void MultiplyDoubles(const Product<double>& product, const Rounding& rounding, const Piece& piece, bool fast) {
  MultiplyPieceOnTarget(product, rounding, piece, fast);
}

template <class T, class D>
Extent ExtentBy(D d, const T* data, std::int64_t count) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto most = hn::Set(d, std::numeric_limits<T>::max());
  auto largest = hn::Zero(d);
  auto smallest = most;
  auto strange = hn::Zero(d);  // not zero where something is not finite
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto x = hn::Abs(hn::LoadU(d, data + i));
    const auto finite = hn::Le(x, most);
    strange = hn::Or(strange, hn::IfThenZeroElse(finite, most));
    largest = hn::Max(largest, hn::IfThenElseZero(finite, x));
    smallest = hn::Min(smallest, hn::IfThenElse(hn::Eq(x, hn::Zero(d)), most, hn::IfThenElse(finite, x, most)));
  }
  Extent extent;
  extent.largest = hn::GetLane(hn::MaxOfLanes(d, largest));
  extent.smallest = hn::GetLane(hn::MinOfLanes(d, smallest));
  bool finite = hn::AllTrue(d, hn::Eq(strange, hn::Zero(d)));
  for (; i < count; ++i) {
    const T x = std::fabs(data[i]);
    finite = finite && x <= std::numeric_limits<T>::max();
    if (x > extent.largest) extent.largest = x;
    if (x != 0 && x < extent.smallest) extent.smallest = x;
  }
  if (!finite) extent.largest = std::numeric_limits<double>::infinity();
  return extent;
}

Extent FloatExtent(const float* data, std::int64_t count) { return ExtentBy(DF(), data, count); }
Extent DoubleExtent(const double* data, std::int64_t count) { return ExtentBy(DCarrier(), data, count); }

template <class From, class To>
HWY_INLINE void TransposeByElement(const From* from, std::int64_t line_stride, int lines, int begin, int depth,
                                   int width, To* to) {
  for (int l = 0; l < lines; ++l) {
    for (int s = begin; s < depth; ++s) to[s * width + l] = static_cast<To>(from[l * line_stride + s]);
  }
}

#if HWY_TARGET != HWY_SCALAR
HWY_INLINE void StoreFour(hn::Vec<hn::FixedTag<float, 4>> x, float* to) { hn::StoreU(x, hn::FixedTag<float, 4>(), to); }
HWY_INLINE void StoreFour(hn::Vec<hn::FixedTag<float, 4>> x, double* to) {
  const hn::FixedTag<double, 2> d;
  const hn::FixedTag<float, 2> half;
  hn::StoreU(hn::PromoteTo(d, hn::LowerHalf(half, x)), d, to);
  hn::StoreU(hn::PromoteTo(d, hn::UpperHalf(half, x)), d, to + 2);
}
#endif

// Four by four at a time.
template <class To>
void TransposeBySquares(const float* from, std::int64_t line_stride, int lines, int depth, int width, To* to) {
  int done_lines = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d;
  const hn::FixedTag<double, 2> pair;
  const int whole = depth / 4 * 4;
  for (; done_lines + 4 <= lines; done_lines += 4) {
    const float* line = from + done_lines * line_stride;
    To* out = to + done_lines;
    for (int s = 0; s < whole; s += 4) {
      const auto a = hn::LoadU(d, line + s);
      const auto b = hn::LoadU(d, line + line_stride + s);
      const auto c = hn::LoadU(d, line + 2 * line_stride + s);
      const auto e = hn::LoadU(d, line + 3 * line_stride + s);
      const auto ab_low = hn::BitCast(pair, hn::InterleaveLower(d, a, b));
      const auto ab_high = hn::BitCast(pair, hn::InterleaveUpper(d, a, b));
      const auto ce_low = hn::BitCast(pair, hn::InterleaveLower(d, c, e));
      const auto ce_high = hn::BitCast(pair, hn::InterleaveUpper(d, c, e));
      StoreFour(hn::BitCast(d, hn::InterleaveLower(pair, ab_low, ce_low)), out + s * width);
      StoreFour(hn::BitCast(d, hn::InterleaveUpper(pair, ab_low, ce_low)), out + (s + 1) * width);
      StoreFour(hn::BitCast(d, hn::InterleaveLower(pair, ab_high, ce_high)), out + (s + 2) * width);
      StoreFour(hn::BitCast(d, hn::InterleaveUpper(pair, ab_high, ce_high)), out + (s + 3) * width);
    }
    TransposeByElement(line, line_stride, 4, whole, depth, width, out);
  }
#endif
  TransposeByElement(from + done_lines * line_stride, line_stride, lines - done_lines, 0, depth, width,
                     to + done_lines);
}

void TransposeFloats(const float* from, std::int64_t line_stride, int lines, int depth, int width, float* to) {
  TransposeBySquares(from, line_stride, lines, depth, width, to);
}

void TransposeToDoubles(const float* from, std::int64_t line_stride, int lines, int depth, int width, double* to) {
  TransposeBySquares(from, line_stride, lines, depth, width, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace prism
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace prism {
namespace {

HWY_EXPORT(MultiplyFloats);
HWY_EXPORT(MultiplyDoubles);
HWY_EXPORT(FloatExtent);
HWY_EXPORT(DoubleExtent);
HWY_EXPORT(TransposeFloats);
HWY_EXPORT(TransposeToDoubles);

template <class T>
void TransposeDoubles(const double* from, std::int64_t line_stride, int lines, int depth, int width, T* to) {
  for (int l = 0; l < lines; ++l) {
    for (int s = 0; s < depth; ++s) to[s * width + l] = static_cast<T>(from[l * line_stride + s]);
  }
}

void MultiplyPieceOf(const Product<float>& product, const Rounding& rounding, const Piece& piece, bool fast) {
  HWY_DISPATCH_TABLE(MultiplyFloats)[DispatchIndex()](product, rounding, piece, fast);
}
void MultiplyPieceOf(const Product<double>& product, const Rounding& rounding, const Piece& piece, bool fast) {
  HWY_DISPATCH_TABLE(MultiplyDoubles)[DispatchIndex()](product, rounding, piece, fast);
}

constexpr double kOperationsWorthAThread = 1 << 18;

}  // namespace

Extent ExtentOf(const float* data, std::int64_t count) {
  return HWY_DISPATCH_TABLE(FloatExtent)[DispatchIndex()](data, count);
}
Extent ExtentOf(const double* data, std::int64_t count) {
  return HWY_DISPATCH_TABLE(DoubleExtent)[DispatchIndex()](data, count);
}

void TransposeLines(const float* from, std::int64_t line_stride, int lines, int depth, int width, float* to) {
  HWY_DISPATCH_TABLE(TransposeFloats)[DispatchIndex()](from, line_stride, lines, depth, width, to);
}
void TransposeLines(const float* from, std::int64_t line_stride, int lines, int depth, int width, double* to) {
  HWY_DISPATCH_TABLE(TransposeToDoubles)[DispatchIndex()](from, line_stride, lines, depth, width, to);
}
void TransposeLines(const double* from, std::int64_t line_stride, int lines, int depth, int width, double* to) {
  TransposeDoubles(from, line_stride, lines, depth, width, to);
}
void TransposeLines(const double* from, std::int64_t line_stride, int lines, int depth, int width, float* to) {
  TransposeDoubles(from, line_stride, lines, depth, width, to);
}

template <class T>
void Multiply(const Product<T>& product, const Rounding& rounding) {
  if (product.rows == 0 || product.columns == 0) return;
  const bool fast = FastKernelsApply(product, rounding);
  const std::int64_t groups = (product.columns + kGroup - 1) / kGroup;
  const double operations = static_cast<double>(product.rows) * static_cast<double>(product.columns) *
                            static_cast<double>(std::max<std::int64_t>(product.depth, 1));
  const int threads = operations < 2 * kOperationsWorthAThread ? 1 : rounding.threads;
  // Along the longer side, so that no thread packs much of what another packs too.
  if (product.rows >= groups * 16 || groups == 1) {
    constexpr std::int64_t kGrain = 12;
    ParallelFor(product.rows, kGrain, threads, [&](std::int64_t begin, std::int64_t end) {
      MultiplyPieceOf(product, rounding, Piece{begin, end, 0, groups}, fast);
    });
  } else {
    ParallelFor(groups, 1, threads, [&](std::int64_t begin, std::int64_t end) {
      MultiplyPieceOf(product, rounding, Piece{0, product.rows, begin, end}, fast);
    });
  }
}

template bool FastKernelsApply<float>(const Product<float>& product, const Rounding& rounding);
template bool FastKernelsApply<double>(const Product<double>& product, const Rounding& rounding);
template void Multiply<float>(const Product<float>& product, const Rounding& rounding);
template void Multiply<double>(const Product<double>& product, const Rounding& rounding);

}  // namespace prism
#endif  // HWY_ONCE
