#include <ATen/Float32Products.h>

#include <ATen/Context.h>
#include <ATen/Releases.h>

namespace at::formats {
namespace {

using c10::formats::FormatEntry;

constexpr int kTf32Bits = 11, kBfloat16Bits = 8;

constexpr const char* kSwitches =
    "torch.set_float32_matmul_precision(\"highest\") and fp32_precision = \"ieee\" or allow_tf32 = "
    "False in torch.backends";

#if TORCH_DTYPES_SINCE(2, 11)
using at::Float32Op;

Float32Op kind_of(const std::string& op) {
  if (op.find("conv") != std::string::npos) return Float32Op::CONV;
  return op.find("lstm") != std::string::npos || op.find("gru") != std::string::npos ||
          op.find("rnn") != std::string::npos
      ? Float32Op::RNN
      : Float32Op::MATMUL;
}

// The number of significand bits of an operand that a stock product keeps.
int operand_bits(const std::string& op, c10::DeviceType device) {
  const auto& context = at::globalContext();
  const Float32Op kind = kind_of(op);
  if (device == c10::DeviceType::CUDA) {
    // Not allowTF32CuBLAS(), which raises where a user has set precisions by the newer names.
    return context.float32Precision(at::Float32Backend::CUDA, kind) == at::Float32Precision::TF32
        ? kTf32Bits
        : kFloat32Bits;
  }
  if (device != c10::DeviceType::CPU) return kFloat32Bits;
  const at::Float32Precision precision = context.float32Precision(at::Float32Backend::MKLDNN, kind);
  if (precision == at::Float32Precision::BF16) return kBfloat16Bits;
  return precision == at::Float32Precision::TF32 ? kTf32Bits : kFloat32Bits;
}
#else
int operand_bits(const std::string& op, c10::DeviceType device) {
  const auto& context = at::globalContext();
  const bool matrices =
      op.find("conv") == std::string::npos && op.find("lstm") == std::string::npos;
  if (device == c10::DeviceType::CUDA)
    return (matrices ? context.allowTF32CuBLAS() : context.allowTF32CuDNN()) ? kTf32Bits
                                                                             : kFloat32Bits;
  return matrices && context.float32MatmulPrecision() == at::Float32MatmulPrecision::MEDIUM
      ? kBfloat16Bits
      : kFloat32Bits;
}
#endif

} // namespace

bool float32_keeps(int bits, const std::string& op, c10::DeviceType device) {
  return bits <= kBfloat16Bits || bits <= operand_bits(op, device);
}

void expect_float32_products(const FormatEntry& entry, const std::string& op) {
  TORCH_CHECK(false, op, ": expected float32 products that keep all bits of torch.", entry.name,
              " operands under the accumulation policy float32, but got PyTorch settings that drop "
              "some; undo them by ",
              kSwitches, ", or use the policy machine, which then takes float64");
}

void tell_of_float64_products(const FormatEntry& entry, const std::string& op) {
  TORCH_WARN_ONCE("torch_dtypes: ", op, " of torch.", entry.name,
                  " is computed in float64, since stock PyTorch is set to drop bits of float32 ",
                  "products' operands. Get float32's speed by ", kSwitches, ".");
}

} // namespace at::formats
