#include <ATen/native/formats/chop/BlockTally.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace at::formats {
namespace {

constexpr size_t kWaiting = 2048;

void add_to(std::map<int, int64_t>& all, const std::map<int, int64_t>& more) {
  for (const auto& [key, count] : more) all[key] += count;
}

} // namespace

void BlockCounts::add(const BlockCounts& o) {
  numbers.add(o.numbers);
  quotients.overflow += o.quotients.overflow;
  quotients.saturated += o.quotients.saturated;
  quotients.underflow += o.quotients.underflow;
  quotients.subnormal += o.quotients.subnormal;
  blocks += o.blocks;
  add_to(scales, o.scales);
  add_to(clipped, o.clipped);
  add_to(flushed, o.flushed);
}

BlockTally::BlockTally(const ScaledKernels& scaled, const Format& element, int64_t columns)
    : scaled_(scaled),
      nonzero_(columns),
      beyond_(columns),
      gone_(columns) {
  const CountLimits l = Record(element).limits;
  limits_ = {static_cast<float>(l.lowest), static_cast<float>(l.highest),
             static_cast<float>(l.smallest), static_cast<float>(l.normal)};
}

void BlockTally::count_scales(const int32_t* most, const float* own, int64_t n) {
  counts_.blocks += n;
  for (int64_t i = 0; i < n; ++i)
    if (most[i] != 0 && most[i] < kInfiniteMagnitude) ++counts_.scales[std::ilogb(own[i])];
}

void BlockTally::count_waiting() {
  constexpr CountLimits kUnlimited{std::numeric_limits<float>::max(),
                                   std::numeric_limits<float>::lowest(), 0, 0};
  const auto n = static_cast<int64_t>(exact_.size());
  for (int64_t done = 0; done < n;) {
    const int64_t m =
        buffer_.count(kUnlimited, exact_.data() + done, rounded_.data() + done, n - done);
    if (m == 0) buffer_.empty(counts_.numbers);
    done += m;
  }
  exact_.clear();
  rounded_.clear();
}

void BlockTally::count_row(const float* exact, const float* rounded, const float* quotients,
                           int64_t n) {
  scaled_.mark(limits_, exact, rounded, quotients, nonzero_.data(), beyond_.data(), gone_.data(),
               counts_.quotients, n);
  exact_.insert(exact_.end(), exact, exact + n);
  rounded_.insert(rounded_.end(), rounded, rounded + n);
  if (exact_.size() >= kWaiting) count_waiting();
}

void BlockTally::end_blocks(int64_t columns, int64_t run) {
  const auto sum = [&](const std::vector<int32_t>& marks, int64_t from, int64_t to) {
    return std::accumulate(marks.begin() + from, marks.begin() + to, int64_t{0});
  };
  for (int64_t from = 0; from < columns; from += run) {
    const int64_t to = std::min(columns, from + run);
    const int64_t of = std::max<int64_t>(1, sum(nonzero_, from, to));
    const auto tenths = [&](int64_t part) { return static_cast<int>((10 * part + of - 1) / of); };
    ++counts_.clipped[tenths(sum(beyond_, from, to))];
    ++counts_.flushed[tenths(sum(gone_, from, to))];
  }
  for (auto* marks : {&nonzero_, &beyond_, &gone_}) std::fill_n(marks->begin(), columns, 0);
}

BlockCounts BlockTally::finish() {
  count_waiting();
  buffer_.empty(counts_.numbers);
  return std::move(counts_);
}

} // namespace at::formats
