#include <ATen/native/formats/BoxedCall.h>

#include <ATen/core/ivalue.h>
#include <ATen/ops/_to_copy_ops.h>
#include <ATen/ops/resize_ops.h>
#include <torch/csrc/autograd/function.h>

namespace at::formats {

using c10::ScalarType;

// ---- ResultType ----

bool ResultType::stock_wins() const {
  return stock && (is_complex() || stock_has_dims_ || !format_has_dims_);
}

// In the backward formulas of stock PyTorch a tensor of the container's type is a zero or a one made from a gradient's options().
static bool is_leak_of(const FormatEntry* format, const at::Tensor& t) {
  return format && t.scalar_type() == format->container && torch::autograd::get_current_node();
}

void ResultType::see(const at::Tensor& t, const char* op) {
  if (!t.defined()) return;
  const bool has_dims = t.dim() > 0;
  if (is_format_tensor(t)) {
    const FormatEntry& entry = entry_of(t);
    TORCH_CHECK( // no TypeError: Python's operators would hide its message
        !format || format == &entry, op, ": expected tensors of one number format, but got ", format->name, " and ", entry.name,
        ". Convert one of them first, for example with x.to(torch.", format->name, ")");
    format = &entry;
    format_has_dims_ |= has_dims;
    if (stock == entry.container && torch::autograd::get_current_node()) stock.reset();
  } else if (c10::isComplexType(t.scalar_type())) {
    const ScalarType seen = t.unsafeGetTensorImpl()->is_wrapped_number() ? ScalarType::ComplexFloat : t.scalar_type();
    stock = c10::promoteTypes(stock.value_or(seen), seen);
  } else if (is_complex()) {
    return;
  } else if (c10::isFloatingType(t.scalar_type()) && !t.unsafeGetTensorImpl()->is_wrapped_number()) {
    if (is_leak_of(format, t)) return;
    if (has_dims && !stock_has_dims_) stock.reset(); // dimensions outrank none
    if (has_dims || !stock_has_dims_) stock = stock.has_value() ? c10::promoteTypes(*stock, t.scalar_type()) : t.scalar_type();
    stock_has_dims_ |= has_dims;
  }
}

// ---- Plan ----

static Plan::Slot slot_of(const c10::Argument& argument) {
  using Slot = Plan::Slot;
  c10::TypePtr type = argument.real_type();
  if (const auto* optional = type->castRaw<c10::OptionalType>()) type = optional->getElementType();
  switch (type->kind()) {
    case c10::TypeKind::TensorType: return Slot::Tensor;
    case c10::TypeKind::ScalarTypeType: return Slot::Dtype;
    case c10::TypeKind::ListType: {
      c10::TypePtr element = type->castRaw<c10::ListType>()->getElementType();
      const bool optional = element->kind() == c10::TypeKind::OptionalType;
      if (optional) element = element->castRaw<c10::OptionalType>()->getElementType();
      if (element->kind() != c10::TypeKind::TensorType) return Slot::Other;
      return optional ? Slot::OptionalTensorList : Slot::TensorList;
    }
    default: return Slot::Other;
  }
}

Plan::Plan(const c10::FunctionSchema& schema) : name(schema.name()) {
  for (const c10::Argument& a : schema.arguments()) {
    arguments.push_back({slot_of(a), a.alias_info() && a.alias_info()->isWrite()});
  }
}

bool Plan::makes_view(const c10::FunctionSchema& schema) {
  for (const c10::Argument& r : schema.returns()) {
    if (r.alias_info() && !r.alias_info()->isWrite()) return true;
  }
  return false;
}

bool Plan::takes_tensor() const {
  for (const Argument& a : arguments) {
    if (a.slot != Slot::Other && a.slot != Slot::Dtype) return true;
  }
  return false;
}

// ---- BoxedCall ----

BoxedCall::BoxedCall(const Plan& plan, torch::jit::Stack* stack) {
  const size_t base = stack->size() - plan.arguments.size();
  choose_types(plan, *stack, base);
  for (size_t i = 0; i < plan.arguments.size(); ++i) replace(plan.arguments[i], (*stack)[base + i]);
}

void BoxedCall::choose_types(const Plan& plan, torch::jit::Stack& stack, size_t base) {
  ResultType type;
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    each_tensor(plan.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) { type.see(t, plan.name.c_str()); });
  }
  TORCH_INTERNAL_ASSERT(type.format, plan.name, " came to the number formats' kernel without a tensor of theirs");
  format_ = type.result();
  compute_ = type.format->compute;
  if (type.stock_wins()) {
    compute_ = c10::promoteTypes(compute_, c10::toRealValueType(*type.stock));
    if (!type.is_complex()) stock_ = *type.stock;
  }
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    c10::IValue& value = stack[base + i];
    if (plan.arguments[i].slot != Plan::Slot::Dtype || !value.isInt()) continue;
    const auto asked = static_cast<ScalarType>(value.toInt());
    format_ = requested_format(asked, *type.format);
    stock_.reset();
    if (format_) {
      compute_ = c10::promoteTypes(compute_, format_->compute);
      value = static_cast<int64_t>(compute_);
    }
  }
}

at::Tensor BoxedCall::stand_in(const at::Tensor& t, bool written) {
  if (!is_format_tensor(t)) return t;
  for (Pair& p : pairs_) {
    if (p.ours.is_same(t)) {
      p.written |= written;
      return p.stock;
    }
  }
  pairs_.push_back({t, decoded(t, compute_), written});
  return pairs_.back().stock;
}

void BoxedCall::replace(const Plan::Argument& argument, c10::IValue& value) {
  using Slot = Plan::Slot;
  if (argument.slot == Slot::Tensor && value.isTensor()) {
    if (is_format_tensor(value.toTensor())) value = stand_in(value.toTensor(), argument.written);
  } else if (argument.slot == Slot::TensorList && value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : value.toTensorVector()) list.push_back(stand_in(t, argument.written));
    value = std::move(list);
  } else if (argument.slot == Slot::OptionalTensorList && value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& t : value.toOptionalTensorVector()) {
      list.push_back(t ? std::optional<at::Tensor>(stand_in(*t, argument.written)) : t);
    }
    value = std::move(list);
  }
}

at::Tensor BoxedCall::result(const at::Tensor& t) const {
  if (!t.defined()) return t;
  for (const Pair& p : pairs_) {
    if (p.written && p.stock.is_same(t)) return p.ours;
  }
  if (t.scalar_type() != compute_) return t;
  if (format_) return encoded(t, *format_);
  if (stock_ && *stock_ != compute_) return at::_ops::_to_copy::call(t, *stock_, {}, {}, {}, false, {});
  return t;
}

void BoxedCall::finish(size_t results, torch::jit::Stack* stack) const {
  for (const Pair& p : pairs_) {
    if (!p.written) continue;
    if (p.ours.sizes() != p.stock.sizes()) at::_ops::resize_::call(p.ours, c10::fromIntArrayRefSlow(p.stock.sizes()), {});
    encode_into(p.ours, p.stock);
  }
  for (size_t i = stack->size() - results; i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (value.isTensor()) {
      value = result(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : value.toTensorVector()) list.push_back(result(t));
      value = std::move(list);
    }
  }
}

} // namespace at::formats
