// Derivatives of in-place operators whose stock formula builds a gradient from an operand's saved
// sizes and container.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <optional>

namespace at::formats {

// The operator without its underscore, if that has the same overload.
std::optional<c10::OperatorHandle> functional_form(const c10::OperatorHandle& op);

// Replaces the call, where autograd records it, by the functional operator, with its own
// derivative, and copy_ of its result into the operand.
torch::CppFunction in_place_kernel(const c10::OperatorHandle& functional,
                                   const c10::FunctionSchema& schema);

} // namespace at::formats
