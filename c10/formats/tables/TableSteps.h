// Rounding to a table as a search, for the loops over tables (TableSearch.h, TableDraws.h).
//
// A mode that draws nothing is a step function of machine numbers; a mode that tosses a coin is two
// of them. The mode `stochastic` is a step function from a number to its gap between two values;
// arithmetic within the gap does the rest.
#pragma once
#include <c10/formats/codec/MachineBits.h>
#include <c10/formats/tables/ValueTable.h>

#include <algorithm>
#include <memory>
#include <type_traits>

namespace c10::formats {

// Steps of float32 in the order of its bits, where infinities and NaN are like other numbers.
// Leading bits choose a bucket. A bucket has the code below its one threshold, and the code from
// there on.
//
// small[u >> 16] is used if all codes are below 256 and no bucket has two thresholds. Its bits are
// the threshold's lower half << 16 | code from it on << 8 | code below. If one of the two buckets
// next to 0 has two thresholds, they are right for zeros only (`smallest`).
//
// large[(places[u >> 20] >> 5) + ((u & kLow) >> (places[u >> 20] & 31))] is used otherwise: buckets
// as narrow as their neighbourhood needs. Its bits are the threshold's lower 20 bits << 44 | code
// from it on << 22 | code below. If a bucket still has two thresholds, its codes are kUndecided and
// the first run's number.
struct TableBuckets {
  static constexpr int kLead = 12, kLowBits = 32 - kLead, kCodeBits = 22;
  static constexpr uint32_t kLow = (uint32_t{1} << kLowBits) - 1,
                            kCode = (uint32_t{1} << kCodeBits) - 1,
                            kUndecided = uint32_t{1} << (kCodeBits - 1);
  struct Run { // numbers with one code, up to the next run
    uint32_t begin, code;
  };
  std::vector<Run> runs;
  std::vector<uint32_t> small, places;
  std::vector<uint64_t> large;
  bool smallest{false};

  // Whether `small` leaves a number undecided.
  bool leaves(uint32_t u) const { return smallest && (u & 0x7FFFFFFF) - 1 < 0xFFFF; }
  uint32_t code_by_run(uint32_t u) const {
    const auto after = std::upper_bound(runs.begin(), runs.end(), u,
                                        [](uint32_t x, const Run& r) { return x < r.begin; });
    return (after - 1)->code;
  }
  // By `large`; if that is undecided, by the few runs in the bucket.
  uint32_t code_by_bucket(uint32_t u) const {
    const uint32_t place = places[u >> kLowBits];
    const uint64_t bucket = large[(place >> 5) + ((u & kLow) >> (place & 31))];
    const uint32_t code =
        static_cast<uint32_t>((u & kLow) >= bucket >> 2 * kCodeBits ? bucket >> kCodeBits
                                                                    : bucket) &
        kCode;
    if ((code & kUndecided) == 0) return code;
    size_t run = code & ~kUndecided;
    while (run + 1 < runs.size() && runs[run + 1].begin <= u) ++run;
    return runs[run].code;
  }
};

// Begins a search by the leading bits of a number's key: `rounds` comparisons follow from
// first[key's leading bits] on.
struct TableIndex {
  std::vector<int32_t> first;
  int shift{0}, rounds{0};
};

// code(x) = codes[number of thresholds that are at most key(x)]. key(x) orders machine numbers as
// signed integers, -0 before +0. float32 has buckets instead, and its thresholds are dropped.
//
// Searches in float64 begin by the index. If thresholds[i + 2^k - 1] <= key, i grows by 2^k, for k
// from rounds - 1 down to 0. That is enough wherever T has normal numbers. Among its subnormals the
// search may end at the code -1, undecided. The elements behind `count` thresholds may be read at
// the end of a search.
template <typename T>
struct TableSteps {
  using Key = typename Machine<T>::Signed;
  std::vector<Key> thresholds;
  std::vector<int32_t> codes;
  int64_t count{0};
  int32_t nan_code{0};
  std::conditional_t<std::is_same_v<T, float>, TableBuckets, TableIndex> begin;

  static Key key_of(T x) {
    const auto bits = bits_as<Key>(x);
    return bits ^ (bits >> (Machine<T>::width - 1) & std::numeric_limits<Key>::max());
  }
  // For a number that is not NaN, by all thresholds.
  int32_t code_of(T x) const {
    const auto end = thresholds.begin() + count;
    return codes[static_cast<size_t>(std::upper_bound(thresholds.begin(), end, key_of(x)) -
                                     thresholds.begin())];
  }
};

// The results between two neighbouring values, including the inner one: outer_code with the
// probability (x - inner) / (outer - inner), which is (x - inner) * scale * 2^-32. scale 0: always
// inner_code.
struct TableGap {
  double inner{0}, scale{0};
  float margin{0}; // the product's error bound; infinite if machine numbers cannot decide
  uint16_t inner_code{0}, outer_code{0};

  bool operator==(const TableGap&) const = default;
};
template <typename T>
struct TableGaps {
  TableSteps<T> steps; // its codes are indices of `gaps`
  std::vector<TableGap> gaps;
};

// An empty table, with room for the following.
std::shared_ptr<ValueTable> new_table();
// The steps of a mode, made at its first call by the generic codec. coin: the top bit of the random
// word, for modes that read no other bit.
template <typename T>
const TableSteps<T>& steps_of(const Format& f, bool coin = false);
// The gaps for the mode `stochastic`.
template <typename T>
const TableGaps<T>& gaps_of(const Format& f);

} // namespace c10::formats
