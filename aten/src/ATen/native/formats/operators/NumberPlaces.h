// Numbers that a caller writes among an operator's arguments, and the infinities among them: see FillInfinity.h.
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
// Exchanges infinities in those places, beside a tensor of ours, maybe within wrappers of torch.func, in the first argument that is one.
void exchange_infinities(const std::vector<NumberPlace>& places, size_t arguments, torch::jit::Stack* stack);

} // namespace at::formats
