// The number of elements that a CPU loop handles at a time if it keeps values between two steps.
#pragma once
#include <cstdint>

namespace at::formats {

// Several arrays of so many float64 numbers fit on the stack and in the first cache.
inline constexpr int64_t kTile = 1024;

} // namespace at::formats
