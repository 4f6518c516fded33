// Rounding to a table as a search: what the loops over tables (CodecKernel.cpp) read.
#pragma once
#include <c10/formats/MachineBits.h>
#include <c10/formats/ValueTable.h>

#include <algorithm>

namespace c10::formats {

// A deterministic mode as a step function of machine numbers: code(x) = codes[how many thresholds are at most key(x)].
//
// key(x) orders machine numbers as signed integers, -0 before +0. Its leading bits choose where in the thresholds the search begins, which
// then takes `rounds` comparisons: thresholds[i + 2^k - 1] <= key says whether i goes on by 2^k, for k from rounds - 1 down to 0. That is enough
// wherever T has normal numbers; among its subnormal ones the search may end at the code -1, undecided. What lies behind `count` thresholds
// is there to be read by searches that end.
template <typename T>
struct TableSteps {
  using Key = typename Machine<T>::Signed;
  std::vector<Key> thresholds;
  std::vector<int32_t> codes, first;
  int64_t count{0};
  int shift{0}, rounds{0};

  static Key key_of(T x) {
    const auto bits = bits_as<Key>(x);
    return bits ^ (bits >> (Machine<T>::width - 1) & std::numeric_limits<Key>::max());
  }
  // Of a number that is not NaN, by all thresholds.
  int32_t code_of(T x) const {
    const auto end = thresholds.begin() + count;
    return codes[static_cast<size_t>(std::upper_bound(thresholds.begin(), end, key_of(x)) - thresholds.begin())];
  }
};
// Made at the first call for a mode, by the generic codec.
const TableSteps<float>& steps_of_float(const Format& f);
const TableSteps<double>& steps_of_double(const Format& f);

} // namespace c10::formats
