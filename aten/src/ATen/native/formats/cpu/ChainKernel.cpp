// Loops over arithmetic that rounds to nearest.
#include <ATen/native/formats/cpu/ChainKernel.h>

namespace at::formats::CPU_CAPABILITY {
namespace {

void binary_nearest(BinaryOp op, const float* a, const float* b, float* out, int64_t n) {
  const auto each = [=](auto f) {
    for (int64_t i = 0; i < n; ++i) out[i] = f(a[i], b[i]);
  };
  switch (op) {
    case BinaryOp::Add: return each([](float x, float y) { return x + y; });
    case BinaryOp::Sub: return each([](float x, float y) { return x - y; });
    case BinaryOp::Mul: return each([](float x, float y) { return x * y; });
    case BinaryOp::Div: return each([](float x, float y) { return x / y; });
  }
}

} // namespace

void fill_chain(ChainKernels& kernels);

void fill_chain(ChainKernels& kernels) {
  kernels.binary_nearest = &binary_nearest;
}

} // namespace at::formats::CPU_CAPABILITY
