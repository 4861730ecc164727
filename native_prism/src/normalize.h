#ifndef PRISM_SRC_NORMALIZE_H_
#define PRISM_SRC_NORMALIZE_H_

#include <cstdint>

#include "prism/normalize.h"
#include "prism/prism.h"

namespace prism {

// See the functions of prism/normalize.h.
template <class T>
struct RowsArguments {
  const T* x;
  std::int64_t columns;
  Affine<T> affine;
  T epsilon;
  std::uint64_t first_row;
  T* out;
  T* mean;
  T* inverse;
};

template <class T>
struct ChannelsArguments {
  const T* x;
  std::int64_t channels;
  std::int64_t length;
  const T* mean;
  const T* variance;
  T* inverse;  // one a channel
  Affine<T> affine;
  T epsilon;
  std::uint64_t first_batch;
  T* out;
};

template <class T>
struct SoftmaxArguments {
  const T* x;
  std::int64_t columns;
  bool logarithm;
  std::uint64_t first_row;
  T* out;
};

}  // namespace prism

#endif  // PRISM_SRC_NORMALIZE_H_
