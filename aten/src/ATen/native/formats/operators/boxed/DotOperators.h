// Operators that add up products or values, if the accumulation policy needs this package's kernels
// (Accumulate.h) or a GPU has tensor cores.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>
#include <ATen/native/formats/operators/facts/Plan.h>

namespace at::formats {

// The kernel of a row for a schema. nullptr if none takes it: named dimensions, out_dtype=, several
// results in out=.
ProductKernel select_kernel(const ProductKernels& products, const c10::FunctionSchema& schema);

// The step PolicyProducts: runs the operator if the policy needs this package's kernels and all
// tensors have one format. Otherwise returns false and leaves the stack unchanged.
bool run_policy_products(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);

// The step RefusePolicy: raises for such a call, if no kernel obeys the policy.
bool refuse_policy(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);

// The step TensorCores: runs the operator on a GPU's tensor cores if they take it (TensorCores.h).
bool run_on_tensor_cores(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);

} // namespace at::formats
