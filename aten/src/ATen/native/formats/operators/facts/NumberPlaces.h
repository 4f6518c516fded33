// Numbers among an operator's arguments: how they are rounded, and what their infinities become
// (FillInfinity.h).
#pragma once
#include <ATen/core/stack.h>

#include <vector>

namespace at::formats {

// An argument that is put into a tensor (Fill), or that elements are compared with (Bound).
struct NumberPlace {
  enum class Use : uint8_t { Fill, Bound };
  int argument;
  Use use;
};
// Applies the first argument's format, also within wrappers of torch.func: rounds numbers that are
// put into it, and replaces infinities that its elements are compared with.
void exchange_numbers(const std::vector<NumberPlace>& places, size_t arguments,
                      torch::jit::Stack* stack);
// Whether float32 has the numbers in those places exactly.
bool float32_has(const std::vector<NumberPlace>& places, size_t arguments,
                 const torch::jit::Stack& stack);

} // namespace at::formats
