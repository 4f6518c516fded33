// How often a thread's overrides of rounding mode and accumulation policy took effect. If a block
// ends with the numbers it began with, its override did nothing. Apart from the overrides' own
// headers, which most sources include.
#pragma once
#include <cstdint>

namespace at::formats {

struct OverrideUses {
  uint64_t rounding{0};
  uint64_t accumulation{0};
};

// The calling thread's counters.
OverrideUses& override_uses();

} // namespace at::formats
