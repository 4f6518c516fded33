// Operators that PyTorch has for CUDA alone, composed of the CPU's.
#pragma once
#include <ATen/core/ivalue.h>
#include <ATen/core/operator_name.h>

#include <vector>

namespace simulated_gpu {

using Composed = std::vector<c10::IValue> (*)(const std::vector<c10::IValue>& arguments);

// Returns nullptr where the CPU has the operator itself, or where there is no composition.
Composed composed(const c10::OperatorName& name);

} // namespace simulated_gpu
