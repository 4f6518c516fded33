// Powers that arithmetic has: x^2 = x x, x^-1 = 1 / x, x^(1/2) = sqrt x; and those of logarithmic
// formats, by their logarithms.
#pragma once
#include <ATen/native/formats/operators/facts/Plan.h>
#include <c10/formats/NumberFormat.h>

namespace at::formats {

// pow of a tensor of ours and one of these exponents by the arithmetic, which rounds exact results
// once, in formats with so many digits that float64's would be rounded before (in others both are
// the same). false, and nothing is done: it is none of them.
bool run_exact_power(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);

// |x|^n of float64 values of a logarithmic table (ValueTable.h), for on_logarithms(). Where n times
// x's logarithm is a multiple of 2^-log_bits, the number with that logarithm; else one that is at
// least 2^-45 of itself away from all such numbers, on the right side.
at::Tensor magnitude_of_power(const c10::formats::Format& format, const at::Tensor& x,
                              const at::Tensor& n);

} // namespace at::formats
