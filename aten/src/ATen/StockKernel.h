// The kernel that an operator had at a dispatch key before this package replaced it, so that a call
// can go on to it. Releases hand it out in two ways.
#pragma once
#include <ATen/Releases.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace at::formats {

#if TORCH_DTYPES_SINCE(2, 11)
using StockKernel = c10::SafeKernelFunction;

inline StockKernel stock_kernel(const c10::OperatorHandle& op, c10::DispatchKey key) {
  return op.getComputedKernelForDispatchKey(key);
}
#else // PyTorch 2.6: tools/intree adds this method to its dispatcher
using StockKernel = c10::KernelFunction;

inline StockKernel stock_kernel(const c10::OperatorHandle& op, c10::DispatchKey key) {
  return op.computedKernel(key);
}
#endif

} // namespace at::formats
