// The order in which a dot product's terms are added up: one running sum, or others.
//
// Source: Higham, "Accuracy and stability of numerical algorithms" (2002), section 4.1.
#pragma once
#include <c10/formats/NumberFormat.h>

#include <cstdint>

namespace c10::formats {

// Pairwise: the sum of two halves, recursively. Tree: sums of neighbours, then of neighbouring
// sums. Lanes: sums of every n-th term, which are then added as a tree.
enum class SumOrder : uint8_t { Sequential, Pairwise, Tree, Lanes };

// The number of additions after term i of k. Each adds the two newest waiting sums.
TD_HOST_DEVICE constexpr int joins_behind(SumOrder order, int64_t i, int64_t k) {
  int joins = 0;
  if (order == SumOrder::Pairwise) { // one for each half that ends here
    int64_t from = 0, n = k;
    while (n > 1) {
      joins += from + n - 1 == i;
      const int64_t half = n / 2;
      const bool second = i >= from + half;
      from += second ? half : 0;
      n = second ? n - half : half;
    }
    return joins;
  }
  // Two complete subtrees with as many terms each.
  for (int64_t bit = 1; (i + 1) % (2 * bit) == 0; bit *= 2) ++joins;
  if (i + 1 == k) { // subtrees without a neighbour of their size, from the last
    for (int64_t rest = k & (k - 1); rest; rest &= rest - 1) ++joins;
  }
  return joins;
}

} // namespace c10::formats
