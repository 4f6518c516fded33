// The kernel that every operator has from the first day: decode, run the stock kernel, encode.
#pragma once
#include <ATen/FormatTensor.h>

namespace at::formats {

// Registers it for every aten operator that takes a tensor, makes no view, has no CompositeImplicitAutograd kernel and no kernel of
// ours. It is registered per operator, not only as the key's fallback: otherwise CompositeExplicitAutograd kernels would run on our
// tensors, allocate from self.options() and return the container's dtype. Returns how many operators got it.
int register_boxed_kernels();

// What formats and stock floating types among an operator's tensors make of its result, by PyTorch's category rules: a format wins
// over Python scalars and integers; a stock floating tensor wins over a format unless only the format's tensor has dimensions; complex
// wins over both. Two formats do not mix: an error.
struct ResultType {
  const FormatEntry* format{nullptr};             // the format among the operands
  std::optional<c10::ScalarType> stock;           // set: the result is of this stock floating or complex type
  void see(const at::Tensor& t, const char* op);
  const FormatEntry* result() const { return stock_wins() ? nullptr : format; }
  bool stock_wins() const;
  bool is_complex() const { return stock && c10::isComplexType(*stock); }

 private:
  bool format_has_dims_{false};
  bool stock_has_dims_{false};
};

} // namespace at::formats
