#include <ATen/native/formats/operators/boxed/Boxed.h>

#include <ATen/FormatLibrary.h>
#include <ATen/FormatWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/formats/elementwise/ResultType.h>
#include <ATen/native/formats/operators/autograd/ForwardMode.h>
#include <ATen/native/formats/operators/autograd/InPlaceAutograd.h>
#include <ATen/native/formats/operators/autograd/MixedAutograd.h>
#include <ATen/native/formats/operators/boxed/BoxedCall.h>
#include <ATen/native/formats/operators/boxed/Steps.h>
#include <ATen/native/formats/operators/boxed/StockFormula.h>
#include <ATen/native/formats/operators/facts/LostRows.h>
#include <ATen/native/formats/operators/facts/NumberPlaces.h>
#include <ATen/native/formats/operators/facts/OperandRules.h>
#include <ATen/native/formats/operators/facts/Refusals.h>
#include <ATen/native/formats/operators/vmap/Vmap.h>

namespace at::formats {
namespace {

using torch::jit::Stack;

class BoxedKernel final : public c10::OperatorKernel {
 public:
  explicit BoxedKernel(const c10::OperatorHandle& op)
      : plan_(op.schema()),
        steps_(compile_steps(plan_, op.schema())) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) const {
    if (plan_.rule != OperandRule::Any && cast_to_block(plan_, *stack)) return op.callBoxed(stack);
    const OutOfAutocast no_autocast;
    run_steps(steps_, op, plan_, stack);
  }

 private:
  Plan plan_;
  RunSteps steps_;
};

// Raises for sharded tensors (DTensor). Casts would pass them to PyTorch's sharding rules, whose
// mean losses cover only each rank's own elements.
void expect_no_wrapper(const c10::OperatorHandle& op, const Plan& plan, const Stack& stack) {
  const size_t base = stack.size() - plan.arguments.size();
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    each_tensor(plan.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) {
      TORCH_CHECK_NOT_IMPLEMENTED(
          !is_format_tensor(t) || !is_wrapper(t) || t.storage().data(), op.schema().name(),
          ": expected a tensor with its own memory while ",
          "autograd records, but got a wrapper of torch.", entry_of(t).name,
          ". Use x.float(), x.to_local() or ",
          "x.full_tensor() of a DTensor, or a float32 model that quantize_ has converted.");
    });
  }
}

// Above autograd: casts format operands to the compute type, runs the stock operator with its own
// derivative, and casts the results back. The casts are differentiable, so first and higher
// derivatives run on stock values and are rounded once at each cast.
class ByCastsKernel final : public c10::OperatorKernel {
 public:
  explicit ByCastsKernel(const c10::OperatorHandle& op)
      : plan_(op.schema()),
        steps_(compile_recorded_steps(plan_)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const {
    if (cast_to_block(plan_, *stack)) return op.callBoxed(stack);
    const OutOfAutocast no_autocast;
    if (run_steps(steps_, op, plan_, stack)) return;
    if (!any_of_ours(plan_, *stack)) { // a stock tensor of the wrappers' backend
      run_stock_formula(op, keys, stack);
      return;
    }
    if (!is_differentiated(plan_, *stack)) {
      const at::AutoDispatchBelowADInplaceOrView guard;
      op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
      return;
    }
    expect_no_wrapper(op, plan_, *stack);
    if (!plan_.numbers.empty()) exchange_numbers(plan_.numbers, plan_.arguments.size(), stack);
    const size_t results = op.schema().returns().size();
    const BoxedCall call(plan_, stack, Casts::Recorded);
    const at::Tensor rows = lost_rows(plan_, *stack);
    op.callBoxed(stack);
    add_lost_rows(rows, results, stack);
    call.finish(results, stack);
  }

 private:
  Plan plan_;
  RunSteps steps_;
};

// Above autograd: the out= variant of a composite operator. Its stock code calls operators that
// refuse a derivative.
class OutKernel final : public c10::OperatorKernel {
 public:
  explicit OutKernel(const c10::OperatorHandle& op) : plan_(op.schema()) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const {
    TORCH_CHECK(!is_recorded(plan_, *stack), plan_.base,
                "(): functions with out=... arguments don't support automatic differentiation, but "
                "one of the arguments requires grad.");
    op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
  }

 private:
  Plan plan_;
};

template <typename Kernel>
torch::CppFunction make_boxed(const c10::OperatorHandle& op) {
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(op));
}

std::vector<c10::OperatorHandle> aten_operators() {
  std::vector<c10::OperatorHandle> all;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op =
        name.getNamespace().value_or("") == "aten" ? dispatcher.findSchema(name) : std::nullopt;
    if (op) all.push_back(*op);
  }
  return all;
}

// Registers what an operator's row says, if it has no kernel of this package yet. Returns whether
// it registered one.
bool register_by_row(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  if (op.hasKernelForDispatchKey(kFormatKey)) return false;
  const bool composite = op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  const Plan plan(op.schema());
  if (composite && !plan.by_casts && !plan.takes(Step::Whole)) return false;
  if (Plan::makes_view(op.schema()) || !plan.takes_tensor()) return false;
  register_below_autograd(name, [&] { return make_boxed<BoxedKernel>(op); });
  // A kernel at the format key removes a composite operator's kernel from the format autograd key.
  if (plan.by_casts && !op.schema().is_mutable()) {
    register_autograd(name, [&] { return make_boxed<ByCastsKernel>(op); });
  } else if (composite && plan.takes(Step::Composed)) {
    register_autograd(name, [&] { return make_boxed<OutKernel>(op); });
  } else if (composite) {
    register_autograd(name, [] { return torch::CppFunction::makeFallthrough(); });
  }
  return true;
}

// Registers the kernel in front of an operator's stock derivative, if it needs one.
void register_derivative(const c10::OperatorHandle& op) {
  if (op.hasKernelForDispatchKey(kFormatAutogradKey)) return;
  const c10::FunctionSchema& schema = op.schema();
  const auto functional =
      op.hasKernelForDispatchKey(c10::DispatchKey::Autograd) ? functional_form(op) : std::nullopt;
  const fact::Set facts = functional
      ? operator_facts(functional->schema().name(), functional->schema().overload_name()).facts
      : fact::Set();
  if (facts.has_any(fact::KeepsLittle | fact::ByCasts)) {
    register_autograd(op.operator_name(), [&] { return in_place_kernel(*functional, schema); });
  } else if (sums_in_dtype(op)) {
    register_autograd(op.operator_name(), [&] { return sum_in_dtype_kernel(schema); });
  } else if (mixes_operands(op)) {
    register_autograd(op.operator_name(), [&] { return mixed_operands_kernel(schema); });
  }
}

} // namespace

int register_boxed_kernels() {
  set_stray_operands(&in_stock_formula);
  register_refusals();
  int registered = 0;
  const std::vector<c10::OperatorHandle> operators = aten_operators();
  for (const c10::OperatorHandle& op : operators) registered += register_by_row(op);
  for (const c10::OperatorHandle& op : operators) register_derivative(op);
  register_checked_composites();
  register_vmap_kernels();
  return registered;
}

} // namespace at::formats
