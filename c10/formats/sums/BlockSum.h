// What says how several products at once are added up.
#pragma once
#include <c10/formats/NumberFormat.h>

#include <cstdint>
#include <optional>

namespace c10::formats {

// Several products at once, as tensor cores add them up: each cut at one place below the largest
// exponent, and their sum rounded into a register. BlockRegister.h does it, and
// docs/accumulators.md says what each number means.
struct BlockSum {
  int64_t terms{1};                    // products that are added before the register is rounded
  int extra_bits{0};                   // kept below the register's last place
  Rounding align{Rounding::TowardZero}; // of each product where it is cut
  // The products of every interleave-th place are aligned among themselves.
  int interleave{1};
  // The register joins the finished sum, of which so many extra bits are kept; else it is aligned
  // with the products.
  std::optional<int> late;
  std::optional<int> min_exponent; // the smallest exponent that is aligned to
  bool product_limit{false}; // products beyond the register's range are infinite
};

// A block's numbers as one dot product needs them.
struct BlockAdder {
  BlockSum sum;
  Format reg;        // with the mode in which it is rounded
  int low_left, low_right; // the operands' smallest exponents: smaller numbers are not normalised
  int bits;          // behind the point of what is aligned: the register's, and the extra ones

  TD_HOST_DEVICE int late_bits() const { return reg.man_bits + *sum.late; }
};

} // namespace c10::formats
