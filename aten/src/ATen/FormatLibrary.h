// The dispatch keys at which kernels for number formats are registered.
//
// Kernels above autograd are registered at two keys: eager autograd's, and kWrappedAutogradKey, the
// key of format tensors within wrappers of torch.func. At the second key a kernel finds the format
// by entry_beneath(), and passes tensors without a format to the stock kernel.
#pragma once
#include <ATen/FormatTensor.h>
#include <torch/library.h>

#include <functional>
#include <string>

// Above autograd. register_kernels: a function that takes the library.
#define TD_REGISTER_AUTOGRAD(register_kernels)       \
  TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse2, m) { \
    register_kernels(m);                             \
  }                                                  \
  TORCH_LIBRARY_IMPL(aten, AutogradHPU, m) {         \
    register_kernels(m);                             \
  }

// Below autograd as well. For composite operators: their stock code would run at every key without
// a kernel of this package.
#define TD_REGISTER_COMPOSITE(register_kernels) \
  TORCH_LIBRARY_IMPL(aten, PrivateUse2, m) {    \
    register_kernels(m);                        \
  }                                             \
  TD_REGISTER_AUTOGRAD(register_kernels)

namespace at::formats {

// The same for one operator of aten that is found at run time. kernel() is called once for each
// key.
using MakeKernel = std::function<torch::CppFunction()>;
void register_below_autograd(const c10::OperatorName& name, const MakeKernel& kernel);
void register_autograd(const c10::OperatorName& name, const MakeKernel& kernel);

// The operator's name as a library's impl() takes it: "add.Tensor" for aten::add.Tensor.
std::string dispatch_name(const c10::OperatorName& name);

} // namespace at::formats
