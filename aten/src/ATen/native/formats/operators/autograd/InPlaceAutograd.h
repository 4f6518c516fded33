// Derivatives of in-place operators whose stock formula makes a gradient from what it kept of an
// operand: its sizes and the container.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <optional>

namespace at::formats {

// The operator without its underscore, if that has the same overload.
std::optional<c10::OperatorHandle> functional_form(const c10::OperatorHandle& op);

// Where autograd records the call: the functional operator, with its own derivative, and copy_ of
// its result into the operand.
torch::CppFunction in_place_kernel(const c10::OperatorHandle& functional,
                                   const c10::FunctionSchema& schema);

} // namespace at::formats
