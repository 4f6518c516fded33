// Operators that PyTorch has for CUDA alone, made of the CPU's.
#pragma once
#include <ATen/core/ivalue.h>
#include <ATen/core/operator_name.h>

#include <vector>

namespace simulated_gpu {

using Composed = std::vector<c10::IValue> (*)(const std::vector<c10::IValue>& arguments);

// nullptr: the CPU has the operator itself, or neither has it here.
Composed composed(const c10::OperatorName& name);

} // namespace simulated_gpu
