#include <ATen/native/formats/elementwise/ResultType.h>

#include <c10/formats/FormatRegistryTypes.h>

#include <string_view>

namespace at::formats {

using c10::ScalarType;

static bool (*operands_are_stray)() = nullptr;

void set_stray_operands(bool (*are_stray)()) {
  operands_are_stray = are_stray;
}

bool ResultType::stock_wins() const {
  if (!stock_) return false;
  if (is_complex()) return true;
  return (stock_has_dims_ || !format_has_dims_) && !(operands_are_stray && operands_are_stray());
}

// Matrix products, for which torch_dtypes.matmul takes two formats.
static bool is_product(std::string_view op) {
  return op.ends_with("matmul") || op.ends_with("mm") || op.ends_with("linear");
}

std::optional<ScalarType> ResultType::stock() const {
  // A stock dtype that outranks the format is not widened for it.
  const bool alone = kept_ || (stock_has_dims_ && !format_has_dims_);
  return !stock_ || !format || alone ? stock_
                                     : c10::formats::promoted_stock(*stock_, format->format);
}

void ResultType::see(const at::Tensor& t, const char* op) {
  if (!t.defined()) return;
  const bool has_dims = t.dim() > 0;
  const FormatEntry* entry = entry_beneath(t);
  if (entry) {
    TORCH_CHECK( // not a TypeError: Python's operators would hide its message
        !format || format == entry, op, ": expected tensors of one number format, but got ",
        format->name, " and ", entry->name, ". Convert one of them first, with x.to(torch.",
        format->name, ") or x.to(torch.", entry->name,
        is_product(op) ? "), or give the result's dtype: torch_dtypes.matmul(a, b, out=...)" : ")");
    format = entry;
    format_has_dims_ |= has_dims;
  } else if (c10::isComplexType(t.scalar_type())) {
    const bool number = t.unsafeGetTensorImpl()->is_wrapped_number();
    const ScalarType seen = number ? ScalarType::ComplexFloat : t.scalar_type();
    complex_number_ |= number;
    stock_ = c10::promoteTypes(stock_.value_or(seen), seen);
    stock_has_dims_ |= has_dims;
  } else if (is_complex()) {
    return;
  } else if (c10::isFloatingType(t.scalar_type()) &&
             !t.unsafeGetTensorImpl()->is_wrapped_number()) {
    // tensors with dimensions outrank those without
    if (has_dims && !stock_has_dims_) stock_.reset();
    if (has_dims || !stock_has_dims_)
      stock_ = stock_.has_value() ? c10::promoteTypes(*stock_, t.scalar_type()) : t.scalar_type();
    stock_has_dims_ |= has_dims;
    doubles |= t.scalar_type() == ScalarType::Double;
  } else if (!t.unsafeGetTensorImpl()->is_wrapped_number()) {
    integers = true;
  }
  if (complex_number_ && format)
    stock_ = c10::promoteTypes(*stock_, c10::toComplexType(format->compute));
}

void ResultType::keep(const at::Tensor& first) {
  if (entry_beneath(first)) {
    stock_.reset();
  } else if (c10::isFloatingType(first.scalar_type()) || c10::isComplexType(first.scalar_type())) {
    stock_ = first.scalar_type();
    stock_has_dims_ = kept_ = true;
  }
}

} // namespace at::formats
