// What happens where an operator whose operands stock wants in one dtype (a matrix product, a layer) gets a stock floating tensor beside
// one of ours: an error, as stock gives it beside bfloat16, or type promotion. A block's word counts, else the process's.
#pragma once
#include <cstdint>
#include <optional>

namespace at::formats {

enum class MixedOperands : uint8_t { Raise, Promote };

MixedOperands mixed_operands();
// The block's of this thread; returns what it was.
std::optional<MixedOperands> mixed_operands_override();
std::optional<MixedOperands> set_mixed_operands_override(std::optional<MixedOperands> mode);
void set_mixed_operands_default(MixedOperands mode);

} // namespace at::formats
