// The dispatch keys at which kernels for number formats are registered.
//
// What stands above autograd is registered at two keys alike: eager autograd's, and that of tensors
// within wrappers of torch.func, which have another backend's (kWrappedAutogradKey). At the second
// one a kernel finds our tensors by entry_beneath(), and hands what has none to stock.
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

// Below autograd as well: composite operators, whose stock code would run at every key that has no
// kernel of ours.
#define TD_REGISTER_COMPOSITE(register_kernels) \
  TORCH_LIBRARY_IMPL(aten, PrivateUse2, m) {    \
    register_kernels(m);                        \
  }                                             \
  TD_REGISTER_AUTOGRAD(register_kernels)

namespace at::formats {

// The same for one operator of aten that is found at run time; kernel() makes one for each key.
using MakeKernel = std::function<torch::CppFunction()>;
void register_below_autograd(const c10::OperatorName& name, const MakeKernel& kernel);
void register_autograd(const c10::OperatorName& name, const MakeKernel& kernel);

// As a library's impl() takes it: "add.Tensor" of aten::add.Tensor.
std::string dispatch_name(const c10::OperatorName& name);

} // namespace at::formats
