#include "prism/prism.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "convolution_lanes.h"
#include "convolution_plan.h"
#include "convolution_windows.h"
#include "environment.h"
#include "gemm.h"
#include "rounding_check.h"
#include "threads.h"

namespace prism {
namespace {

// Small images are done together until a product has about this many rows.
constexpr std::int64_t kRowsWorthAProduct = 240;
constexpr double kOperationsWorthAThread = 1 << 18;

template <class T>
class Convolver {
 public:
  Convolver(const Convolution& convolution, const T* x, const T* weight, const T* bias, T* out,
            const Rounding& rounding)
      : c_(convolution),
        plan_(MakePlan(convolution)),
        x_(x),
        weight_(weight),
        bias_(bias),
        out_(out),
        rounding_(rounding),
        in_group_(c_.in_channels / c_.groups),
        out_group_(c_.out_channels / c_.groups),
        lane_groups_((c_.out_channels + kGroup - 1) / kGroup),
        in_plane_(Volume(plan_.padded)),
        out_plane_(Volume(plan_.output)) {}

  void Run() {
    if (c_.images == 0) return;
    const DefaultFloatEnvironment environment;
    x_extent_ = ExtentOf(x_, c_.images * c_.in_channels * Volume(c_.input));
    weight_extent_ = ExtentOf(weight_, c_.out_channels * in_group_ * Volume(c_.kernel));
    if (bias_ != nullptr) bias_extent_ = ExtentOf(bias_, c_.out_channels);
    for (const Phase& phase : plan_.phases) {
      if (phase.taps.empty()) {
        FillWithStart(phase);
      } else {
        const Packed packed = Pack(phase);
        if (c_.groups == 1 || out_group_ % kGroup == 0) {
          RunProducts(phase, packed);
        } else {
          RunLanes(phase, packed);
        }
      }
    }
  }

 private:
  // What a phase's images share.
  struct Packed {
    std::int64_t depth;
    std::vector<T> weights;             // [lane group][depth][16]
    std::vector<std::int64_t> offsets;  // of the steps, in the padded channels of a group
  };

  Packed Pack(const Phase& phase) const {
    Packed packed;
    packed.depth = in_group_ * static_cast<std::int64_t>(phase.taps.size());
    packed.weights.resize(static_cast<std::size_t>(lane_groups_ * packed.depth * kGroup));
    if (c_.transposed) {
      PackTransposedWeights(phase, &packed);
    } else {
      for (std::int64_t channel = 0; channel < c_.out_channels; channel += kGroup) {
        const auto lanes = static_cast<int>(std::min<std::int64_t>(kGroup, c_.out_channels - channel));
        TransposeLines(weight_ + channel * packed.depth, packed.depth, lanes, static_cast<int>(packed.depth), kGroup,
                       packed.weights.data() + channel * packed.depth);
      }
    }
    for (std::int64_t in = 0; in < in_group_; ++in) {
      for (const Tap& tap : phase.taps) packed.offsets.push_back(in * in_plane_ + tap.offset);
    }
    return packed;
  }

  void PackTransposedWeights(const Phase& phase, Packed* packed) const {
    for (std::int64_t channel = 0; channel < c_.out_channels; ++channel) {
      T* to = packed->weights.data() + channel / kGroup * packed->depth * kGroup + channel % kGroup;
      const std::int64_t first = channel / out_group_ * in_group_;
      for (std::int64_t in = first; in < first + in_group_; ++in) {
        const T* from = weight_ + (in * out_group_ + channel % out_group_) * Volume(c_.kernel);
        for (const Tap& tap : phase.taps) {
          *to = from[tap.kernel];
          to += kGroup;
        }
      }
    }
  }

  // The start of a channel's sums. One of -0 counts as 0.
  T Start(std::int64_t channel) const { return bias_ == nullptr ? T{0} : bias_[channel] + T{0}; }

  void FillWithStart(const Phase& phase) const {
    for (std::int64_t image = 0; image < c_.images; ++image) {
      for (std::int64_t channel = 0; channel < c_.out_channels; ++channel) {
        const T start = Start(channel);
        const T value = std::isnan(start) ? std::numeric_limits<T>::quiet_NaN() : start;
        T* to = out_ + (image * c_.out_channels + channel) * out_plane_;
        for (std::int64_t i = 0; i < Volume(phase.count); ++i) to[OutWalk(phase, i).place()] = value;
      }
    }
  }

  Walk OutWalk(const Phase& phase, std::int64_t position) const {
    return {phase.count, phase.out_first, phase.out_step, plan_.output, position};
  }

  // The numbers that both kinds of kernel draw by. `position` counts the phase's from the first image's on.
  std::uint64_t FirstRow(const Phase& phase, std::int64_t position) const {
    return c_.first_image * static_cast<std::uint64_t>(Volume(phase.count)) + static_cast<std::uint64_t>(position);
  }
  std::int64_t StreamSteps() const { return in_group_ * Volume(c_.kernel); }

  int ThreadsFor(const Phase& phase, std::int64_t depth) const {
    const double operations = static_cast<double>(c_.images) * static_cast<double>(Volume(phase.count)) *
                              static_cast<double>(c_.out_channels) * static_cast<double>(depth);
    return operations < 2 * kOperationsWorthAThread ? 1 : rounding_.threads;
  }

  Product<T> ProductOf(std::int64_t depth) const {
    Product<T> product;
    product.depth = depth;
    product.a_extent = x_extent_;
    product.b_extent = weight_extent_;
    product.start_extent = bias_extent_;
    return product;
  }

  // `channels` channels with their zeros around them.
  void PadChannels(const T* from, std::int64_t channels, T* to) const {
    const Axes& size = c_.input;
    std::fill(to, to + channels * in_plane_, T{0});
    for (std::int64_t channel = 0; channel < channels; ++channel, to += in_plane_) {
      for (std::int64_t d = 0; d < size[0]; ++d) {
        T* row = to + ((d + plan_.before[0]) * plan_.padded[1] + plan_.before[1]) * plan_.padded[2] + plan_.before[2];
        for (std::int64_t h = 0; h < size[1]; ++h, from += size[2], row += plan_.padded[2]) {
          std::copy(from, from + size[2], row);
        }
      }
    }
  }

  void RunProducts(const Phase& phase, const Packed& packed) const {
    const std::int64_t positions = Volume(phase.count);
    const int threads = ThreadsFor(phase, packed.depth);
    const std::int64_t together = std::max<std::int64_t>(1, kRowsWorthAProduct / positions);
    const std::int64_t blocks = (c_.images + together - 1) / together;
    Rounding rounding = rounding_;
    rounding.threads = static_cast<int>(std::max<std::int64_t>(1, threads / blocks));
    ParallelFor(blocks, 1, threads, [&](std::int64_t begin, std::int64_t end) {
      std::vector<T> padded;
      std::vector<T> sums;
      for (std::int64_t block = begin; block < end; ++block) {
        const std::int64_t image = block * together;
        RunBlock(phase, packed, image, std::min(together, c_.images - image), rounding, &padded, &sums);
      }
    });
  }

  void RunBlock(const Phase& phase, const Packed& packed, std::int64_t image, std::int64_t images,
                const Rounding& rounding, std::vector<T>* padded, std::vector<T>* sums) const {
    const std::int64_t positions = Volume(phase.count);
    const std::int64_t image_stride = c_.in_channels * in_plane_;
    const T* from = x_ + image * c_.in_channels * Volume(c_.input);
    if (plan_.padded != c_.input) {
      padded->resize(static_cast<std::size_t>(images * image_stride));
      PadChannels(from, images * c_.in_channels, padded->data());
      from = padded->data();
    }
    sums->resize(static_cast<std::size_t>(images * positions * out_group_));
    Product<T> product = ProductOf(packed.depth);
    product.rows = images * positions;
    product.columns = out_group_;
    product.out = sums->data();
    product.out_row_stride = out_group_;
    product.out_column_stride = 1;
    product.first_row = FirstRow(phase, image * positions);
    product.groups_per_row = static_cast<std::uint64_t>(lane_groups_ * plan_.phase_count);
    product.stream_steps = StreamSteps();
    for (std::int64_t group = 0; group < c_.groups; ++group) {
      const std::int64_t first_channel = group * out_group_;
      const std::int64_t lane_group = first_channel / kGroup;
      const WindowSource<T> windows(from + group * in_group_ * in_plane_, image_stride, plan_, phase, packed.offsets);
      const PackedWeights<T> weights(packed.weights.data() + lane_group * packed.depth * kGroup, packed.depth);
      product.a = &windows;
      product.b = &weights;
      product.bias = bias_ == nullptr ? nullptr : bias_ + first_channel;
      product.first_group = static_cast<std::uint64_t>(phase.number * lane_groups_ + lane_group);
      Multiply(product, rounding);
      for (std::int64_t i = 0; i < images; ++i) {
        Store(phase, sums->data() + i * positions * out_group_, out_group_, out_group_, 0, positions,
              out_ + ((image + i) * c_.out_channels + first_channel) * out_plane_);
      }
    }
  }

  // Sums [position][width] of `count` positions of one image to their places.
  void Store(const Phase& phase, const T* sums, std::int64_t width, std::int64_t channels, std::int64_t position,
             std::int64_t count, T* to) const {
    Walk walk = OutWalk(phase, position);
    constexpr std::int64_t kChannelsTogether = 8;
    constexpr std::int64_t kMostLines = std::numeric_limits<int>::max();
    if (phase.count == plan_.output && out_plane_ <= kMostLines) {
      // Few channels at a time: planes of a power of two would share their place in the first-level cache.
      for (std::int64_t l = 0; l < channels; l += kChannelsTogether) {
        const auto now = static_cast<int>(std::min(kChannelsTogether, channels - l));
        TransposeLines(sums + l, width, static_cast<int>(count), now, static_cast<int>(out_plane_),
                       to + walk.place() + l * out_plane_);
      }
      return;
    }
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t run = std::min(walk.run(), count - done);
      for (std::int64_t l = 0; l < channels; ++l) {
        T* const channel = to + walk.place() + l * out_plane_;
        const T* const from = sums + done * width + l;
        for (std::int64_t i = 0; i < run; ++i) channel[i * walk.step()] = from[i * width];
      }
      walk.Advance(run);
      done += run;
    }
  }

  void RunLanes(const Phase& phase, const Packed& packed) const {
    const int threads = ThreadsFor(phase, packed.depth);
    const std::int64_t pieces = c_.images * lane_groups_;
    const bool fast = FastKernelsApply(ProductOf(packed.depth), rounding_);
    std::vector<std::int64_t> offsets(packed.offsets);
    for (std::int64_t& offset : offsets) offset *= kGroup;
    const int inner = static_cast<int>(std::max<std::int64_t>(1, threads / pieces));
    ParallelFor(pieces, 1, threads, [&](std::int64_t begin, std::int64_t end) {
      std::vector<T> inputs(static_cast<std::size_t>(in_group_ * in_plane_ * kGroup));
      for (std::int64_t piece = begin; piece < end; ++piece) {
        const std::int64_t image = piece / lane_groups_;
        const std::int64_t lane_group = piece % lane_groups_;
        LoadLanes(image, lane_group, inputs.data());
        RunLaneGroup(phase, packed, offsets.data(), image, lane_group, inputs.data(), inner, fast);
      }
    });
  }

  // The inputs that 16 output channels take, [channel of the group][padded place][16]. What is padding is zero already.
  void LoadLanes(std::int64_t image, std::int64_t lane_group, T* to) const {
    const Axes& size = c_.input;
    const std::int64_t plane = Volume(size);
    const std::int64_t first = lane_group * kGroup / out_group_;
    const bool one_each = out_group_ == 1;
    const auto lanes = static_cast<int>(std::min<std::int64_t>(kGroup, c_.out_channels - lane_group * kGroup));
    std::array<std::int64_t, kGroup> channels;
    for (std::int64_t lane = 0; lane < kGroup; ++lane) {
      const std::int64_t channel = std::min(lane_group * kGroup + lane, c_.out_channels - 1);
      channels[static_cast<std::size_t>(lane)] = (channel / out_group_ - first) * in_group_ * plane;
    }
    const T* from = x_ + (image * c_.in_channels + first * in_group_) * plane;
    for (std::int64_t in = 0; in < in_group_; ++in) {
      for (std::int64_t d = 0; d < size[0]; ++d) {
        for (std::int64_t h = 0; h < size[1]; ++h, from += size[2]) {
          const std::int64_t place =
              ((d + plan_.before[0]) * plan_.padded[1] + h + plan_.before[1]) * plan_.padded[2] + plan_.before[2];
          T* const row = to + (in * in_plane_ + place) * kGroup;
          if (one_each) {
            TransposeLines(from, in_group_ * plane, lanes, static_cast<int>(size[2]), kGroup, row);
          } else {
            GatherChannels(from, channels.data(), size[2], row);
          }
        }
      }
    }
  }

  void RunLaneGroup(const Phase& phase, const Packed& packed, const std::int64_t* offsets, std::int64_t image,
                    std::int64_t lane_group, const T* inputs, int threads, bool fast) const {
    constexpr std::int64_t kRowsTogether = 128;
    static_assert(kRowsTogether % kLaneRows == 0);
    const std::int64_t positions = Volume(phase.count);
    const std::int64_t first_channel = lane_group * kGroup;
    const std::int64_t channels = std::min<std::int64_t>(kGroup, c_.out_channels - first_channel);
    std::array<T, kGroup> start{};
    for (std::int64_t l = 0; l < channels; ++l) start[static_cast<std::size_t>(l)] = Start(first_channel + l);
    ParallelFor(positions, kRowsTogether, threads, [&](std::int64_t begin, std::int64_t end) {
      std::array<std::int64_t, kRowsTogether> bases;
      std::array<T, kRowsTogether * kGroup> sums;
      Walk walk(phase.count, phase.in_first, phase.in_step, plan_.padded, begin);
      for (std::int64_t position = begin; position < end; position += kRowsTogether) {
        const std::int64_t rows = std::min(kRowsTogether, end - position);
        const std::int64_t padded_rows = (rows + kLaneRows - 1) / kLaneRows * kLaneRows;
        bases.fill(walk.place() * kGroup);
        for (std::int64_t r = 0; r < rows; ++r) {
          bases[static_cast<std::size_t>(r)] = walk.place() * kGroup;
          walk.Advance(1);
        }
        LaneRows<T> lanes;
        lanes.inputs = inputs;
        lanes.bases = bases.data();
        lanes.offsets = offsets;
        lanes.weights = packed.weights.data() + lane_group * packed.depth * kGroup;
        lanes.depth = packed.depth;
        lanes.start = start.data();
        lanes.rows = padded_rows;
        lanes.sums = sums.data();
        lanes.stream_row_step = static_cast<std::uint64_t>(lane_groups_ * plan_.phase_count);
        lanes.stream_row = FirstRow(phase, image * positions + position) * lanes.stream_row_step +
                           static_cast<std::uint64_t>(phase.number * lane_groups_ + lane_group);
        lanes.stream_steps = static_cast<std::uint64_t>(StreamSteps());
        SumLanes(lanes, rounding_, fast);
        Store(phase, sums.data(), kGroup, channels, position, rows,
              out_ + (image * c_.out_channels + first_channel) * out_plane_);
      }
    });
  }

  const Convolution& c_;
  const Plan plan_;
  const T* x_;
  const T* weight_;
  const T* bias_;
  T* out_;
  const Rounding& rounding_;
  std::int64_t in_group_;
  std::int64_t out_group_;
  std::int64_t lane_groups_;
  std::int64_t in_plane_;
  std::int64_t out_plane_;
  Extent x_extent_;
  Extent weight_extent_;
  Extent bias_extent_;
};

}  // namespace

template <class T>
void Convolve(const Convolution& convolution, const T* x, const T* weight, const T* bias, T* out,
              const Rounding& rounding) {
  CheckRounding(rounding, std::is_same_v<T, float> ? 24 : 53);
  Convolver<T>(convolution, x, weight, bias, out, rounding).Run();
}

template void Convolve<float>(const Convolution&, const float*, const float*, const float*, float*, const Rounding&);
template void Convolve<double>(const Convolution&, const double*, const double*, const double*, double*,
                               const Rounding&);

}  // namespace prism
