// The dtype of an operator's result, by its operands.
#pragma once
#include <ATen/FormatTensor.h>

#include <optional>

namespace at::formats {

// Whether a stock operand's dtype does not count now, for nobody chose it.
// operators/boxed/StockFormula.h says so within stock backward formulas, which make zeros and ones
// of the container's dtype; where nobody says so, every operand counts.
void set_stray_operands(bool (*are_stray)());

// What formats and stock floating types among an operator's tensors make of its result, by
// PyTorch's category rules: a format wins over Python scalars and integers; a stock floating tensor
// wins over a format unless only the format's tensor has dimensions, and is as wide as the format
// needs unless only it has them; complex wins over both. Two formats do not mix: an error.
class ResultType {
 public:
  const FormatEntry* format{nullptr};   // the format among the operands
  bool integers{false};                 // or bool, among them
  bool doubles{false};                  // float64, among them

  void see(const at::Tensor& t, const char* op);
  void keep(const at::Tensor& first); // the result has this one's dtype
  bool stock_wins() const;
  // The type that the stock floating or complex ones among them make with the format.
  std::optional<c10::ScalarType> stock() const;
  bool is_complex() const { return stock_ && c10::isComplexType(*stock_); }
  // The result's format, or nullptr where it is of the stock type.
  const FormatEntry* result() const { return stock_wins() ? nullptr : format; }

 private:
  std::optional<c10::ScalarType> stock_; // theirs alone
  bool kept_{false};
  // Of Python: the complex type of the format's compute type, as torch.complex(x, x).
  bool complex_number_{false};
  bool format_has_dims_{false};
  bool stock_has_dims_{false};
};

} // namespace at::formats
