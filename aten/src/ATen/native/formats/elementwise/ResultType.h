// The dtype of an operator's result, derived from its operands.
#pragma once
#include <ATen/FormatTensor.h>

#include <optional>

namespace at::formats {

// Sets a function that tells whether the dtypes of stock operands are to be ignored now, because
// nobody chose them. It is true within stock backward formulas, which make zeros and ones of the
// container's dtype (operators/boxed/StockFormula.h). Without a function every operand counts.
void set_stray_operands(bool (*are_stray)());

// Combines formats and stock floating dtypes of an operator's tensors by PyTorch's category rules.
// - A format wins over Python scalars and integers.
// - A stock floating tensor wins over a format, unless only the format tensor has dimensions. The
//   result is as wide as the format needs, unless only the stock tensor has dimensions.
// - Complex wins over both.
// - Two formats raise.
class ResultType {
 public:
  const FormatEntry* format{nullptr};   // the operands' format, if any
  bool integers{false};                 // an operand has integers or bool
  bool doubles{false};                  // an operand has float64

  void see(const at::Tensor& t, const char* op);
  void keep(const at::Tensor& first); // fixes the result's dtype to this tensor's
  bool stock_wins() const;
  // The type that the stock floating or complex operands and the format promote to.
  std::optional<c10::ScalarType> stock() const;
  bool is_complex() const { return stock_ && c10::isComplexType(*stock_); }
  // The result's format, or nullptr if its dtype is stock.
  const FormatEntry* result() const { return stock_wins() ? nullptr : format; }

 private:
  std::optional<c10::ScalarType> stock_; // the promotion of stock operands alone
  bool kept_{false};
  // A complex Python number: the result is the complex type of the format's compute type, as for
  // torch.complex(x, x).
  bool complex_number_{false};
  bool format_has_dims_{false};
  bool stock_has_dims_{false};
};

} // namespace at::formats
