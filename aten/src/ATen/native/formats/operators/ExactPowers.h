// Powers that arithmetic has: x^2 = x x, x^-1 = 1 / x, x^(1/2) = sqrt x.
#pragma once
#include <ATen/native/formats/operators/Plan.h>

namespace at::formats {

// pow of a tensor of ours and one of these exponents by the arithmetic, which rounds exact results once, in formats with so many digits that
// float64's would be rounded before (in others both are the same). false, and nothing is done: it is none of them.
bool run_exact_power(const Plan& plan, torch::jit::Stack* stack);

} // namespace at::formats
