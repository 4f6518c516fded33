#include <ATen/native/formats/overlay/BoxedCall.h>

#include <ATen/FormatRounding.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/ivalue.h>
#include <ATen/native/formats/Accumulate.h>
#include <ATen/native/formats/Elementary.h>
#include <ATen/native/formats/overlay/MovedCodes.h>
#include <ATen/native/formats/overlay/OperandRules.h>
#include <ATen/native/formats/overlay/StockFormula.h>
#include <ATen/ops/as_strided_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/resize_ops.h>
#include <ATen/ops/to_ops.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

namespace at::formats {

using c10::ScalarType;

// ---- ResultType ----

// Operators that only stock code calls: what it makes beside our operands (the zeros of absent biases) has the container's dtype.
static bool is_internal(const char* op) {
  return std::strcmp(op, "aten::mkldnn_rnn_layer") == 0;
}

bool ResultType::stock_wins() const {
  if (!stock) return false;
  if (is_complex()) return true;
  return (stock_has_dims_ || !format_has_dims_) && !in_stock_formula();
}

void ResultType::see(const at::Tensor& t, const char* op) {
  if (!t.defined()) return;
  const bool has_dims = t.dim() > 0;
  const FormatEntry* entry = entry_beneath(t);
  if (!entry && is_internal(op)) return;
  if (entry) {
    TORCH_CHECK( // no TypeError: Python's operators would hide its message
        !format || format == entry, op, ": expected tensors of one number format, but got ", format->name, " and ", entry->name,
        ". Convert one of them first, for example with x.to(torch.", format->name, ")");
    format = entry;
    format_has_dims_ |= has_dims;
  } else if (c10::isComplexType(t.scalar_type())) {
    const bool number = t.unsafeGetTensorImpl()->is_wrapped_number();
    const ScalarType seen = number ? ScalarType::ComplexFloat : t.scalar_type();
    complex_number_ |= number;
    stock = c10::promoteTypes(stock.value_or(seen), seen);
  } else if (is_complex()) {
    return;
  } else if (c10::isFloatingType(t.scalar_type()) && !t.unsafeGetTensorImpl()->is_wrapped_number()) {
    if (has_dims && !stock_has_dims_) stock.reset(); // dimensions outrank none
    if (has_dims || !stock_has_dims_) stock = stock.has_value() ? c10::promoteTypes(*stock, t.scalar_type()) : t.scalar_type();
    stock_has_dims_ |= has_dims;
  } else if (!t.unsafeGetTensorImpl()->is_wrapped_number()) {
    integers = true;
  }
  if (complex_number_ && format) stock = c10::promoteTypes(*stock, c10::toComplexType(format->compute));
}

void ResultType::keep(const at::Tensor& first) {
  if (entry_beneath(first)) {
    stock.reset();
  } else if (c10::isFloatingType(first.scalar_type()) || c10::isComplexType(first.scalar_type())) {
    stock = first.scalar_type();
    stock_has_dims_ = true;
  }
}

ResultType ResultType::of(const Plan& plan, const torch::jit::Stack& stack, size_t base) {
  ResultType type;
  const auto look = [&](bool numbers) {
    for (size_t i = 0; i < plan.arguments.size(); ++i) {
      if (plan.arguments[i].numbers != numbers) continue;
      each_tensor(plan.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) { type.see(t, plan.name.c_str()); });
    }
  };
  look(false);
  if (!type.format) look(true);
  if ((type.stock || type.integers) && type.format && plan.rule != OperandRule::Any && !plan.keeps_first && !in_stock_formula()) expect_one_dtype(plan, stack, base);
  if (plan.keeps_first && stack[base].isTensor() && stack[base].toTensor().defined()) type.keep(stack[base].toTensor());
  return type;
}

// ---- Plan ----

std::string base_name(const std::string& op) {
  std::string name = op.substr(op.find("::") + 2);
  if (name.back() == '_') name.pop_back();
  return name;
}

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

// Batch and instance normalisation update their running statistics without saying so.
static bool writes_undeclared(const c10::FunctionSchema& schema, const c10::Argument& argument) {
  const std::string& op = schema.name();
  if ((op.find("batch_norm") == std::string::npos && op != "aten::instance_norm") || op.find("backward") != std::string::npos) return false;
  return argument.name() == "running_mean" || argument.name() == "running_var";
}

// Operators whose results are values of their operands, their negatives, or numbers that the caller gave.
static bool selects_values(const std::string& op) {
  static const std::set<std::string> names = {
      "abs", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "amax", "amin", "aminmax", "block_diag", "cat", "clamp", "clamp_max", "clamp_min", "constant_pad_nd", "copysign",
      "cummax", "cummin", "diag", "diag_embed", "diagonal_scatter", "embedding", "fmax", "fmin", "fractional_max_pool2d", "fractional_max_pool3d", "gather", "hardtanh", "im2col",
      "index", "index_copy", "index_fill", "index_put", "_index_put_impl", "index_select", "isin", "kthvalue", "masked_fill",
      "masked_scatter", "masked_select", "max", "max_pool1d", "max_pool2d_with_indices",
      "max_pool3d_with_indices", "max_unpool2d", "max_unpool3d", "maximum", "median", "min", "minimum", "mode", "msort", "nan_to_num", "nanmedian", "neg",
      "one_hot", "pixel_shuffle", "pixel_unshuffle", "put", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "relu", "repeat",
      "repeat_interleave", "replication_pad1d", "replication_pad2d", "replication_pad3d", "roll", "flip", "rot90", "scatter", "select_scatter", "slice_scatter", "sign", "sort",
      "stack", "take", "threshold_backward", "topk", "tril", "triu", "unique_dim", "_unique2", "where", "upsample_nearest1d",
      "upsample_nearest2d", "upsample_nearest3d",
  };
  return names.count(base_name(op)) != 0;
}

static bool draws_numbers(const c10::FunctionSchema& schema) {
  static const std::set<std::string> without_generator = {"native_dropout", "rand_like", "randn_like", "randint_like"};
  const auto& arguments = schema.arguments();
  return without_generator.count(base_name(schema.name())) != 0 ||
      std::any_of(arguments.begin(), arguments.end(), [](const c10::Argument& a) { return a.name() == "generator"; });
}

// Operators that fill a tensor with what they draw, and those that make one like another.
static bool only_draws(const c10::FunctionSchema& schema) {
  static const std::set<std::string> fills = {"uniform", "random", "cauchy", "geometric", "exponential", "log_normal", "normal_functional", "rand_like",
                                              "randn_like", "randint_like"};
  static const std::set<std::string> in_place = {"aten::normal_", "aten::bernoulli_"};
  const bool fixed_chance = schema.name() == "aten::bernoulli" && schema.overload_name() == "p";
  return fills.count(base_name(schema.name())) != 0 || in_place.count(schema.name()) != 0 || fixed_chance;
}

static int place_of(const c10::FunctionSchema& schema, const char* argument) {
  return schema.argumentIndexWithName(argument).value_or(-1);
}

// Operators that put one tensor, whatever its dtype, into another.
static bool keeps_first_dtype(const std::string& op) {
  static const std::set<std::string> names = {"as_strided_scatter", "diagonal_scatter", "fill", "rms_norm", "select_scatter", "slice_scatter"};
  return names.count(base_name(op)) != 0;
}

Plan::Plan(const c10::FunctionSchema& schema)
    : name(schema.name()), adds_products(is_dot_operator(schema.name())), elementary(is_elementary(schema.name())),
      tabled(has_table(schema.name())), selects(selects_values(schema.name()) && schema.overload_name().find("reduce") == std::string::npos),
      moves(moves_elements(schema)), per_place(schema.name().rfind("aten::_foreach_", 0) == 0),
      leaves_range(at::formats::leaves_range(schema.name())), rule(operand_rule(schema.name())), keeps_first(keeps_first_dtype(schema.name())), writes(false),
      accumulate(place_of(schema, "accumulate")), numbers(number_places(schema)), random(draws_numbers(schema)), draws_only(only_draws(schema)),
      below_one(base_name(schema.name()) == "rand_like"), limits(place_of(schema, "posinf")) {
  for (const c10::Argument& a : schema.arguments()) {
    // Read out of the tensor by stock code; or added to scores of the query's dtype.
    const bool numbers = (per_place && a.name() == "scalars") || a.name() == "attn_mask";
    arguments.push_back({slot_of(a), (a.alias_info() && a.alias_info()->isWrite()) || writes_undeclared(schema, a), numbers, a.name()});
    writes |= arguments.back().written && arguments.back().slot == Slot::Tensor;
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

bool any_of_ours(const Plan& plan, const torch::jit::Stack& stack) {
  bool any = false;
  const size_t base = stack.size() - plan.arguments.size();
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    each_tensor(plan.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) { any |= entry_beneath(t) != nullptr; });
  }
  return any;
}

bool has_complex_number(const Plan& plan, const torch::jit::Stack& stack) {
  return std::any_of(stack.end() - plan.arguments.size(), stack.end(), [](const c10::IValue& value) { return value.isComplexDouble(); });
}

bool is_recorded(const Plan& plan, const torch::jit::Stack& stack) {
  if (!at::GradMode::is_enabled()) return false;
  bool any = false;
  const size_t base = stack.size() - plan.arguments.size();
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    each_tensor(plan.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) { any |= t.defined() && t.requires_grad(); });
  }
  return any;
}

// ---- BoxedCall ----

BoxedCall::BoxedCall(const Plan& plan, torch::jit::Stack* stack, Casts casts)
    : name_(plan.name), casts_(casts), selects_(plan.selects), random_(plan.random && casts == Casts::Plain), below_one_(plan.below_one) {
  const size_t base = stack->size() - plan.arguments.size();
  if (plan.accumulate >= 0 && (*stack)[base + plan.accumulate].toBool()) selects_ = false;
  choose_types(plan, *stack, base);
  if (plan.draws_only && casts == Casts::Plain) blank_ = (*stack)[base].toTensor();
  if (plan.writes && casts == Casts::Plain) share_memory(plan, *stack, base);
  const bool begins = plan.leaves_range && (*stack)[base].isTensor() && is_format_tensor((*stack)[base].toTensor()); // with the operand
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    map_tensors(plan.arguments[i].slot, (*stack)[base + i], [&](const at::Tensor& t) { return stand_in(t, plan.arguments[i].written); });
  }
  const bool saturates = format_ && format_->format.is_posit() && format_->format.underflow == c10::formats::Underflow::Minpos;
  if (plan.leaves_range && saturates && casts == Casts::Plain && begins) {
    operand_ = (*stack)[base].toTensor();
    if (plan.arguments.size() > 1 && (*stack)[base + 1].isTensor()) operand_ = deciding_operand(name_, operand_, (*stack)[base + 1].toTensor());
    if (plan.writes) operand_ = operand_.clone();
  }
}

void BoxedCall::explain(c10::Error& error) const {
  const std::string text = error.what_without_backtrace();
  const char* name = c10::toString(compute_);
  const auto type = c10::getDtypeNames(compute_);
  if (text.find(name) == std::string::npos && text.find(compute_ == ScalarType::Double ? "double" : "float") == std::string::npos) return;
  error.add_context(c10::str(name, " stands for torch.", own_->name, ", which ", name_, " computes on in ", type.first));
}

void BoxedCall::choose_types(const Plan& plan, torch::jit::Stack& stack, size_t base) {
  const ResultType type = ResultType::of(plan, stack, base);
  TORCH_INTERNAL_ASSERT(type.format, plan.name, " came to the number formats' kernel without a tensor of theirs");
  format_ = type.result();
  own_ = type.format;
  compute_ = type.format->compute;
  if (plan.elementary && !has_complex_number(plan, stack)) compute_ = ScalarType::Double; // complex ones are not rounded to a format
  if (plan.adds_products) {
    const Accumulation policy = accumulation_of(*type.format);
    if (policy.kind == Accumulation::Kind::Float64) compute_ = ScalarType::Double;
    TORCH_CHECK(policy.kind != Accumulation::Kind::Float32 || compute_ == ScalarType::Float, plan.name,
                ": expected a format whose values and their products float32 has for the accumulation policy float32, but got ", type.format->name,
                ". Use float64 or exact.");
  }
  // The format gets the rounding of what a stock tensor of such a precision draws from the same seed.
  if (plan.draws_only && format_) compute_ = type.format->format.significand_bits() <= 24 ? ScalarType::Float : ScalarType::Double;
  if (!format_) compute_ = c10::toRealValueType(*type.stock); // as stock casts its operands to the common type
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    c10::IValue& value = stack[base + i];
    if (plan.arguments[i].slot != Plan::Slot::Dtype || !value.isInt()) continue;
    const auto asked = static_cast<ScalarType>(value.toInt());
    format_ = requested_format(asked, *type.format);
    if (format_) {
      compute_ = c10::promoteTypes(compute_, format_->compute);
      value = static_cast<int64_t>(compute_);
    }
  }
}

// The elements from the first to the last one in memory: [begin, end), counted from the beginning of the storage.
struct Extent {
  int64_t begin, end;

  explicit Extent(const at::Tensor& t) : begin(t.storage_offset()), end(begin + 1) {
    for (int64_t d = 0; d < t.dim(); ++d) end += (t.size(d) - 1) * t.stride(d);
  }
  bool meets(const Extent& other) const { return begin < other.end && other.begin < end; }
};

// Whether two tensors of one storage certainly have no element in common though their extents meet: columns of one matrix. All strides of
// at least S being multiples of it, the elements lie in windows S apart, as long as the other dimensions reach; two windows that do not
// meet modulo S never do.
static bool interleaved(const at::Tensor& a, const at::Tensor& b) {
  struct Window {
    int64_t first, length;
    bool regular{true};

    Window(const at::Tensor& t, int64_t apart) : first(t.storage_offset() % apart), length(1) {
      for (int64_t d = 0; d < t.dim(); ++d) {
        if (t.size(d) == 1 || t.stride(d) % apart == 0) continue;
        regular = regular && t.stride(d) < apart;
        length += (t.size(d) - 1) * t.stride(d);
      }
    }
  };
  for (const at::Tensor& t : {a, b}) {
    for (const int64_t apart : t.strides()) {
      if (apart < 2) continue;
      const Window x(a, apart), y(b, apart);
      const int64_t ahead = ((y.first - x.first) % apart + apart) % apart;
      if (x.regular && y.regular && ahead >= x.length && ahead + y.length <= apart) return true;
    }
  }
  return false;
}

// Where what is written overlaps itself or an operand, their stand-ins overlap in the same way: the stock kernel refuses, or does, what it
// would with tensors of its own.
void BoxedCall::share_memory(const Plan& plan, const torch::jit::Stack& stack, size_t base) {
  c10::SmallVector<at::Tensor, 6> tensors;
  c10::SmallVector<const at::TensorImpl*, 2> outputs;
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    each_tensor(plan.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) {
      if (!is_format_tensor(t) || t.numel() == 0) return;
      for (const at::Tensor& seen : tensors) {
        if (seen.is_same(t)) return;
      }
      tensors.push_back(t);
      if (plan.arguments[i].written && plan.arguments[i].slot == Plan::Slot::Tensor) outputs.push_back(t.unsafeGetTensorImpl());
    });
  }
  for (const at::Tensor& out : tensors) {
    if (std::find(outputs.begin(), outputs.end(), out.unsafeGetTensorImpl()) == outputs.end()) continue;
    const Extent own(out);
    Extent whole = own;
    c10::SmallVector<at::Tensor, 6> together;
    for (const at::Tensor& t : tensors) {
      const Extent extent(t);
      if (!t.storage().is_alias_of(out.storage()) || !extent.meets(own) || (!t.is_same(out) && interleaved(out, t))) continue;
      together.push_back(t);
      whole.begin = std::min(whole.begin, extent.begin);
      whole.end = std::max(whole.end, extent.end);
    }
    const bool known = std::any_of(pairs_.begin(), pairs_.end(), [&](const Pair& p) { return p.ours.is_same(out); });
    if (known || (together.size() == 1 && at::has_internal_overlap(out) != at::MemOverlap::Yes)) continue;
    const bool all_same = std::all_of(together.begin(), together.end(), [&](const at::Tensor& t) {
      return t.sizes() == out.sizes() && t.strides() == out.strides() && t.storage_offset() == out.storage_offset();
    });
    if (all_same && at::has_internal_overlap(out) != at::MemOverlap::Yes) { // no more than these elements
      const at::Tensor values = to_stock(out, compute_);
      for (const at::Tensor& t : together) pairs_.push_back({t, values, false});
      continue;
    }
    const at::Tensor values = to_stock(format_view(out, {whole.end - whole.begin}, {1}, whole.begin), compute_);
    for (const at::Tensor& t : together) {
      pairs_.push_back({t, at::_ops::as_strided::call(values, t.sym_sizes(), t.sym_strides(), t.storage_offset() - whole.begin), false});
    }
  }
}

at::Tensor BoxedCall::stand_in(const at::Tensor& t, bool written) {
  if (!entry_beneath(t)) {
    // What a stock derivative's formula makes of a gradient's options() has the container's dtype.
    const bool stray = format_ && !written && c10::isFloatingType(t.scalar_type()) && t.scalar_type() != compute_ &&
        (in_stock_formula() || is_internal(name_.c_str()));
    return stray ? t.to(compute_) : t;
  }
  for (Pair& p : pairs_) {
    if (p.ours.is_same(t)) {
      p.written |= written;
      return p.stock;
    }
  }
  pairs_.push_back({t, random_ && is_format_tensor(t) ? laid_out(t) : cast(t, compute_), written});
  return pairs_.back().stock;
}

// Random numbers are drawn in the order of memory, and stock kernels have ways of their own for tensors without gaps: the stand-in has the
// tensor's strides, gaps and all.
at::Tensor BoxedCall::laid_out(const at::Tensor& t) const {
  const bool blank = t.is_same(blank_);
  if (t.numel() == 0 || (!blank && t.is_non_overlapping_and_dense())) return to_stock(t, compute_);
  const Extent whole(t);
  const int64_t size = whole.end - whole.begin;
  const at::Tensor values = blank ? at::empty({size}, at::TensorOptions().dtype(compute_).device(t.device()))
                                  : to_stock(format_view(t, {size}, {1}, whole.begin), compute_);
  return at::_ops::as_strided::call(values, t.sym_sizes(), t.sym_strides(), 0);
}

at::Tensor BoxedCall::cast(const at::Tensor& t, ScalarType type) const {
  if (casts_ == Casts::Plain) return is_format_tensor(t) ? to_stock(t, type) : encoded(t, c10::formats::format_entry(type));
  const ExplicitDtypeGuard exact;
  return at::_ops::to_dtype::call(t, type, false, false, {});
}

// Where a NaN has no code but the largest number's, its sign is seen, and that of an invalid operation is the processor's: positive.
static at::Tensor without_signs_of_nan(const at::Tensor& t, const FormatEntry& entry) {
  const bool seen = entry.format.kind == c10::formats::Kind::Float && entry.format.specials == c10::formats::Specials::None;
  return seen && t.is_floating_point() ? t.masked_fill(t.isnan(), std::numeric_limits<double>::quiet_NaN()) : t;
}

at::Tensor BoxedCall::result(const at::Tensor& t) const {
  if (!t.defined()) return t;
  for (const Pair& p : pairs_) {
    if (p.written && p.stock.is_same(t)) return p.ours;
  }
  if (t.scalar_type() != compute_ || !format_) return t;
  const RoundingGuard guard(rounding_of_results(*format_));
  const at::Tensor values = rounded(t);
  return cast(casts_ == Casts::Plain ? without_signs_of_nan(values, *format_) : values, c10::formats::scalar_type(*format_));
}

at::Tensor BoxedCall::rounded(const at::Tensor& t) const {
  // Posits round nothing to 0, toward zero neither; uniform numbers are multiples of the type's unit roundoff.
  const int lowest = compute_ == ScalarType::Float ? -24 : -53;
  if (below_one_ && t.scalar_type() == compute_ && format_ && format_->format.is_posit() && format_->format.min_exponent() > lowest) {
    at::Tensor values = t;
    return values.masked_fill_(values.lt(std::ldexp(1.0, format_->format.min_exponent())), 0);
  }
  return operand_.defined() && t.scalar_type() == operand_.scalar_type() ? within_range(name_, t, operand_) : t;
}

// Values that were only selected must not move, nor cost random bits, where the mode would move exact ones. Deterministic modes keep
// them, and still round what is new among them (a bound, a fill value).
std::optional<Rounding> BoxedCall::rounding_of_results(const FormatEntry& entry) const {
  if (below_one_) return Rounding::TowardZero;
  const bool moves = selects_ && c10::formats::is_stochastic(rounding_format(entry).rounding);
  return moves ? std::optional(Rounding::NearestEven) : rounding_override();
}

// Where the stock kernel wrote into an expanded tensor (some only warn): one of the elements that lie in one place.
static at::Tensor distinct(at::Tensor t) {
  if (at::has_internal_overlap(t) != at::MemOverlap::Yes) return t;
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (t.stride(d) == 0) t = t.narrow(d, 0, 1);
  }
  return t;
}

void BoxedCall::finish(size_t results, torch::jit::Stack* stack) const {
  for (const Pair& p : pairs_) {
    if (!p.written) continue;
    if (casts_ == Casts::Recorded) {
      const ExplicitDtypeGuard exact;
      at::_ops::copy_::call(const_cast<at::Tensor&>(p.ours), p.stock, false);
      continue;
    }
    if (p.ours.sizes() != p.stock.sizes()) at::_ops::resize_::call(p.ours, c10::fromIntArrayRefSlow(p.stock.sizes()), {});
    const RoundingGuard guard(rounding_of_results(entry_of(p.ours)));
    encode_into(distinct(p.ours), without_signs_of_nan(rounded(distinct(p.stock)), entry_of(p.ours)));
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
