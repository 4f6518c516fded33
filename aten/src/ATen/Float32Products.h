// What stock PyTorch may drop of float32 operands of products: torch.set_float32_matmul_precision,
// torch.backends.*.fp32_precision, allow_tf32. Such a switch is meant for float32 models, not for
// numbers of our formats, whose bits are what is studied.
#pragma once
#include <c10/core/Device.h>
#include <c10/formats/FormatRegistry.h>

#include <string>

namespace at::formats {

inline constexpr int kFloat32Bits = 24;

// Whether an operator's stock kernels multiply float32 numbers of so many significant bits as they
// are.
bool float32_keeps(int bits, const std::string& op, c10::DeviceType device);

// What to say where they do not: an error for who asked for float32's sums; once, that float64
// computes instead.
[[noreturn]] void expect_float32_products(const c10::formats::FormatEntry& entry,
                                          const std::string& op);
void tell_of_float64_products(const c10::formats::FormatEntry& entry, const std::string& op);

} // namespace at::formats
