#include <ATen/native/formats/operators/autograd/MixedAutograd.h>

#include <ATen/Releases.h>
#include <ATen/native/formats/operators/autograd/CastAutograd.h>
#include <ATen/native/formats/operators/autograd/ForwardMode.h>
#include <ATen/native/formats/operators/boxed/BoxedCall.h>
#include <ATen/native/formats/operators/facts/OperandRules.h>
#include <ATen/native/formats/operators/facts/Refusals.h>
#include <ATen/ops/to_ops.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/library.h>

#include <algorithm>

namespace at::formats {
namespace {

// Casts an operator's format tensors to the stock dtype of its result, by casts that autograd
// records.
class MixedOperandsKernel final : public c10::OperatorKernel {
 public:
  explicit MixedOperandsKernel(const c10::FunctionSchema& schema) : plan_(schema) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) const {
    if (has_format_tensors_alone(*stack)) return run_stock_formula(op, keys, stack);
    expect_ordinary_operands(*stack);
    if (plan_.rule == OperandRule::Normalisation &&
        run_normalisation(op, plan_, stack, Casts::Recorded))
      return;
    if (cast_to_block(plan_, *stack)) return op.callBoxed(stack);
    bool mixed = false;
    if (promote(*stack, mixed)) {
      op.callBoxed(stack);
    } else if (mixed && plan_.has(fact::MixedByCasts)) {
      const OutOfAutocast no_autocast;
      const BoxedCall call(plan_, stack, Casts::Recorded);
      op.callBoxed(stack);
      call.finish(op.schema().returns().size(), stack);
    } else {
      // The formula's zeros are of the container's dtype.
      const bool zeros = kNormalisationMakesZeros && plan_.rule == OperandRule::Normalisation;
      const std::vector<c10::ScalarType> dtypes =
          zeros ? operand_dtypes(*stack) : std::vector<c10::ScalarType>();
      if (has_tangent(plan_, *stack)) {
        run_with_tangents(op, plan_, keys, stack);
      } else {
        run_stock_formula(op, keys, stack);
      }
      if (zeros)
        keep_gradient_dtypes((*stack)[stack->size() - op.schema().returns().size()].toTensor(),
                             dtypes);
    }
  }

 private:
  // Whether a call needs nothing of what follows: it has only format tensors, none with a tangent,
  // and no complex number.
  bool has_format_tensors_alone(const torch::jit::Stack& stack) const {
    if (plan_.rule == OperandRule::Normalisation) return false;
    bool alone = true;
    for (size_t i = 0; i < plan_.arguments.size() && alone; ++i) {
      each_tensor(plan_.arguments[i].slot, stack[stack.size() - plan_.arguments.size() + i],
                  [&](const at::Tensor& t) {
                    alone &= !t.defined() ||
                        (is_format_tensor(t) && !torch::autograd::isFwGradDefined(t));
                  });
    }
    return alone && !has_complex_number(plan_, stack);
  }

  // The dtypes of the tensors among the arguments, in the order in which autograd counts them. An
  // optional tensor that is not given has no gradient.
  std::vector<c10::ScalarType> operand_dtypes(const torch::jit::Stack& stack) const {
    std::vector<c10::ScalarType> dtypes;
    for (size_t i = 0; i < plan_.arguments.size(); ++i) {
      if (plan_.arguments[i].slot != Plan::Slot::Tensor) continue;
      const c10::IValue& value = stack[stack.size() - plan_.arguments.size() + i];
      const bool given = value.isTensor() && value.toTensor().defined();
      dtypes.push_back(given ? dtype_number(value.toTensor()) : c10::ScalarType::Undefined);
    }
    return dtypes;
  }

  // Raises for nested and sparse operands. Their kernels outrank this package's in dispatch, and
  // would read codes as numbers of the container.
  void expect_ordinary_operands(const torch::jit::Stack& stack) const {
    const size_t base = stack.size() - plan_.arguments.size();
    const FormatEntry* own = nullptr;
    const char* kind = nullptr;
    for (size_t i = 0; i < plan_.arguments.size(); ++i) {
      each_tensor(plan_.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) {
        if (!t.defined()) return;
        if (is_format_tensor(t)) {
          own = &entry_of(t);
        } else if (t.is_mkldnn() || t.is_quantized()) {
          kind = t.is_mkldnn() ? "mkldnn" : "quantised";
        } else if (t.layout() != c10::kStrided || t.is_nested()) {
          kind = t.is_nested() ? "nested" : "sparse"; // the casts below would make it a stock call
        }
      });
    }
    if (own && kind) refuse_operand(plan_.name, own->name, kind);
  }

  // Casts the operands to the stock result type; returns whether it did. mixed: the operands stay
  // as they are, and the result is a format tensor.
  bool promote(torch::jit::Stack& stack, bool& mixed) const {
    const size_t base = stack.size() - plan_.arguments.size();
    bool stock = false, recorded = false;
    for (size_t i = 0; i < plan_.arguments.size(); ++i) {
      each_tensor(plan_.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) {
        if (!t.defined()) return;
        // A stock operand's gradient counts too: the formula would round it to the format.
        recorded |= (t.requires_grad() && at::GradMode::is_enabled()) ||
            torch::autograd::isFwGradDefined(t);
        if (i > 0 && plan_.arguments[i].written) return; // out= does not decide the result's dtype
        stock |= !entry_beneath(t) &&
            (c10::isFloatingType(t.scalar_type()) || c10::isComplexType(t.scalar_type()));
      });
    }
    const bool complex = has_complex_number(plan_, stack);
    if (!(stock || complex) || !(recorded || plan_.rule != OperandRule::Any)) return false;
    const ResultType type = result_type(plan_, stack, base);
    if (!recorded || !type.format) return false;
    bool writes_own = false;
    for (size_t i = 0; i < plan_.arguments.size(); ++i) {
      each_tensor(plan_.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) {
        writes_own |= plan_.arguments[i].written && entry_beneath(t);
      });
    }
    if (!writes_own && plan_.has(fact::KeepsFirst) && !plan_.has(fact::MixedByCasts) &&
        !type.stock_wins() && cast_to_first(stack, base))
      return true;
    if (writes_own || !(type.stock_wins() || complex)) {
      mixed = !writes_own;
      bring_gradients_back(stack, base, *type.format);
      return false;
    }
    cast_operands(plan_, stack, base,
                  type.stock() ? c10::toRealValueType(*type.stock()) : type.format->compute);
    return true;
  }

  // If the first operand is a format tensor, casts what is put into it to its dtype. The cast
  // brings the gradient back.
  bool cast_to_first(torch::jit::Stack& stack, size_t base) const {
    const at::Tensor first = stack[base].toTensor();
    const FormatEntry* own = entry_beneath(first);
    if (!own || !stack[base + 1].isTensor() || entry_beneath(stack[base + 1].toTensor()))
      return false;
    stack[base + 1] = at::_ops::to_dtype::call(stack[base + 1].toTensor(),
                                               c10::formats::scalar_type(*own), false, false, {});
    return true;
  }

  // For a result in a format, the stock formula gives a stock operand a gradient in that format,
  // which the engine takes for the container's. An operand of the container's dtype is copied by a
  // cast to its own dtype, which brings the gradient back in it.
  void bring_gradients_back(torch::jit::Stack& stack, size_t base, const FormatEntry& own) const {
    for (size_t i = 0; i < plan_.arguments.size(); ++i) {
      if (plan_.arguments[i].written) continue;
      map_tensors(plan_.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) {
        const bool meets = t.defined() && t.requires_grad() && at::GradMode::is_enabled() &&
            t.scalar_type() == own.container && !entry_beneath(t);
        return meets ? to_copy_autograd(t, own.container, {}, {}, {}, false, {}) : t;
      });
    }
  }

  Plan plan_;
};

class SumInDtypeKernel final : public c10::OperatorKernel {
 public:
  explicit SumInDtypeKernel(const c10::FunctionSchema& schema)
      : arguments_(schema.arguments().size()),
        dtype_(*schema.argumentIndexWithName("dtype")) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) const {
    c10::IValue* arguments = stack->data() + stack->size() - arguments_;
    const at::Tensor self = arguments[0].toTensor();
    const FormatEntry* own = entry_beneath(self);
    const bool recorded = (at::GradMode::is_enabled() && self.requires_grad()) ||
        torch::autograd::isFwGradDefined(self);
    if (own && recorded && arguments[dtype_].isInt()) {
      const auto asked = static_cast<c10::ScalarType>(arguments[dtype_].toInt());
      if (requested_format(asked, *own) != own) {
        TORCH_CHECK(!c10::isIntegralType(asked, /*includeBool=*/true) || !self.requires_grad(),
                    op.schema().name(),
                    ": expected a floating dtype for a tensor that requires grad, but got ", asked,
                    ". Call detach() first.");
        const ExplicitDtypeGuard explicit_dtype;
        arguments[0] = at::_ops::to_dtype::call(self, asked, false, false, {});
        op.callBoxed(stack);
        return;
      }
    }
    run_stock_formula(op, keys, stack);
  }

 private:
  size_t arguments_;
  int dtype_;
};

} // namespace

bool sums_in_dtype(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  return operator_facts(schema.name(), schema.overload_name()).facts.has_any(fact::SumsInDtype) &&
      !schema.is_mutable() && schema.argumentIndexWithName("dtype").has_value() &&
      op.hasKernelForDispatchKey(c10::DispatchKey::Autograd) &&
      !op.hasKernelForDispatchKey(kFormatAutogradKey);
}

torch::CppFunction sum_in_dtype_kernel(const c10::FunctionSchema& schema) {
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<SumInDtypeKernel>(schema));
}

// x ** 1j is complex, and its derivative must come back in x's dtype.
static bool takes_complex_number(const c10::FunctionSchema& schema, const Plan& plan) {
  const bool number = std::any_of(
      schema.arguments().begin(), schema.arguments().end(),
      [](const c10::Argument& a) { return a.type()->kind() == c10::TypeKind::NumberType; });
  return number && plan.has(fact::ComplexNumber);
}

bool mixes_operands(const c10::OperatorHandle& op) {
  if (!op.hasKernelForDispatchKey(c10::DispatchKey::Autograd) ||
      op.hasKernelForDispatchKey(kFormatAutogradKey) ||
      op.hasKernelForDispatchKey(kWrappedAutogradKey)) {
    return false;
  }
  if (Plan::makes_view(op.schema())) return false;
  int tensors = 0;
  const Plan plan(op.schema());
  for (const Plan::Argument& a : plan.arguments) {
    if (a.slot == Plan::Slot::Tensor) ++tensors;
    if (a.slot == Plan::Slot::TensorList || a.slot == Plan::Slot::OptionalTensorList) tensors += 2;
  }
  return tensors >= 2 || (tensors == 1 && takes_complex_number(op.schema(), plan)) ||
      plan.has(fact::TangentsByCasts);
}

torch::CppFunction mixed_operands_kernel(const c10::FunctionSchema& schema) {
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<MixedOperandsKernel>(schema));
}

} // namespace at::formats
