// Convolutions against their definition (prism/convolution.h) by exact.h, one element after another.

#include "prism/prism.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "check.h"
#include "exact.h"
#include "stream.h"

namespace {

using prism::Convolution;
using prism::Mode;
using prism::Rounding;
using Axes = Convolution::Axes;

constexpr Mode kModes[] = {Mode::kNearest, Mode::kStochastic, Mode::kUpDown, Mode::kRandom};

enum class Values { kOrdinary, kTiny, kHuge, kSpecial };

template <class T>
struct Operands {
  std::vector<T> x;
  std::vector<T> weight;
  std::vector<T> bias;
};

std::size_t Volume(const Axes& axes) { return static_cast<std::size_t>(axes[0] * axes[1] * axes[2]); }

template <class T>
T Value(Values values, std::mt19937_64& random) {
  constexpr int kTop = std::numeric_limits<T>::max_exponent;
  const T unit = static_cast<T>(static_cast<double>(random() >> 11) * 0x1p-52 - 1);
  switch (values) {
    case Values::kOrdinary:
      return random() % 16 == 0 ? T{0} : random() % 4 == 0 ? std::round(8 * unit) / 8 : unit;
    case Values::kTiny:
      return std::ldexp(unit, -kTop / 2 - static_cast<int>(random() % 20));
    case Values::kHuge:
      return std::ldexp(unit, kTop / 2 - static_cast<int>(random() % 3));
    case Values::kSpecial:
      break;
  }
  switch (random() % 40) {
    case 0:
      return std::numeric_limits<T>::infinity();
    case 1:
      return -std::numeric_limits<T>::quiet_NaN();
    case 2:
      return std::numeric_limits<T>::denorm_min() * static_cast<T>(random() % 9);
    case 3:
      return -T{0};
    default:
      return unit;
  }
}

template <class T>
Operands<T> MakeOperands(const Convolution& c, Values values, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Operands<T> in;
  in.x.resize(static_cast<std::size_t>(c.images * c.in_channels) * Volume(c.input));
  in.weight.resize(static_cast<std::size_t>(c.out_channels * c.in_channels / c.groups) * Volume(c.kernel));
  in.bias.resize(static_cast<std::size_t>(c.out_channels));
  for (auto* part : {&in.x, &in.weight, &in.bias}) {
    for (T& value : *part) value = Value<T>(values, random);
  }
  in.bias[0] = -T{0};
  return in;
}

// The input's coordinate that kernel position `k` takes to output `o` on one axis, in the zero-stuffed input of a
// transposed convolution with its kernel flipped; `real` is false for stuffed zeros.
struct Visit {
  bool real;
  bool inside;
  std::int64_t kernel;
  std::int64_t input;
};

Visit VisitOn(const Convolution& c, std::size_t axis, std::int64_t o, std::int64_t k) {
  Visit visit{true, false, k, 0};
  if (!c.transposed) {
    visit.input = o * c.stride[axis] - c.pad_before[axis] + k * c.dilation[axis];
  } else {
    const std::int64_t edge = c.dilation[axis] * (c.kernel[axis] - 1) - c.pad_before[axis];
    const std::int64_t stuffed = o - edge + k * c.dilation[axis];
    const std::int64_t stride = c.stride[axis];
    visit.kernel = c.kernel[axis] - 1 - k;
    visit.real = (stuffed % stride + stride) % stride == 0;
    visit.input = visit.real ? stuffed / stride : 0;
  }
  visit.inside = visit.input >= 0 && visit.input < c.input[axis];
  return visit;
}

template <class T>
class Definition {
 public:
  Definition(const Convolution& c, const Operands<T>& in, bool bias, const Rounding& rounding)
      : c_(c), in_(in), bias_(bias), rounding_(rounding), stream_(MakeStream(rounding)), output_(c.OutputSize()) {}

  std::vector<T> All() const {
    std::vector<T> out;
    for (std::int64_t image = 0; image < c_.images; ++image) {
      for (std::int64_t channel = 0; channel < c_.out_channels; ++channel) {
        Axes o;
        for (o[0] = 0; o[0] < output_[0]; ++o[0]) {
          for (o[1] = 0; o[1] < output_[1]; ++o[1]) {
            for (o[2] = 0; o[2] < output_[2]; ++o[2]) out.push_back(At(image, channel, o));
          }
        }
      }
    }
    return out;
  }

 private:
  // The stream's row of an element.
  std::uint64_t Row(std::int64_t image, std::int64_t channel, const Axes& o) const {
    std::int64_t phases = 1;
    std::int64_t phase = 0;
    std::int64_t count = 1;
    std::int64_t number = 0;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const std::int64_t stride = c_.transposed ? c_.stride[axis] : 1;
      const std::int64_t in_phase = (output_[axis] - o[axis] % stride + stride - 1) / stride;
      phases *= stride;
      phase = phase * stride + o[axis] % stride;
      count *= in_phase;
      number = number * in_phase + o[axis] / stride;
    }
    const std::int64_t row = (static_cast<std::int64_t>(c_.first_image) + image) * count + number;
    return static_cast<std::uint64_t>((row * phases + phase) * ((c_.out_channels + 15) / 16) + channel / 16);
  }

  prism::Random RandomOf(std::uint64_t row, std::uint64_t step, int lane) const {
    const auto steps = static_cast<std::uint64_t>(c_.in_channels / c_.groups) * Volume(c_.kernel);
    const bool words = rounding_.mode == Mode::kStochastic;
    const prism::TileArray tile =
        ScalarTile(stream_, words ? row * steps + step : row * ((steps + 31) / 32) + step / 32);
    return {prism::LaneWord(tile, lane), prism::LaneBits29(tile, lane), prism::LaneBit(tile, lane, step)};
  }

  T At(std::int64_t image, std::int64_t channel, const Axes& o) const {
    const std::int64_t in_group = c_.in_channels / c_.groups;
    const std::int64_t out_group = c_.out_channels / c_.groups;
    const std::int64_t group = channel / out_group;
    const prism::Format format = std::is_same_v<T, float> ? prism::Float32Format(rounding_.precision)
                                                           : prism::Float64Format(rounding_.precision);
    const std::uint64_t row = Row(image, channel, o);
    std::uint64_t step = 0;
    double sum = bias_ ? static_cast<double>(in_.bias[static_cast<std::size_t>(channel)]) + 0.0 : 0.0;
    if (std::isnan(sum)) sum = prism::BitsOf<double>(prism::kCanonicalNan64);
    for (std::int64_t in = 0; in < in_group; ++in) {
      const std::int64_t weight_row =
          c_.transposed ? (group * in_group + in) * out_group + channel % out_group : channel * in_group + in;
      Axes k;
      for (k[0] = 0; k[0] < c_.kernel[0]; ++k[0]) {
        for (k[1] = 0; k[1] < c_.kernel[1]; ++k[1]) {
          for (k[2] = 0; k[2] < c_.kernel[2]; ++k[2]) {
            const Visit d = VisitOn(c_, 0, o[0], k[0]);
            const Visit h = VisitOn(c_, 1, o[1], k[1]);
            const Visit w = VisitOn(c_, 2, o[2], k[2]);
            if (!d.real || !h.real || !w.real) continue;
            const std::int64_t kernel = (d.kernel * c_.kernel[1] + h.kernel) * c_.kernel[2] + w.kernel;
            const T weight = in_.weight[static_cast<std::size_t>(weight_row) * Volume(c_.kernel) + kernel];
            T input = 0;
            if (d.inside && h.inside && w.inside) {
              const std::int64_t plane = image * c_.in_channels + group * in_group + in;
              input = in_.x[static_cast<std::size_t>(
                  ((plane * c_.input[0] + d.input) * c_.input[1] + h.input) * c_.input[2] + w.input)];
            }
            sum = Round(prism::ExactMultiplyAdd(static_cast<double>(input), static_cast<double>(weight), sum), format,
                        rounding_.mode, RandomOf(row, step, static_cast<int>(channel % 16)));
            ++step;
          }
        }
      }
    }
    return static_cast<T>(sum);
  }

  const Convolution& c_;
  const Operands<T>& in_;
  bool bias_;
  const Rounding& rounding_;
  prism::Stream stream_;
  Axes output_;
};

template <class T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class T>
std::vector<T> Convolved(const Convolution& c, const Operands<T>& in, bool bias, const Rounding& rounding) {
  std::vector<T> out(static_cast<std::size_t>(c.images * c.out_channels) * Volume(c.OutputSize()), T{77});
  prism::Convolve<T>(c, in.x.data(), in.weight.data(), bias ? in.bias.data() : nullptr, out.data(), rounding);
  return out;
}

Convolution Plane(std::int64_t images, std::int64_t in, std::int64_t out, std::int64_t groups, std::int64_t height,
                  std::int64_t width, std::int64_t kernel_height, std::int64_t kernel_width) {
  Convolution c;
  c.images = images;
  c.in_channels = in;
  c.out_channels = out;
  c.groups = groups;
  c.input = {1, height, width};
  c.kernel = {1, kernel_height, kernel_width};
  return c;
}

// Every way of the kernels: products and lanes; one and several images; whole and partial groups of channels and rows;
// more steps than one tile of bits; strides, dilation, uneven padding; one to three axes; phases with and without
// inputs.
std::vector<Convolution> Shapes() {
  std::vector<Convolution> shapes;
  Convolution c = Plane(2, 3, 5, 1, 6, 7, 3, 3);
  c.pad_before = {0, 1, 2};
  c.pad_after = {0, 0, 1};
  shapes.push_back(c);
  c = Plane(1, 2, 18, 1, 9, 11, 3, 2);
  c.stride = {1, 2, 3};
  c.dilation = {1, 2, 1};
  c.first_image = 5;
  shapes.push_back(c);
  c = Plane(3, 4, 32, 2, 3, 5, 1, 5);
  c.pad_before = {0, 0, 4};
  shapes.push_back(c);
  c = Plane(2, 20, 20, 20, 5, 4, 3, 3);
  c.pad_before = c.pad_after = {0, 1, 1};
  c.first_image = 3;
  shapes.push_back(c);
  c = Plane(1, 12, 18, 3, 4, 5, 3, 3);
  c.dilation = {1, 1, 2};
  shapes.push_back(c);
  c = Plane(1, 1, 3, 1, 1, 40, 1, 3);
  shapes.push_back(c);
  c = Plane(2, 2, 2, 1, 3, 4, 2, 2);
  c.input[0] = 3;
  c.kernel[0] = 2;
  c.pad_before[0] = 1;
  shapes.push_back(c);
  c = Plane(2, 3, 5, 1, 3, 4, 3, 3);
  c.transposed = true;
  c.stride = {1, 2, 2};
  c.pad_before = {0, 1, 0};
  c.pad_after = {0, 0, 1};
  c.output_padding = {0, 1, 0};
  c.first_image = 2;
  shapes.push_back(c);
  c = Plane(2, 6, 6, 3, 3, 3, 2, 2);
  c.transposed = true;
  c.stride = {1, 3, 2};
  c.dilation = {1, 1, 3};
  shapes.push_back(c);
  c = Plane(1, 2, 17, 1, 1, 5, 1, 4);
  c.transposed = true;
  c.dilation = {1, 1, 2};
  c.pad_before = c.pad_after = {0, 0, 3};
  shapes.push_back(c);
  c = Plane(1, 34, 3, 1, 2, 3, 1, 1);
  shapes.push_back(c);
  return shapes;
}

template <class T>
void CheckDefinition() {
  int number = 0;
  for (const Convolution& c : Shapes()) {
    ++number;
    for (const Values values : {Values::kOrdinary, Values::kTiny, Values::kHuge, Values::kSpecial}) {
      const Operands<T> in = MakeOperands<T>(c, values, static_cast<std::uint64_t>(number));
      for (const Mode mode : kModes) {
        for (const int precision : {0, 8, std::is_same_v<T, float> ? 24 : 50}) {
          Rounding rounding;
          rounding.mode = mode;
          rounding.precision = precision;
          rounding.seed = 12;
          rounding.sample = 3;
          rounding.operation = 9;
          const bool bias = number % 2 == 1;
          const std::vector<T> expected = Definition<T>(c, in, bias, rounding).All();
          for (const std::string& target : prism::Targets()) {
            prism::SetTarget(target);
            CHECK(SameBits(Convolved(c, in, bias, rounding), expected),
                  "shape %d, values %d, mode %d, precision %d, %s", number, static_cast<int>(values),
                  static_cast<int>(mode), precision, target.c_str());
          }
          prism::SetTarget("");
        }
      }
    }
  }
}

void TestDefinition() {
  CheckDefinition<float>();
  CheckDefinition<double>();
}

// Neither the number of threads nor where a batch is cut changes a bit.
void TestSplits() {
  std::vector<Convolution> shapes;
  Convolution c = Plane(7, 16, 32, 1, 12, 13, 3, 3);
  c.pad_before = c.pad_after = {0, 1, 1};
  shapes.push_back(c);
  c.groups = 16;
  c.out_channels = 48;
  shapes.push_back(c);
  c = Plane(7, 8, 16, 1, 9, 8, 4, 4);
  c.transposed = true;
  c.stride = {1, 2, 2};
  shapes.push_back(c);
  for (const Convolution& whole : shapes) {
    const Operands<float> in = MakeOperands<float>(whole, Values::kOrdinary, 4);
    for (const Mode mode : kModes) {
      Rounding rounding;
      rounding.mode = mode;
      rounding.seed = 5;
      const std::vector<float> expected = Convolved(whole, in, true, rounding);
      for (const int threads : {2, 3, 16}) {
        rounding.threads = threads;
        CHECK(SameBits(Convolved(whole, in, true, rounding), expected), "%d threads", threads);
      }
      rounding.threads = 1;
      std::vector<float> parts;
      for (const std::int64_t images : {2, 1, 4}) {
        Convolution part = whole;
        part.images = images;
        part.first_image = parts.size() / (expected.size() / 7);
        Operands<float> of_part = in;
        const auto image = static_cast<std::ptrdiff_t>(in.x.size() / 7);
        const auto first = static_cast<std::ptrdiff_t>(part.first_image);
        of_part.x.assign(in.x.begin() + first * image, in.x.begin() + (first + images) * image);
        const std::vector<float> out = Convolved(part, of_part, true, rounding);
        parts.insert(parts.end(), out.begin(), out.end());
      }
      CHECK(SameBits(parts, expected), "parts of a batch");
    }
  }
}

void TestRefusals() {
  const Convolution good = Plane(1, 4, 4, 2, 5, 5, 3, 3);
  CHECK((good.OutputSize() == Axes{1, 3, 3}), "output size");
  std::vector<Convolution> bad(8, good);
  bad[0].groups = 3;
  bad[1].stride[1] = 0;
  bad[2].pad_before[2] = -1;
  bad[3].kernel[2] = 6;
  bad[4].output_padding[2] = 1;
  bad[5].dilation[1] = 3;
  bad[6].images = -1;
  bad[7].transposed = true;
  bad[7].pad_before[1] = 7;
  for (const Convolution& c : bad) {
    bool refused = false;
    try {
      c.OutputSize();
    } catch (const std::invalid_argument&) {
      refused = true;
    }
    CHECK(refused, "convolution %d must be refused", static_cast<int>(&c - bad.data()));
  }
}

const Test definition("convolution_definition", TestDefinition);
const Test splits("convolution_splits", TestSplits);
const Test refusals("convolution_refusals", TestRefusals);

}  // namespace
