// The words of the stream in the orders in which kernels and studies meet them.

#ifndef PRISM_WORDS_H_
#define PRISM_WORDS_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "stream.h"

class Words {
 public:
  // tiles: one after another, as an element-wise operation on a long array takes them.
  // lane: the first word of every tile, what one lane of a long sum sees.
  // rows:S:R: rows of S steps each, R rows for a step before the next one, as a matrix product takes them.
  // operations, stages, samples, seeds: the same tile of 4096 streams that differ in this number alone, then the next.
  explicit Words(const std::string& order) : order_(order) {
    if (order.rfind("rows:", 0) == 0) {
      char* end = nullptr;
      steps_ = std::strtoull(order.c_str() + 5, &end, 10);
      rows_ = std::strtoull(end + 1, nullptr, 10);
      streams_.push_back(Make(0));
    } else {
      const bool one = order == "tiles" || order == "lane";
      if (!one && order != "operations" && order != "stages" && order != "samples" && order != "seeds") {
        throw std::invalid_argument("no such order: " + order);
      }
      for (std::uint64_t i = 0; i < (one ? 1u : 4096u); ++i) streams_.push_back(Make(i));
    }
  }

  void Fill(std::uint32_t* words, std::size_t count) {
    while (count > 0) {
      if (left_ == 0) Next();
      const std::size_t part = std::min(count, left_);
      std::memcpy(words, tile_.data() + size_ - left_, part * sizeof *words);
      words += part;
      count -= part;
      left_ -= part;
    }
  }

 private:
  prism::Stream Make(std::uint64_t i) const {
    prism::Rounding rounding;
    rounding.seed = order_ == "seeds" ? i : 20261129;
    rounding.sample = order_ == "samples" ? i : 0;
    rounding.operation = order_ == "operations" ? i : order_ == "stages" ? i / 256 : 0;
    return prism::MakeStream(rounding, order_ == "stages" ? static_cast<int>(i % 256) : 0);
  }

  void Next() {
    if (steps_ != 0) {
      tile_ = prism::ScalarTile(streams_[0], number_ % rows_ * steps_ + number_ / rows_);
    } else {
      tile_ = prism::ScalarTile(streams_[number_ % streams_.size()], number_ / streams_.size());
    }
    ++number_;
    size_ = left_ = order_ == "lane" ? 1 : tile_.size();
  }

  std::string order_;
  std::uint64_t steps_ = 0;
  std::uint64_t rows_ = 0;
  std::vector<prism::Stream> streams_;
  std::uint64_t number_ = 0;
  prism::TileArray tile_{};
  std::size_t size_ = 0;
  std::size_t left_ = 0;
};

#endif  // PRISM_WORDS_H_
