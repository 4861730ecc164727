// A fuzzer's bytes as numbers.

#ifndef PRISM_FUZZ_INPUT_H_
#define PRISM_FUZZ_INPUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#include "prism/prism.h"

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}

  // The next bytes, zeros where there are no more.
  template <class T>
  T Next() {
    T value{};
    const std::size_t used = std::min(sizeof value, left_);
    if (used > 0) std::memcpy(&value, data_, used);
    data_ += used;
    left_ -= used;
    return value;
  }

  // From `least` to `most`.
  std::int64_t Number(std::int64_t least, std::int64_t most) {
    return least + Next<std::uint16_t>() % (most - least + 1);
  }

  bool Flag() { return (Next<std::uint8_t>() & 1) != 0; }

  prism::Rounding Rounding(int most_precision) {
    prism::Rounding rounding;
    rounding.mode = static_cast<prism::Mode>(Number(0, 3));
    rounding.precision = static_cast<int>(Number(1, most_precision));
    if (rounding.precision == 1) rounding.precision = 0;
    rounding.seed = Next<std::uint32_t>();
    rounding.sample = Next<std::uint8_t>();
    rounding.operation = Next<std::uint16_t>();
    rounding.threads = static_cast<int>(Number(1, 3));
    return rounding;
  }

  // Any bit patterns, and many that are near the edges of the format. Exactly as long as asked for, so that the address
  // sanitizer sees the first element past it.
  template <class T>
  std::unique_ptr<T[]> Array(std::size_t count) {
    std::unique_ptr<T[]> values(new T[count]);
    for (std::size_t i = 0; i < count; ++i) values[i] = Value<T>();
    return values;
  }

 private:
  template <class T>
  T Value() {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    constexpr int kFraction = sizeof(T) == 4 ? 23 : 52;
    constexpr Bits kExponents = sizeof(T) == 4 ? 255 : 2047;
    const auto kind = Next<std::uint8_t>();
    Bits bits = 0;
    if (kind < 64) {
      bits = Next<Bits>();
    } else {
      // A sign, an exponent and a few bits of the fraction.
      constexpr Bits kMiddle = kExponents / 2;
      const Bits exponents[] = {0, 1, 2, kMiddle - 30, kMiddle - 1, kMiddle, kMiddle + 1, kMiddle + 30, kExponents - 1, kExponents};
      const auto fraction = static_cast<Bits>(Next<std::uint8_t>());
      bits = static_cast<Bits>(kind & 1) << (8 * sizeof(T) - 1) | exponents[(kind >> 1) % 10] << kFraction |
             (kind & 0x20 ? fraction : fraction << (kFraction - 8));
    }
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

  const std::uint8_t* data_;
  std::size_t left_;
};

#endif  // PRISM_FUZZ_INPUT_H_
