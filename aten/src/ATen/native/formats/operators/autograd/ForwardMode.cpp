#include <ATen/native/formats/operators/autograd/ForwardMode.h>

#include <ATen/Accumulation.h>
#include <ATen/native/formats/operators/boxed/BoxedCall.h>
#include <ATen/native/formats/operators/facts/OperandRules.h>

#include <ATen/ops/_make_dual_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/to_ops.h>
#include <ATen/ops/zeros_like_ops.h>
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>

namespace at::formats {

using torch::jit::Stack;

bool has_tangent(const Plan& plan, const Stack& stack) {
  const size_t base = stack.size() - plan.arguments.size();
  bool found = false;
  for (size_t i = 0; i < plan.arguments.size() && !found; ++i) {
    each_tensor(plan.arguments[i].slot, stack[base + i],
                [&](const at::Tensor& t) { found |= torch::autograd::isFwGradDefined(t); });
  }
  return found;
}

bool is_differentiated(const Plan& plan, const Stack& stack) {
  return is_recorded(plan, stack) || has_tangent(plan, stack);
}

void run_stock_formula(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  op.redispatchBoxed(
      (keys & c10::after_autograd_keyset) | c10::DispatchKeySet(c10::DispatchKey::AutogradOther),
      stack);
}

// Passes the tangent of a stock tensor on to `to`, in to's own dtype, because the formula only
// knows the compute type.
static void hand_on_tangent(const at::Tensor& stock, const at::Tensor& to, bool in_place) {
  if (!stock.defined() || !to.defined()) return;
  const at::Tensor tangent = stock._fw_grad(/*level=*/0);
  if (!tangent.defined()) return;
  const ExplicitDtypeGuard explicit_dtype;
  const HiddenFromModes hidden;
  at::Tensor own = at::_ops::to_dtype::call(tangent, dtype_number(to), false, false, {});
  // An existing tangent is overwritten, because views of the tensor have views of it.
  const at::Tensor existing = in_place ? to._fw_grad(/*level=*/0) : at::Tensor();
  if (existing.defined())
    own = at::_ops::copy_::call(const_cast<at::Tensor&>(existing), own, false);
  to._set_fw_grad(own, /*level=*/0, in_place);
}

static std::vector<at::Tensor> tensors_of(const Stack& stack, size_t first) {
  std::vector<at::Tensor> all;
  for (size_t i = first; i < stack.size(); ++i) {
    if (stack[i].isTensor()) all.push_back(stack[i].toTensor());
    if (stack[i].isTensorList()) {
      for (const at::Tensor& t : stack[i].toTensorVector()) all.push_back(t);
    }
  }
  return all;
}

// Whether the accumulation policy decides how the tangent is added up. Then the stock formula must
// run on operators that obey the policy. Composite code consists of such operators.
static bool by_policy(const Plan& plan, const Stack& stack) {
  const bool composite = plan.takes(Step::Composite) || plan.takes(Step::Checked);
  if (!composite && !plan.adds_products()) return false;
  const FormatEntry* entry = result_type(plan, stack, stack.size() - plan.arguments.size()).format;
  if (!entry) return false;
  const Accumulation policy = accumulation_of(*entry);
  return policy.own_kernels() || (composite && policy.kind == Accumulation::Kind::Float64);
}

// Fills in missing tangents: the stock formula would make zeros of the container's dtype.
static void give_zero_tangents(const Plan& plan, Stack* stack) {
  const size_t base = stack->size() - plan.arguments.size();
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    c10::IValue& value = (*stack)[base + i];
    if (plan.arguments[i].slot != Plan::Slot::Tensor || !value.isTensor() ||
        !entry_beneath(value.toTensor()))
      continue;
    const at::Tensor& t = value.toTensor();
    if (torch::autograd::isFwGradDefined(t)) continue;
    const at::Tensor zeros = at::_ops::zeros_like::call(t, {}, {}, {}, {}, {});
    if (plan.arguments[i].written) t._set_fw_grad(zeros, /*level=*/0, /*is_inplace_op=*/false);
    else value = at::_ops::_make_dual::call(t, zeros, /*level=*/0);
  }
}

void run_with_tangents(const c10::OperatorHandle& op, const Plan& plan, c10::DispatchKeySet keys,
                       Stack* stack) {
  const OutOfAutocast no_autocast;
  const size_t count = plan.arguments.size(), results = op.schema().returns().size();
  if (!any_of_ours(plan, *stack)) return run_stock_formula(op, keys, stack);
  if (by_policy(plan, *stack)) {
    if (plan.adds_products()) give_zero_tangents(plan, stack);
    return run_stock_formula(op, keys, stack);
  }
  Stack duals(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  const BoxedCall call(plan, &duals, Casts::Recorded);
  op.callBoxed(&duals);
  // Runs only once, because a second run would draw other numbers.
  if (op.hasTag(at::Tag::nondeterministic_seeded)) {
    call.finish(results, &duals);
    torch::jit::drop(*stack, count);
    stack->insert(stack->end(), duals.begin(), duals.end());
    return;
  }
  {
    const c10::AutoFwGradMode without_tangents(false);
    run_stock_formula(op, keys, stack);
  }
  for (const BoxedCall::Pair& p : call.pairs()) {
    if (p.written) hand_on_tangent(p.stock, p.ours, /*in_place=*/true);
  }
  const std::vector<at::Tensor> from = tensors_of(duals, 0),
                                to = tensors_of(*stack, stack->size() - results);
  TORCH_INTERNAL_ASSERT(from.size() == to.size(), plan.name, " gave ", to.size(), " results, and ",
                        from.size(), " with tangents");
  for (size_t i = 0; i < to.size(); ++i) {
    const bool written = std::any_of(call.pairs().begin(), call.pairs().end(), [&](const auto& p) {
      return p.written && p.ours.is_same(to[i]);
    });
    if (!written) hand_on_tangent(from[i], to[i], /*in_place=*/false);
  }
}

} // namespace at::formats
