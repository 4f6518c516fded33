// PyTorch's switches that let products drop bits of float32 operands:
// torch.set_float32_matmul_precision, torch.backends.*.fp32_precision, allow_tf32. They are meant
// for float32 models, and not for numbers of a format, whose bits are studied.
#pragma once
#include <c10/core/Device.h>
#include <c10/formats/FormatRegistry.h>

#include <string>

namespace at::formats {

inline constexpr int kFloat32Bits = 24;

// Whether an operator's stock kernels keep all of `bits` significant bits of float32 operands.
bool float32_keeps(int bits, const std::string& op, c10::DeviceType device);

// Where stock kernels drop bits: an error if the user chose float32 sums, else a warning, once,
// that float64 computes instead.
[[noreturn]] void expect_float32_products(const c10::formats::FormatEntry& entry,
                                          const std::string& op);
void tell_of_float64_products(const c10::formats::FormatEntry& entry, const std::string& op);

} // namespace at::formats
