#include <ATen/native/formats/operators/facts/Plan.h>

#include <ATen/Accumulation.h>
#include <ATen/FormatTensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/native/formats/elementwise/Elementary.h>
#include <ATen/native/formats/operators/boxed/DotOperators.h>
#include <ATen/native/formats/operators/facts/OutDtypes.h>

#include <algorithm>

namespace at::formats {

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

// Batch and instance normalisation update their running statistics, in training only. Most of their
// schemas do not say so.
static bool is_statistic(const c10::Argument& argument) {
  return argument.name() == "running_mean" || argument.name() == "running_var";
}

static bool is_written(const c10::FunctionSchema& schema, const c10::Argument& argument) {
  if (argument.alias_info() && argument.alias_info()->isWrite()) return true;
  const auto named = [&](const char* part) {
    return schema.name().find(part) != std::string::npos;
  };
  return is_statistic(argument) && !named("backward") && !named("no_training") &&
      !named("no_update");
}

static bool is_in_place(const c10::FunctionSchema& schema) {
  return schema.name().back() == '_';
}

static int place_of(const c10::FunctionSchema& schema, const char* argument) {
  return schema.argumentIndexWithName(argument).value_or(-1);
}

bool has_out(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  return std::any_of(
      arguments.begin() + std::min<size_t>(1, arguments.size()), arguments.end(),
      [](const c10::Argument& a) { return a.alias_info() && a.alias_info()->isWrite(); });
}

static OperandRule rule_of(const OperatorFacts& row) {
  if (row.facts.has_any(fact::OneDtype)) return OperandRule::OneDtype;
  if (row.facts.has_any(fact::OneFloatingDtype)) return OperandRule::FloatingOneDtype;
  return row.route.has(Step::Normalise) ? OperandRule::Normalisation : OperandRule::Any;
}

// The arguments that a row names, separated by blanks.
static std::vector<NumberPlace> number_places(const c10::FunctionSchema& schema,
                                              const OperatorFacts& row) {
  std::vector<NumberPlace> places;
  if (!row.route.has(Step::PutNumbers) && !row.route.has(Step::CompareNumbers)) return places;
  const auto use =
      row.route.has(Step::PutNumbers) ? NumberPlace::Use::Fill : NumberPlace::Use::Bound;
  for (std::string_view rest = row.detail; !rest.empty();) {
    const size_t end = std::min(rest.find(' '), rest.size());
    if (const auto place = schema.argumentIndexWithName(std::string(rest.substr(0, end))))
      places.push_back({*place, use});
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return places;
}

static bool says_where(const std::string& argument) {
  return argument == "index" || argument == "indices" || argument == "mask" ||
      argument == "condition" || argument == "repeats";
}

Plan::Plan(const c10::FunctionSchema& schema)
    : Plan(schema, operator_facts(schema.name(), schema.overload_name())) {
}

Plan::Plan(const c10::FunctionSchema& schema, const OperatorFacts& row)
    : name(schema.name()),
      base(base_name(name)),
      route(row.route),
      facts(row.facts),
      rule(rule_of(row)),
      accumulate(place_of(schema, "accumulate")),
      reduce(place_of(schema, "reduce")),
      mask(place_of(schema, "attn_mask")),
      smoothing(place_of(schema, "label_smoothing")),
      limits(place_of(schema, "posinf")),
      products(row.products),
      product(products ? select_kernel(*products, schema) : nullptr) {
  by_casts = has(fact::ByCasts) && !is_in_place(schema);
  selects = takes(Step::MovedCodes) || has(fact::Selects);
  first_alone = rule == OperandRule::Normalisation || has(fact::FirstAlone);
  near_ties = has(fact::ComesNear) && comes_near_ties(base);
  generator = place_of(schema, "generator");
  random = has(fact::Draws) || generator >= 0;
  draws_only = has(fact::Fills) || (has(fact::FillsInPlace) && is_in_place(schema));
  numbers = number_places(schema, row);
  training = std::max({place_of(schema, "training"), place_of(schema, "train"),
                       place_of(schema, "use_input_stats")});
  writes = false;
  for (const c10::Argument& a : schema.arguments()) {
    // Stock code reads weights and targets out of the tensor; a mask is added to scores of the
    // query's dtype.
    const bool weights =
        (has(fact::AnyWeight) && (a.name() == "weight" || a.name() == "pos_weight")) ||
        (has(fact::AnyTarget) && a.name() == "target");
    const bool holds_numbers =
        (takes(Step::PlaceByPlace) && a.name() == "scalars") || a.name() == "attn_mask" || weights;
    arguments.push_back({slot_of(a), is_written(schema, a), is_statistic(a), holds_numbers,
                         says_where(a.name()), a.name()});
    writes |= arguments.back().written && arguments.back().slot == Slot::Tensor;
  }
  if (takes(Step::CastOut)) functional = find_functional(schema);
}

bool Plan::makes_view(const c10::FunctionSchema& schema) {
  for (const c10::Argument& r : schema.returns()) {
    if (r.alias_info() && !r.alias_info()->isWrite()) return true;
  }
  return false;
}

bool Plan::writes_to(size_t argument, const torch::jit::Stack& stack, size_t base) const {
  const Argument& a = arguments[argument];
  return a.written && (!a.in_training || training < 0 || stack[base + training].toBool());
}

bool Plan::takes_tensor() const {
  for (const Argument& a : arguments) {
    if (a.slot != Slot::Other && a.slot != Slot::Dtype) return true;
  }
  return false;
}

bool any_of_ours(const Plan& plan, const torch::jit::Stack& stack) {
  bool any = false;
  const size_t base = stack.size() - plan.arguments.size();
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    each_tensor(plan.arguments[i].slot, stack[base + i],
                [&](const at::Tensor& t) { any |= entry_beneath(t) != nullptr; });
  }
  return any;
}

bool has_complex_number(const Plan& plan, const torch::jit::Stack& stack) {
  const auto is_complex = [](const c10::IValue& value) { return value.isComplexDouble(); };
  return std::any_of(stack.end() - plan.arguments.size(), stack.end(),
                     [&](const c10::IValue& value) {
                       if (!value.isList()) return is_complex(value);
                       // A list of numbers, each of which may be complex, or of something else.
                       const at::ArrayRef<c10::IValue> list = value.toListRef();
                       return !list.empty() && !list.front().isTensor() &&
                           std::any_of(list.begin(), list.end(), is_complex);
                     });
}

bool is_recorded(const Plan& plan, const torch::jit::Stack& stack) {
  if (!at::GradMode::is_enabled()) return false;
  bool any = false;
  const size_t base = stack.size() - plan.arguments.size();
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    each_tensor(plan.arguments[i].slot, stack[base + i],
                [&](const at::Tensor& t) { any |= t.defined() && t.requires_grad(); });
  }
  return any;
}

bool is_composed(const Plan& plan, const torch::jit::Stack& stack) {
  if (!plan.takes(Step::Composed)) return false;
  const FormatEntry* entry = nullptr;
  // nothing: an operand without elements; stock code makes zeros of the container's type from it.
  bool several = false, nothing = false;
  const size_t base = stack.size() - plan.arguments.size();
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    if (plan.arguments[i].numbers) continue;
    each_tensor(plan.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) {
      if (!t.defined()) return;
      const FormatEntry* own = entry_beneath(t);
      several |= own ? entry && own != entry : t.is_floating_point() || t.is_complex();
      if (own) entry = own;
      nothing |= own && t.sym_numel() == 0;
    });
  }
  if (nothing) return false;
  if (several || (entry && accumulation_of(*entry).own_kernels())) return true;
  return plan.smoothing >= 0 && stack[base + plan.smoothing].toDouble() == 0 &&
      !stack[base + 1].toTensor().is_floating_point();
}

void run_composed(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  // The composite kernel is at a key that no tensor has.
  op.redispatchBoxed(c10::DispatchKeySet(), stack);
}

} // namespace at::formats
