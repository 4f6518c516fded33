#include <ATen/native/formats/Boxed.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/_to_copy_ops.h>
#include <ATen/ops/resize_ops.h>
#include <torch/library.h>

#include <set>

namespace at::formats {

using c10::ScalarType;

bool ResultType::stock_wins() const {
  return stock && (is_complex() || stock_has_dims_ || !format_has_dims_);
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
  } else if (c10::isComplexType(t.scalar_type())) {
    const ScalarType seen = t.unsafeGetTensorImpl()->is_wrapped_number() ? ScalarType::ComplexFloat : t.scalar_type();
    stock = c10::promoteTypes(stock.value_or(seen), seen);
  } else if (is_complex()) {
    return;
  } else if (c10::isFloatingType(t.scalar_type()) && !t.unsafeGetTensorImpl()->is_wrapped_number()) {
    if (has_dims && !stock_has_dims_) stock.reset(); // dimensions outrank none
    if (has_dims || !stock_has_dims_) stock = stock ? c10::promoteTypes(*stock, t.scalar_type()) : t.scalar_type();
    stock_has_dims_ |= has_dims;
  }
}

namespace {

enum class Slot : uint8_t { Other, Tensor, TensorList, OptionalTensorList, Dtype };

// What the kernel must know of an operator's schema, worked out once.
struct Argument {
  Slot slot;
  bool written;
};

Slot slot_of(const c10::Argument& argument) {
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

std::vector<Argument> arguments_of(const c10::FunctionSchema& schema) {
  std::vector<Argument> arguments;
  for (const c10::Argument& a : schema.arguments()) {
    arguments.push_back({slot_of(a), a.alias_info() && a.alias_info()->isWrite()});
  }
  return arguments;
}

// One call: the tensors of ours among the arguments and the stock ones that stand for them.
class Call {
 public:
  explicit Call(ScalarType compute) : compute_(compute) {}

  at::Tensor stand_in(const at::Tensor& t, bool written) {
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

  void write_back() const {
    for (const Pair& p : pairs_) {
      if (!p.written) continue;
      if (p.ours.sizes() != p.stock.sizes()) at::_ops::resize_::call(p.ours, c10::fromIntArrayRefSlow(p.stock.sizes()), {});
      encode_into(p.ours, p.stock);
    }
  }

  at::Tensor result(const at::Tensor& t, const FormatEntry* format, std::optional<ScalarType> stock) const {
    if (!t.defined()) return t;
    for (const Pair& p : pairs_) {
      if (p.written && p.stock.is_same(t)) return p.ours;
    }
    if (t.scalar_type() != compute_) return t;
    if (format) return encoded(t, *format);
    if (stock && *stock != t.scalar_type()) return at::_ops::_to_copy::call(t, *stock, {}, {}, {}, false, {});
    return t;
  }

 private:
  struct Pair {
    at::Tensor ours;
    at::Tensor stock;
    bool written;
  };
  ScalarType compute_;
  c10::SmallVector<Pair, 6> pairs_;
};

class BoxedKernel final : public c10::OperatorKernel {
 public:
  explicit BoxedKernel(const c10::FunctionSchema& schema) : name_(schema.name()), arguments_(arguments_of(schema)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) const {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const size_t base = stack->size() - arguments_.size();
    const auto argument = [&](size_t i) -> c10::IValue& { return (*stack)[base + i]; };

    // 1. Formats, and what the result will be.
    ResultType type;
    for (size_t i = 0; i < arguments_.size(); ++i) each_tensor(arguments_[i].slot, argument(i), [&](const at::Tensor& t) { type.see(t, name_.c_str()); });
    TORCH_INTERNAL_ASSERT(type.format, name_, " came to the number formats' kernel without a tensor of theirs");
    const FormatEntry* format = type.result();
    ScalarType compute = type.format->compute;
    if (type.stock_wins()) compute = c10::promoteTypes(compute, c10::toRealValueType(*type.stock));
    std::optional<ScalarType> stock;
    if (type.stock_wins() && !type.is_complex()) stock = type.stock;
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (arguments_[i].slot != Slot::Dtype || !argument(i).isInt()) continue;
      const auto asked = static_cast<ScalarType>(argument(i).toInt());
      format = requested_format(asked, *type.format);
      stock = format ? std::nullopt : std::optional<ScalarType>(asked);
      if (format) {
        compute = c10::promoteTypes(compute, format->compute);
        argument(i) = static_cast<int64_t>(compute);
      } else if (asked == compute) {
        stock.reset();
      }
    }

    // 2. Stand-ins, in place of our tensors.
    Call call(compute);
    for (size_t i = 0; i < arguments_.size(); ++i) replace(arguments_[i], argument(i), call);

    // 3. The stock kernel, then our tensors again.
    op.callBoxed(stack);
    call.write_back();
    for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); ++i) {
      c10::IValue& value = (*stack)[i];
      if (value.isTensor()) {
        value = call.result(value.toTensor(), format, stock);
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& t : value.toTensorVector()) list.push_back(call.result(t, format, stock));
        value = std::move(list);
      }
    }
  }

 private:
  template <typename Body>
  static void each_tensor(Slot slot, const c10::IValue& value, Body&& body) {
    if (slot == Slot::Tensor && value.isTensor()) {
      body(value.toTensor());
    } else if (slot == Slot::TensorList && value.isTensorList()) {
      for (const at::Tensor& t : value.toTensorVector()) body(t);
    } else if (slot == Slot::OptionalTensorList && value.isOptionalTensorList()) {
      for (const std::optional<at::Tensor>& t : value.toOptionalTensorVector()) {
        if (t) body(*t);
      }
    }
  }

  static void replace(const Argument& argument, c10::IValue& value, Call& call) {
    if (argument.slot == Slot::Tensor && value.isTensor()) {
      if (is_format_tensor(value.toTensor())) value = call.stand_in(value.toTensor(), argument.written);
    } else if (argument.slot == Slot::TensorList && value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : value.toTensorVector()) list.push_back(call.stand_in(t, argument.written));
      value = std::move(list);
    } else if (argument.slot == Slot::OptionalTensorList && value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& t : value.toOptionalTensorVector()) {
        list.push_back(t ? std::optional<at::Tensor>(call.stand_in(*t, argument.written)) : t);
      }
      value = std::move(list);
    }
  }

  std::string name_;
  std::vector<Argument> arguments_;
};

// Composite operators without a derivative whose code dispatches on the container's type: they get the boxed kernel too.
bool misreads_container(const std::string& name) {
  static const std::set<std::string> names = {"aten::isfinite", "aten::isreal", "aten::is_nonzero", "aten::allclose", "aten::isclose"};
  return names.count(name) != 0;
}

bool makes_view(const c10::FunctionSchema& schema) {
  for (const c10::Argument& r : schema.returns()) {
    if (r.alias_info() && !r.alias_info()->isWrite()) return true;
  }
  return false;
}

bool takes_tensor(const c10::FunctionSchema& schema) {
  for (const c10::Argument& a : schema.arguments()) {
    const Slot slot = slot_of(a);
    if (slot != Slot::Other && slot != Slot::Dtype) return true;
  }
  return false;
}

} // namespace

int register_boxed_kernels() {
  // Lives as long as the process: unregistering at exit would race with other libraries' destructors.
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", kFormatKey, __FILE__, __LINE__);
  static auto* autograd_library = new torch::Library(torch::Library::IMPL, "aten", kFormatAutogradKey, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  int registered = 0;
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.getNamespace().value_or("") != "aten") continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || op->hasKernelForDispatchKey(kFormatKey)) continue;
    if (op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) && !misreads_container(name.name)) continue;
    if (makes_view(op->schema()) || !takes_tensor(op->schema())) continue;
    const bool composite = op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
    const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<BoxedKernel>(op->schema())));
    // A kernel on our key takes a composite operator's kernel off our autograd key; without a derivative nothing is to be done there.
    if (composite) autograd_library->impl(full.c_str(), torch::CppFunction::makeFallthrough());
    ++registered;
  }
  return registered;
}

} // namespace at::formats
