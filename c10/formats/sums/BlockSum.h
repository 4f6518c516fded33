// Parameters of sums that add several products at once.
#pragma once
#include <c10/formats/NumberFormat.h>

#include <cstdint>
#include <optional>

namespace c10::formats {

// Sums as tensor cores make them: each product is cut at one place below the largest exponent, and
// their sum is rounded into a register. BlockRegister.h computes them; docs/accumulators.md
// explains each number.
struct BlockSum {
  int64_t terms{1};                    // Products that are added before the register is rounded.
  int extra_bits{0};                   // Bits kept below the register's last place.
  Rounding align{Rounding::TowardZero}; // The mode by which each product is cut.
  // The products of every interleave-th place are aligned among themselves.
  int interleave{1};
  // If set, the register is added to the finished sum, which keeps so many extra bits. Otherwise
  // the register is aligned with the products.
  std::optional<int> late;
  std::optional<int> min_exponent; // The smallest exponent that terms are aligned to.
  bool product_limit{false}; // true: products beyond the register's range are infinite
};

// A block's parameters, ready for one dot product.
struct BlockAdder {
  BlockSum sum;
  Format reg;        // with its rounding mode
  int low_left, low_right; // the operands' smallest exponents: smaller numbers are not normalised
  int bits;          // behind the point in aligned terms: the register's and the extra ones

  TD_HOST_DEVICE int late_bits() const { return reg.man_bits + *sum.late; }
};

} // namespace c10::formats
