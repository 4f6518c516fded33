// Operators that add up products or values, where an accumulation policy asks for own kernels
// (Accumulate.h), or a GPU has tensor cores.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>
#include <ATen/native/formats/operators/facts/Plan.h>

namespace at::formats {

// Of a row's kernels the one for a schema; nullptr where none serves it: named dimensions,
// out_dtype=, several results in out=.
ProductKernel select_kernel(const ProductKernels& products, const c10::FunctionSchema& schema);

// The step PolicyProducts: runs the operator if the policy asks for own kernels and all its tensors
// have one format. False, and the stack is as it was: another call.
bool run_policy_products(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);

// The step RefusePolicy: the error for such a call, where no kernel obeys the policy.
bool refuse_policy(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);

// The step TensorCores: runs the operator on a GPU's tensor cores where they serve (TensorCores.h).
bool run_on_tensor_cores(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);

} // namespace at::formats
