// Composite contractions under the accumulation policies.
#pragma once
#include <ATen/core/stack.h>

#include <string>

namespace at::formats {

// tensordot and linalg_vecdot, by name: as one matrix product, where a policy asks for what no stock kernel does. Gives back whether it did;
// else the stack is as it was.
bool run_contraction(const std::string& name, torch::jit::Stack* stack);

} // namespace at::formats
