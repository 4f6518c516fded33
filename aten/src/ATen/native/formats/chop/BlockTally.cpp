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
  quotients.add(o.quotients);
  blocks += o.blocks;
  add_to(scales, o.scales);
  add_to(clipped, o.clipped);
  add_to(flushed, o.flushed);
}

BlockTally::BlockTally(const ScaledKernels& scaled, const Format& element, int64_t columns)
    : scaled_(scaled),
      numbers_{{std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest(), 0, 0}},
      quotients_{Record(element).limits},
      nonzero_(columns),
      beyond_(columns),
      gone_(columns) {
}

void BlockTally::count_scales(const int32_t* most, const float* own, int64_t n) {
  counts_.blocks += n;
  for (int64_t i = 0; i < n; ++i)
    if (most[i] != 0 && most[i] < kInfiniteMagnitude) ++counts_.scales[std::ilogb(own[i])];
}

void BlockTally::Waiting::add(const float* more_exact, const float* more_rounded, int64_t n,
                              Counts& all) {
  exact.insert(exact.end(), more_exact, more_exact + n);
  rounded.insert(rounded.end(), more_rounded, more_rounded + n);
  if (exact.size() >= kWaiting) count(all);
}

void BlockTally::Waiting::count(Counts& all) {
  const auto n = static_cast<int64_t>(exact.size());
  for (int64_t done = 0; done < n;) {
    const int64_t m = buffer.count(limits, exact.data() + done, rounded.data() + done, n - done);
    if (m == 0) buffer.empty(all);
    done += m;
  }
  exact.clear();
  rounded.clear();
}

void BlockTally::count_row(const float* exact, const float* rounded, const float* quotients,
                           const float* elements, int64_t n) {
  numbers_.add(exact, rounded, n, counts_.numbers);
  quotients_.add(quotients, elements, n, counts_.quotients);
  scaled_.mark(exact, rounded, quotients, static_cast<float>(quotients_.limits.lowest),
               static_cast<float>(quotients_.limits.highest), nonzero_.data(), beyond_.data(),
               gone_.data(), n);
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
  numbers_.count(counts_.numbers);
  quotients_.count(counts_.quotients);
  numbers_.buffer.empty(counts_.numbers);
  quotients_.buffer.empty(counts_.quotients);
  return std::move(counts_);
}

} // namespace at::formats
