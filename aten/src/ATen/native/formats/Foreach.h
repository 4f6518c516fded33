// _foreach_ operators over lists in which tensors of ours and stock ones stand side by side.
#pragma once
#include <ATen/native/formats/BoxedCall.h>

namespace at::formats {

// Runs such a call place by place, since stock PyTorch finds a result's type for every place anew; gives back whether it did. Lists of
// one dtype are left to the boxed kernel, in one go.
bool run_mixed_lists(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);

} // namespace at::formats
