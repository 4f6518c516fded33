// The error for an operand that cannot be used with a format tensor.
#pragma once
#include <string>

namespace at::formats {

// kind: "sparse", "nested", "quantised" or "mkldnn".
[[noreturn]] void refuse_operand(const std::string& op, const std::string& dtype, const char* kind);

// Registers the operators that the table refuses.
void register_refusals();

} // namespace at::formats
