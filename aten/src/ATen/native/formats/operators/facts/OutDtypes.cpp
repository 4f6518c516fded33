#include <ATen/native/formats/operators/facts/OutDtypes.h>

#include <ATen/FormatTensor.h>
#include <ATen/native/formats/elementwise/Elementwise.h>
#include <ATen/native/formats/elementwise/ResultType.h>
#include <ATen/native/formats/operators/boxed/StockFormula.h>

namespace at::formats {

using torch::jit::Stack;

static bool is_out(const Plan& plan, size_t i) {
  return i > 0 && plan.arguments[i].written && plan.arguments[i].slot == Plan::Slot::Tensor;
}

// The result type by the operands alone, whatever out= is.
static ResultType type_of_operands(const Plan& plan, const Stack& stack) {
  ResultType type;
  const size_t base = stack.size() - plan.arguments.size();
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    if (is_out(plan, i) || plan.arguments[i].where) continue;
    each_tensor(plan.arguments[i].slot, stack[base + i],
                [&](const at::Tensor& t) { type.see(t, plan.name.c_str()); });
  }
  return type;
}

std::optional<c10::OperatorHandle> find_functional(const c10::FunctionSchema& schema) {
  const std::string overload = schema.overload_name();
  if (!has_out(schema) || schema.returns().size() != 1) return std::nullopt;
  // xlogy's overloads begin with Out: OutTensor, OutScalar_Self.
  const bool ends = overload.size() > 4 && overload.substr(overload.size() - 4) == "_out";
  std::string functional;
  if (ends) functional = overload.substr(0, overload.size() - 4);
  else if (overload.size() > 3) functional = overload.substr(3);
  auto& dispatcher = c10::Dispatcher::singleton();
  // atan2.out belongs to atan2, logit.out to logit, i0.out to i0.
  for (const std::string& name : {functional, std::string("Tensor")}) {
    auto found = dispatcher.findSchema({schema.name(), name});
    if (found && !found->schema().is_mutable() &&
        found->schema().arguments().size() + 1 == schema.arguments().size())
      return found;
  }
  return std::nullopt;
}

bool run_and_cast(const c10::OperatorHandle& /*op*/, const Plan& plan, Stack* stack) {
  at::Tensor out = stack->back().toTensor();
  if (!out.defined() || entry_beneath(out) || in_stock_formula()) return false;
  const ResultType type = type_of_operands(plan, *stack);
  if (!type.result()) return false;
  c10::SmallVector<at::Tensor, 4> operands;
  const size_t base = stack->size() - plan.arguments.size();
  for (size_t i = 0; i + 1 < plan.arguments.size(); ++i) {
    each_tensor(plan.arguments[i].slot, (*stack)[base + i],
                [&](const at::Tensor& t) { operands.push_back(t); });
  }
  stack->pop_back();
  plan.functional->callBoxed(stack);
  stack->back() = store(stack->back().toTensor(), out, operands);
  return true;
}

void expect_dtype_of_result(const Plan& plan, const Stack& stack) {
  if (in_stock_formula()) return;
  const ResultType type = type_of_operands(plan, stack);
  if (!type.format && !type.stock()) return; // the stock kernel checks integer results
  const FormatEntry* result = type.result();
  const size_t base = stack.size() - plan.arguments.size();
  for (size_t i = 1; i < plan.arguments.size(); ++i) {
    if (!is_out(plan, i) || !stack[base + i].isTensor()) continue;
    const at::Tensor& out = stack[base + i].toTensor();
    if (!out.defined() ||
        (!entry_beneath(out) && !c10::isFloatingType(out.scalar_type()) &&
         !c10::isComplexType(out.scalar_type())))
      continue;
    const FormatEntry* own = entry_beneath(out);
    const bool alike = result ? own == result : !own && out.scalar_type() == *type.stock();
    const auto name = [](const FormatEntry* entry, c10::ScalarType stock) {
      return "torch." + (entry ? entry->name : std::string(c10::getDtypeNames(stock).first));
    };
    TORCH_CHECK(alike, plan.name, ": expected ", plan.arguments[i].name, " of the result's dtype ",
                name(result, type.stock().value_or(c10::kFloat)), ", but got ",
                name(own, out.scalar_type()),
                ". Give a tensor of that dtype, or convert the result.");
  }
}

} // namespace at::formats
