// How many elements a loop of the CPU works on at a time where it keeps values between two steps.
#pragma once
#include <cstdint>

namespace at::formats {

// Some arrays of float64 lie on the stack and in the first cache.
inline constexpr int64_t kTile = 1024;

} // namespace at::formats
