// The kernel that an operator has at a dispatch key before one of ours takes its place, to go on
// to. Releases hand it out in two ways.
#pragma once
#include <ATen/Releases.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace at::formats {

#if TORCH_DTYPES_SINCE(2, 11)
using StockKernel = c10::SafeKernelFunction;

inline StockKernel stock_kernel(const c10::OperatorHandle& op, c10::DispatchKey key) {
  return op.getComputedKernelForDispatchKey(key);
}
#else // PyTorch 2.6, whose dispatcher tools/intree lets speak
using StockKernel = c10::KernelFunction;

inline StockKernel stock_kernel(const c10::OperatorHandle& op, c10::DispatchKey key) {
  return op.computedKernel(key);
}
#endif

} // namespace at::formats
