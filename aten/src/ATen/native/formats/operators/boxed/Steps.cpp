#include <ATen/native/formats/operators/boxed/Steps.h>

#include <ATen/FormatTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <ATen/native/formats/operators/boxed/BoxedCall.h>
#include <ATen/native/formats/operators/boxed/DotOperators.h>
#include <ATen/native/formats/operators/boxed/ExactPowers.h>
#include <ATen/native/formats/operators/boxed/Foreach.h>
#include <ATen/native/formats/operators/boxed/FunctionTables.h>
#include <ATen/native/formats/operators/boxed/MovedCodes.h>
#include <ATen/native/formats/operators/facts/LostRows.h>
#include <ATen/native/formats/operators/facts/NumberPlaces.h>
#include <ATen/native/formats/operators/facts/OperandRules.h>
#include <ATen/native/formats/operators/facts/OutDtypes.h>
#include <ATen/native/formats/operators/facts/TouchedElements.h>
#include <ATen/ops/isfinite.h>
#include <ATen/record_function.h>
#include <c10/formats/codec/ExactCodec.h>

#include <algorithm>
#include <optional>

namespace at::formats {
namespace {

using c10::OperatorHandle;
using torch::jit::Stack;

bool run_if_composed(const OperatorHandle& op, const Plan& plan, Stack* stack) {
  if (!is_composed(plan, *stack)) return false;
  run_composed(op, stack);
  return true;
}

// LAPACK balances a matrix by its largest numbers, and reads beyond its memory if one is infinite
// or NaN. PyTorch checks only in linalg_eig.
bool expect_finite(const OperatorHandle& op, const Plan& plan, Stack* stack) {
  const at::Tensor& a = (*stack)[stack->size() - plan.arguments.size()].toTensor();
  if (!is_format_tensor(a) || a.is_meta()) return false;
  const at::AutoDispatchBelowADInplaceOrView guard;
  TORCH_CHECK(
      at::isfinite(a).all().item<bool>(), op.schema().name(),
      ": expected a matrix of finite numbers, but got an infinity or NaN in a tensor of torch.",
      entry_of(a).name);
  return false;
}

bool check_out(const OperatorHandle& /*op*/, const Plan& plan, Stack* stack) {
  expect_dtype_of_result(plan, *stack);
  return false;
}

template <Casts casts>
bool normalise(const OperatorHandle& op, const Plan& plan, Stack* stack) {
  return run_normalisation(op, plan, stack, casts);
}

bool replace_numbers(const OperatorHandle& /*op*/, const Plan& plan, Stack* stack) {
  exchange_numbers(plan.numbers, plan.arguments.size(), stack);
  return false;
}

// Fills in missing limits with the format's, where the stock kernel would take the compute type's.
bool give_limits(const OperatorHandle& /*op*/, const Plan& plan, Stack* stack) {
  const size_t base = stack->size() - plan.arguments.size();
  const FormatEntry* entry = entry_beneath((*stack)[base].toTensor());
  if (!entry) return false;
  const c10::formats::Format& f = entry->format;
  const double most = c10::formats::to_double(c10::formats::decode(f, f.max_code()));
  c10::IValue &above = (*stack)[base + plan.limits], &below = (*stack)[base + plan.limits + 1];
  if (above.isNone()) above = most;
  double least = f.is_signed ? -most : 0.0;
  if (f.is_table()) least = c10::formats::to_double(c10::formats::decode(f, f.table->lowest_code));
  if (below.isNone()) below = least;
  return false;
}

template <Step step>
bool run_stock(const OperatorHandle& op, const Plan& plan, Stack* stack) {
  const size_t results = op.schema().returns().size();
  const at::AutoDispatchBelowADInplaceOrView guard;
  const BoxedCall call(plan, stack);
  // A profiler that also saw the stock kernel would count the operator twice. (Composite code
  // consists of other operators.)
  std::optional<at::DisableRecordFunctionGuard> unseen;
  if (step != Step::Whole && at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION))
    unseen.emplace();
  const at::Tensor rows = plan.mask >= 0 ? lost_rows(plan, *stack) : at::Tensor();
  try {
    op.callBoxed(stack);
  } catch (c10::Error& error) {
    call.explain(error);
    throw;
  }
  unseen.reset();
  add_lost_rows(rows, results, stack);
  call.finish(results, stack);
  return true;
}

bool takes_number(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  return std::any_of(arguments.begin(), arguments.end(), [](const c10::Argument& a) {
    return a.type()->kind() == c10::TypeKind::NumberType;
  });
}

RunStep products_step(const Plan& plan, const c10::FunctionSchema& schema) {
  if (schema.argumentIndexWithName("out_dtype")) return &refuse_policy;
  return plan.product ? &run_policy_products : nullptr;
}

// The function of a step, or nullptr if the schema rules the step out.
RunStep function_of(Step step, const Plan& plan, const c10::FunctionSchema& schema) {
  const bool out = has_out(schema);
  const auto if_one_result = [&](RunStep run) {
    return !out && schema.returns().size() == 1 ? run : nullptr;
  };
  switch (step) {
    case Step::Composed: return &run_if_composed;
    case Step::ExpectFinite: return &expect_finite;
    case Step::CastOut: return plan.functional ? &run_and_cast : nullptr;
    case Step::CheckOut: return out ? &check_out : nullptr;
    case Step::PolicyProducts: return products_step(plan, schema);
    case Step::RefusePolicy: return &refuse_policy;
    case Step::TensorCores: return plan.product ? &run_on_tensor_cores : nullptr;
    case Step::Gate: return out ? nullptr : &run_gated;
    // A number must be rounded, which moving codes does not do.
    case Step::MovedCodes: return out || takes_number(schema) ? nullptr : &run_on_codes;
    case Step::Normalise: return &normalise<Casts::Plain>;
    case Step::PutNumbers:
    case Step::CompareNumbers: return plan.numbers.empty() ? nullptr : &replace_numbers;
    case Step::TouchLines: return if_one_result(&run_on_lines);
    case Step::TouchElements: return if_one_result(&run_on_elements);
    case Step::TouchPlaces: return if_one_result(&run_on_places);
    case Step::TouchIndexed: return if_one_result(&run_on_indexed);
    case Step::TouchRows: return if_one_result(&run_on_rows);
    case Step::GiveLimits: return plan.limits >= 0 ? &give_limits : nullptr;
    case Step::ExactPower: return &run_exact_power;
    case Step::LookUp: return &run_by_table;
    case Step::PlaceByPlace: return &run_place_by_place;
    case Step::Whole: return &run_stock<Step::Whole>;
    case Step::Boxed:
      break; // run_stock below
    // Other files register these kernels.
    case Step::Own:
    case Step::View:
    case Step::Contraction:
    case Step::Composite:
    case Step::Checked:
    case Step::Refused: break;
  }
  return nullptr;
}

} // namespace

RunSteps compile_steps(const Plan& plan, const c10::FunctionSchema& schema) {
  RunSteps steps;
  for (const Step step : plan.route) {
    if (const RunStep run = function_of(step, plan, schema)) steps.push_back(run);
  }
  if (!plan.takes(Step::Whole) && !plan.takes(Step::PlaceByPlace))
    steps.push_back(&run_stock<Step::Boxed>);
  return steps;
}

RunSteps compile_recorded_steps(const Plan& plan) {
  RunSteps steps;
  if (plan.products && plan.products->differentiable) steps.push_back(&run_policy_products);
  if (plan.takes(Step::Composed)) steps.push_back(&run_if_composed);
  if (plan.takes(Step::Normalise)) steps.push_back(&normalise<Casts::Recorded>);
  return steps;
}

} // namespace at::formats
