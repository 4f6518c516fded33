// torch.jit.trace and the operators that stock leaves out of its graphs, recording those beneath them instead: for tensors of ours these run
// on stock stand-ins, so that the operator itself must be recorded.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>

namespace at::formats {

bool is_tracing();

// Runs a call of op (convolution) whose arguments are on the stack, unseen by the tracer, and records it as one node with one result.
void recorded(const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::function<void()>& run);

} // namespace at::formats
