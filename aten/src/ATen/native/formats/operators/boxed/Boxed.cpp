#include <ATen/native/formats/operators/boxed/Boxed.h>

#include <ATen/FormatLibrary.h>
#include <ATen/FormatWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/formats/elementwise/ResultType.h>
#include <ATen/native/formats/operators/boxed/BoxedCall.h>
#include <ATen/native/formats/operators/boxed/DotOperators.h>
#include <ATen/native/formats/operators/boxed/ExactPowers.h>
#include <ATen/native/formats/operators/boxed/Foreach.h>
#include <ATen/native/formats/operators/autograd/ForwardMode.h>
#include <ATen/native/formats/operators/boxed/FunctionTables.h>
#include <ATen/native/formats/operators/autograd/InPlaceAutograd.h>
#include <ATen/native/formats/operators/facts/LostRows.h>
#include <ATen/native/formats/operators/autograd/MixedAutograd.h>
#include <ATen/native/formats/operators/boxed/MovedCodes.h>
#include <ATen/native/formats/operators/facts/NumberPlaces.h>
#include <ATen/native/formats/operators/facts/OperandRules.h>
#include <ATen/native/formats/operators/facts/OutDtypes.h>
#include <ATen/native/formats/operators/facts/Refusals.h>
#include <ATen/native/formats/operators/boxed/StockFormula.h>
#include <ATen/native/formats/operators/facts/TouchedElements.h>
#include <ATen/native/formats/operators/vmap/Vmap.h>
#include <ATen/ops/isfinite.h>
#include <ATen/record_function.h>
#include <c10/formats/codec/ExactCodec.h>

namespace at::formats {
namespace {

using torch::jit::Stack;

// What a call leaves to the operand's dtype: the format's limits, not the compute type's.
void give_limits(const Plan& plan, Stack& stack) {
  const size_t base = stack.size() - plan.arguments.size();
  const FormatEntry* entry = entry_beneath(stack[base].toTensor());
  if (!entry) return;
  const c10::formats::Format& f = entry->format;
  const double most = c10::formats::to_double(c10::formats::decode(f, f.max_code()));
  c10::IValue &above = stack[base + plan.limits], &below = stack[base + plan.limits + 1];
  if (above.isNone()) above = most;
  double least = f.is_signed ? -most : 0.0;
  if (f.is_table()) least = c10::formats::to_double(c10::formats::decode(f, f.table->lowest_code));
  if (below.isNone()) below = least;
}

// LAPACK balances a matrix by its largest numbers, and reads beyond its memory where one is infinite or NaN. Stock asks in linalg_eig alone.
void expect_finite(const c10::OperatorHandle& op, const Plan& plan, const Stack& stack) {
  const at::Tensor& a = stack[stack.size() - plan.arguments.size()].toTensor();
  if (!is_format_tensor(a) || a.is_meta()) return;
  const at::AutoDispatchBelowADInplaceOrView guard;
  TORCH_CHECK(at::isfinite(a).all().item<bool>(), op.schema().name(),
              ": expected a matrix of finite numbers, but got an infinity or NaN in a tensor of torch.", entry_of(a).name);
}

class BoxedKernel final : public c10::OperatorKernel {
 public:
  explicit BoxedKernel(const c10::OperatorHandle& op)
      : plan_(op.schema()),
        functional_(result_of(op)),
        checks_out_(plan_.has(fact::OneDtypeOut) && has_out(op.schema())),
        gates_(plan_.has(fact::Gates) && !has_out(op.schema())),
        special_(functional_ || gates_ || checks_out_ || plan_.has(kSpecial) || plan_.moves || plan_.touches != Touches::All || plan_.limits >= 0 ||
                 !plan_.numbers.empty() || plan_.way == Way::Loop) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) const {
    if (plan_.rule != OperandRule::Any && cast_to_block(plan_, *stack)) return op.callBoxed(stack);
    const OutOfAutocast no_autocast;
    if (special_ && run_specially(op, stack)) return;
    const at::AutoDispatchBelowADInplaceOrView guard;
    const BoxedCall call(plan_, stack);
    // A profiler that saw the stock kernel too would count the operator twice. (Composite code is made of others.)
    std::optional<at::DisableRecordFunctionGuard> unseen;
    if (plan_.way != Way::Whole && at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION)) unseen.emplace();
    const at::Tensor rows = plan_.mask >= 0 ? lost_rows(plan_, *stack) : at::Tensor();
    try {
      op.callBoxed(stack);
    } catch (c10::Error& error) {
      call.explain(error);
      throw;
    }
    unseen.reset();
    add_lost_rows(rows, op.schema().returns().size(), stack);
    call.finish(op.schema().returns().size(), stack);
  }

 private:
  static constexpr uint64_t kSpecial = kAddsProducts | fact::Normalisation | fact::Elementary | fact::Tabled | fact::Finite | fact::RoundsOnce;

  // What most operators do not ask for. False, and the call is still to be run: on the stack as it then is.
  bool run_specially(const c10::OperatorHandle& op, Stack* stack) const {
    if (is_composed(plan_, *stack)) return run_composed(op, stack), true;
    if (plan_.has(fact::Finite)) expect_finite(op, plan_, *stack);
    if (functional_ && run_and_cast(*functional_, plan_, stack)) return true;
    if (checks_out_) expect_dtype_of_result(plan_, *stack);
    if (plan_.has(kAddsProducts) && run_dot_operator(op, plan_, stack)) return true;
    if (gates_ && run_gated(plan_, stack)) return true;
    if (plan_.moves && run_on_codes(op, plan_, stack)) return true;
    if (plan_.rule == OperandRule::Normalisation && run_normalisation(op, plan_, stack, Casts::Plain)) return true;
    if (!plan_.numbers.empty()) exchange_numbers(plan_.numbers, plan_.arguments.size(), stack);
    if (plan_.touches != Touches::All && run_on_touched(op, plan_, stack)) return true;
    if (plan_.limits >= 0) give_limits(plan_, *stack);
    if (plan_.way == Way::Loop) return run_place_by_place(op, plan_, stack), true;
    if (plan_.has(fact::Powers) && run_exact_power(plan_, stack)) return true;
    return plan_.has(fact::Elementary | fact::Tabled) && run_by_table(op, plan_, stack);
  }

  Plan plan_;
  std::optional<c10::OperatorHandle> functional_;
  bool checks_out_, gates_, special_;
};

// An error for sharded tensors (DTensor): casts would take them to PyTorch's sharding rules, whose mean losses are of each rank's own elements.
void expect_no_wrapper(const c10::OperatorHandle& op, const Plan& plan, const Stack& stack) {
  const size_t base = stack.size() - plan.arguments.size();
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    each_tensor(plan.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) {
      TORCH_CHECK_NOT_IMPLEMENTED(!is_format_tensor(t) || !is_wrapper(t) || t.storage().data(), op.schema().name(),
                                  ": expected a tensor with memory of its own where ", "autograd records, but got a wrapper of torch.",
                                  entry_of(t).name, ". Use x.float(), x.to_local() or ",
                                  "x.full_tensor() of a DTensor, or a float32 model that quantize_ has converted.");
    });
  }
}

// Above autograd: casts the operands of ours to the compute type, runs the stock operator on them with its own derivative, and casts the
// results back. The casts are differentiable, so first and higher derivatives run on stock values, each rounded once at its cast.
class ByCastsKernel final : public c10::OperatorKernel {
 public:
  explicit ByCastsKernel(const c10::OperatorHandle& op) : plan_(op.schema()) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const {
    if (cast_to_block(plan_, *stack)) return op.callBoxed(stack);
    const OutOfAutocast no_autocast;
    if (plan_.has(kAddsProducts) && run_dot_operator(op, plan_, stack)) return; // attention: by operators that are differentiated one by one
    if (is_composed(plan_, *stack)) return run_composed(op, stack);
    if (!any_of_ours(plan_, *stack)) { // a stock tensor of the wrappers' backend
      run_stock_formula(op, keys, stack);
      return;
    }
    if (plan_.rule == OperandRule::Normalisation && run_normalisation(op, plan_, stack, Casts::Recorded)) return;
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
};

// Above autograd: the out= variant of a composite operator, which stock's code hands to operators that refuse a derivative.
class OutKernel final : public c10::OperatorKernel {
 public:
  explicit OutKernel(const c10::OperatorHandle& op) : plan_(op.schema()) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const {
    TORCH_CHECK(!is_recorded(plan_, *stack), plan_.base,
                "(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad.");
    op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
  }

 private:
  Plan plan_;
};

template <typename Kernel>
torch::CppFunction boxed(const c10::OperatorHandle& op) {
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(op));
}

std::vector<c10::OperatorHandle> aten_operators() {
  std::vector<c10::OperatorHandle> all;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = name.getNamespace().value_or("") == "aten" ? dispatcher.findSchema(name) : std::nullopt;
    if (op) all.push_back(*op);
  }
  return all;
}

// What follows from its row for an operator that has no kernel of ours yet. Gives back whether it got one.
bool register_by_row(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  if (op.hasKernelForDispatchKey(kFormatKey)) return false;
  const bool composite = op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  const Plan plan(op.schema());
  if (composite && !plan.by_casts && plan.way != Way::Whole) return false;
  if (Plan::makes_view(op.schema()) || !plan.takes_tensor()) return false;
  register_below_autograd(name, [&] { return boxed<BoxedKernel>(op); });
  // A kernel on our key takes a composite operator's kernel off our autograd key.
  if (plan.by_casts && !op.schema().is_mutable()) {
    register_autograd(name, [&] { return boxed<ByCastsKernel>(op); });
  } else if (composite && plan.has(fact::RoundsOnce)) {
    register_autograd(name, [&] { return boxed<OutKernel>(op); });
  } else if (composite) {
    register_autograd(name, [] { return torch::CppFunction::makeFallthrough(); });
  }
  return true;
}

// What stands in front of stock derivatives.
void register_derivative(const c10::OperatorHandle& op) {
  if (op.hasKernelForDispatchKey(kFormatAutogradKey)) return;
  const c10::FunctionSchema& schema = op.schema();
  const auto functional = op.hasKernelForDispatchKey(c10::DispatchKey::Autograd) ? functional_form(op) : std::nullopt;
  const uint64_t facts = functional ? operator_facts(functional->schema().name(), functional->schema().overload_name()).facts : 0;
  if (facts & (fact::KeepsLittle | fact::ByCasts)) {
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
