// How often a thread's override of the rounding mode, and of the accumulation policy, was followed.
// A block that ends with no more than it began with did nothing. Beside the overrides' own headers,
// which most sources include.
#pragma once
#include <cstdint>

namespace at::formats {

struct OverrideUses {
  uint64_t rounding{0};
  uint64_t accumulation{0};
};

// The calling thread's.
OverrideUses& override_uses();

} // namespace at::formats
