// Powers that arithmetic computes: x^2 = x x, x^-1 = 1 / x, x^(1/2) = sqrt x. Also powers of
// logarithmic formats, by their logarithms.
#pragma once
#include <ATen/native/formats/operators/facts/Plan.h>
#include <c10/formats/NumberFormat.h>

namespace at::formats {

// pow of a format tensor with such an exponent, by arithmetic, which rounds the exact result once.
// Used for formats with so many digits that float64 would round first; in other formats the results
// are equal. Returns false, and does nothing, for other calls.
bool run_exact_power(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);

// |x|^n of float64 values of a logarithmic table (ValueTable.h), for on_logarithms(). If n times
// x's logarithm is a multiple of 2^-log_bits, it is the number with that logarithm. Otherwise it is
// at least 2^-45 of itself away from all such numbers, on the exact power's side.
at::Tensor magnitude_of_power(const c10::formats::Format& format, const at::Tensor& x,
                              const at::Tensor& n);

} // namespace at::formats
