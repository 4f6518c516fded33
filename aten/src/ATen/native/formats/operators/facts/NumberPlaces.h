// Numbers that a caller writes among an operator's arguments: what they are rounded to, and what
// the infinities among them become (FillInfinity.h).
#pragma once
#include <ATen/core/stack.h>

#include <vector>

namespace at::formats {

// An operator's argument that is put into a tensor, or that its elements are held against.
struct NumberPlace {
  enum class Use : uint8_t { Fill, Bound };
  int argument;
  Use use;
};
// Beside a tensor of ours, maybe within wrappers of torch.func, in the first argument that is one:
// rounds what is put into it, and exchanges the infinities that its elements are held against.
void exchange_numbers(const std::vector<NumberPlace>& places, size_t arguments,
                      torch::jit::Stack* stack);
// Whether float32 has the numbers in those places as they are.
bool float32_has(const std::vector<NumberPlace>& places, size_t arguments,
                 const torch::jit::Stack& stack);

} // namespace at::formats
