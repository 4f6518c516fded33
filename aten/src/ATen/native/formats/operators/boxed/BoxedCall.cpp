#include <ATen/native/formats/operators/boxed/BoxedCall.h>

#include <ATen/Accumulation.h>
#include <ATen/Float32Products.h>
#include <ATen/FormatRounding.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Observation.h>
#include <ATen/core/ivalue.h>
#include <ATen/native/formats/elementwise/Elementary.h>
#include <ATen/native/formats/elementwise/FillInfinity.h>
#include <ATen/native/formats/elementwise/ResizeOutput.h>
#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/native/formats/operators/boxed/ExactPowers.h>
#include <ATen/native/formats/operators/boxed/StockFormula.h>
#include <ATen/native/formats/operators/facts/OperandRules.h>
#include <ATen/ops/as_strided_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/to_ops.h>
#include <ATen/ops/where.h>
#include <c10/formats/FormatLimits.h>
#include <c10/formats/arithmetic/NanSigns.h>
#include <c10/formats/tables/ValueTable.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace at::formats {

using c10::ScalarType;

// Whether the reduction selects one of the elements.
static bool selects_by(const c10::IValue& reduce) {
  return reduce.isString() &&
      (reduce.toStringRef() == "amax" || reduce.toStringRef() == "amin" ||
       reduce.toStringRef() == "max" || reduce.toStringRef() == "min");
}

BoxedCall::BoxedCall(const Plan& plan, torch::jit::Stack* stack, Casts casts)
    : plan_(plan),
      casts_(casts),
      selects_(plan.selects),
      random_(plan.random && casts == Casts::Plain) {
  const size_t base = stack->size() - plan.arguments.size();
  if (plan.accumulate >= 0 && (*stack)[base + plan.accumulate].toBool()) selects_ = false;
  if (plan.reduce >= 0) selects_ = selects_ || selects_by((*stack)[base + plan.reduce]);
  choose_types(plan, *stack, base);
  if (plan.generator >= 0) generator_ = (*stack)[base + plan.generator].toOptional<at::Generator>();
  keep_range(plan, *stack, base);
  if (plan.draws_only && casts == Casts::Plain) {
    blank_ = (*stack)[base].toTensor();
    // x.bernoulli_(x) reads the tensor that it writes
    for (size_t i = 1; i < plan.arguments.size(); ++i) {
      if ((*stack)[base + i].isTensor() && (*stack)[base + i].toTensor().is_same(blank_))
        blank_ = at::Tensor();
    }
  }
  if (plan.writes && casts == Casts::Plain) share_memory(plan, *stack, base);
  const auto is_ours = [&](size_t i) {
    return (*stack)[i].isTensor() && is_format_tensor((*stack)[i].toTensor());
  };
  const bool told = plan.has(fact::LeavesRange | fact::ComesNear) && casts == Casts::Plain &&
      (is_ours(base) || (plan.has(fact::Powers) && is_ours(base + 1)));
  if (plan.selects && plan.has(fact::VmapPairs) && casts == Casts::Plain && format_)
    keep_sides(plan, *stack, base);
  const FormatEntry* first = (*stack)[base].isTensor() && (*stack)[base].toTensor().defined()
      ? entry_beneath((*stack)[base].toTensor())
      : nullptr;
  on_logarithms_ = format_ && first && c10::formats::is_logarithmic(format_->format) &&
      first->format.table == format_->format.table && (plan.base == "rsqrt" || plan.base == "pow");
  decode_together(plan, *stack, base);
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    const bool written = plan.writes_to(i, *stack, base);
    map_tensors(plan.arguments[i].slot, (*stack)[base + i],
                [&](const at::Tensor& t) { return stand_in(t, written); });
  }
  if (on_logarithms_ && plan.base == "pow") keep_power(*stack, base);
  if (told && format_) {
    const Format format = rounding_format(*format_);
    ranged_ = plan.has(fact::LeavesRange) && c10::formats::tells_ends_apart(format);
    near_ = plan.has(fact::ComesNear) &&
        // Wide formats have no tables.
        (c10::formats::sees_inexact(format.rounding) || (format.itemsize() <= 2 && plan.near_ties));
    if (ranged_ || near_) keep_operand(plan, *stack, base);
  }
}

// Keeps the values of the operands that the ends of results depend on, before the operator writes.
void BoxedCall::keep_operand(const Plan& plan, const torch::jit::Stack& stack, size_t base) {
  if (plan.has(fact::Powers)) {
    // Complex powers are computed as complex numbers.
    if (stack[base].isComplexDouble() || stack[base + 1].isComplexDouble()) return;
    const auto as_tensor = [](const c10::IValue& value) {
      return value.isTensor() ? value.toTensor().to(at::kDouble)
                              : at::scalar_tensor(value.toScalar(), at::kDouble);
    };
    operand_ = base_of_power(as_tensor(stack[base]), as_tensor(stack[base + 1]));
  } else if (plan.has(fact::LargerDecides)) {
    operand_ = larger_operand(stack[base].toTensor(), stack[base + 1].toTensor());
  } else {
    operand_ = plan.writes ? stack[base].toTensor().clone() : stack[base].toTensor();
  }
}

void BoxedCall::explain(c10::Error& error) const {
  const std::string text = error.what_without_backtrace();
  const char* name = c10::toString(compute_);
  const auto type = c10::getDtypeNames(compute_);
  if (text.find(name) == std::string::npos &&
      text.find(compute_ == ScalarType::Double ? "double" : "float") == std::string::npos)
    return;
  error.add_context(c10::str(name, " stands for torch.", own_->name, ", which ", plan_.name,
                             " computes on in ", type.first));
}

// The device of the first tensor. The others have the same one, or the stock kernel raises.
static c10::DeviceType device_of(const Plan& plan, const torch::jit::Stack& stack, size_t base) {
  std::optional<c10::DeviceType> device;
  for (size_t i = 0; i < plan.arguments.size() && !device; ++i) {
    each_tensor(plan.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) {
      if (t.defined() && !device) device = t.device().type();
    });
  }
  return device.value_or(c10::DeviceType::CPU);
}

static bool multiplies(const Plan& plan) {
  return plan.has(fact::MultipliesWithin) || (plan.adds_products() && !plan.has(fact::SumsInDtype));
}

// Whether float32 products keep all bits of their operands. Raises if the policy is float32 and
// they do not.
bool BoxedCall::keeps_operands(const Plan& plan, c10::DeviceType device) const {
  // A table's significand_bits() also count the digits of its boundaries.
  const int bits = plan.has(fact::MultipliesWithin)
      ? kFloat32Bits
      : std::min(own_->format.significand_bits(), kFloat32Bits);
  if (float32_keeps(bits, plan.base, device)) return true;
  const bool wanted =
      plan.adds_products() && accumulation_of(*own_).kind == Accumulation::Kind::Float32;
  if (wanted) expect_float32_products(*own_, plan.base);
  tell_of_float64_products(*own_, plan.base);
  return false;
}

// Whether an elementwise operator takes integers that float32 may lack.
static bool takes_wide_integers(const Plan& plan, const torch::jit::Stack& stack, size_t base) {
  if (!plan.has(fact::VmapPairs) && !plan.takes(Step::PutNumbers)) return false;
  bool any = false;
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    if (plan.arguments[i].where) continue;
    each_tensor(plan.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) {
      any |= t.defined() && !entry_beneath(t) &&
          c10::isIntegralType(t.scalar_type(), /*includeBool=*/false) && t.itemsize() >= 4;
    });
  }
  return any;
}

void BoxedCall::choose_types(const Plan& plan, torch::jit::Stack& stack, size_t base) {
  const ResultType type = result_type(plan, stack, base);
  TORCH_INTERNAL_ASSERT(type.format, plan.name,
                        " came to the number formats' kernel without a tensor of theirs");
  format_ = type.result();
  own_ = type.format;
  compute_ = type.format->compute;
  // Complex results are not rounded to a format.
  if (plan.has(fact::InFloat64) && !has_complex_number(plan, stack)) compute_ = ScalarType::Double;
  bool float32_asked = false; // by the accumulation policy
  if (plan.adds_products() || plan.takes(Step::Composed)) {
    const Accumulation policy = accumulation_of(*type.format);
    float32_asked = policy.kind == Accumulation::Kind::Float32;
    if (policy.kind == Accumulation::Kind::Float64) compute_ = ScalarType::Double;
    TORCH_CHECK(!float32_asked || compute_ == ScalarType::Float, plan.name,
                ": expected a format whose values and products fit float32, for the "
                "accumulation policy float32, but got ",
                type.format->name, ". Use float64 or exact.");
  }
  // If the format has float32's digits, a float32 result is already rounded to nearest; another
  // mode would have no effect.
  const bool digits_of_float32 =
      own_->format.significand_bits() >= kFloat32Bits && !own_->format.is_table();
  if (digits_of_float32 && !selects_ && !plan.draws_only && !float32_asked &&
      rounding_format(*own_).rounding != Rounding::NearestEven)
    compute_ = ScalarType::Double;
  if (compute_ == ScalarType::Float && multiplies(plan) &&
      !keeps_operands(plan, device_of(plan, stack, base)))
    compute_ = ScalarType::Double;
  // For draws: the format gets the rounding of the number that a stock tensor of that precision
  // draws from the same seed.
  if (plan.draws_only && format_)
    compute_ =
        type.format->format.significand_bits() <= 24 ? ScalarType::Float : ScalarType::Double;
  // A float64 operand, or a number that float32 lacks, counts exactly among float32 values: there
  // is one rounding, at the end.
  const bool elements = plan.rule == OperandRule::Any && !random_ && !plan.adds_products();
  const auto wide = [&] {
    return type.doubles || (type.integers && takes_wide_integers(plan, stack, base)) ||
        !float32_has(plan.numbers, plan.arguments.size(), stack);
  };
  if (format_ && elements && wide()) compute_ = ScalarType::Double;
  // A stock kernel casts its operands to the common type.
  if (!format_) compute_ = c10::toRealValueType(*type.stock());
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

// The stretch of memory from the first to the last element: [begin, end), counted from the start of
// the storage.
struct Extent {
  int64_t begin, end;

  explicit Extent(const at::Tensor& t) : begin(t.storage_offset()), end(begin + 1) {
    for (int64_t d = 0; d < t.dim(); ++d) end += (t.size(d) - 1) * t.stride(d);
  }
  bool meets(const Extent& other) const { return begin < other.end && other.begin < end; }
};

// Whether two tensors of one storage certainly share no element although their extents overlap: for
// example, columns of one matrix. If all strides that are at least S are multiples of S, a tensor's
// elements are in windows S apart, each as long as the other dimensions reach. If two such windows
// do not overlap modulo S, they never overlap.
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

// If a written tensor overlaps itself or an operand, their stand-ins overlap in the same way. The
// stock kernel then raises or computes as it would with stock tensors.
void BoxedCall::share_memory(const Plan& plan, const torch::jit::Stack& stack, size_t base) {
  c10::SmallVector<at::Tensor, 6> tensors;
  c10::SmallVector<const at::TensorImpl*, 2> outputs;
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    each_tensor(plan.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) {
      if (!is_format_tensor(t) || t.numel() == 0) return;
      if (plan.arguments[i].written && plan.arguments[i].slot == Plan::Slot::Tensor)
        outputs.push_back(t.unsafeGetTensorImpl());
      const auto is_it = [&](const at::Tensor& seen) { return seen.is_same(t); };
      // out= may also be an operand
      if (std::none_of(tensors.begin(), tensors.end(), is_it)) tensors.push_back(t);
    });
  }
  for (const at::Tensor& out : tensors) {
    if (std::find(outputs.begin(), outputs.end(), out.unsafeGetTensorImpl()) == outputs.end())
      continue;
    const Extent own(out);
    Extent whole = own;
    c10::SmallVector<at::Tensor, 6> together;
    for (const at::Tensor& t : tensors) {
      const Extent extent(t);
      if (!t.storage().is_alias_of(out.storage()) || !extent.meets(own) ||
          (!t.is_same(out) && interleaved(out, t)))
        continue;
      together.push_back(t);
      whole.begin = std::min(whole.begin, extent.begin);
      whole.end = std::max(whole.end, extent.end);
    }
    const bool known = std::any_of(pairs_.begin(), pairs_.end(),
                                   [&](const Pair& p) { return p.ours.is_same(out); });
    if (known || (together.size() == 1 && at::has_internal_overlap(out) != at::MemOverlap::Yes))
      continue;
    const bool all_same = std::all_of(together.begin(), together.end(), [&](const at::Tensor& t) {
      return t.sizes() == out.sizes() && t.strides() == out.strides() &&
          t.storage_offset() == out.storage_offset();
    });
    // Then the stand-in needs these elements only.
    if (all_same && at::has_internal_overlap(out) != at::MemOverlap::Yes) {
      const at::Tensor values = to_stock(out, compute_);
      for (const at::Tensor& t : together) pairs_.push_back({t, values, false});
      continue;
    }
    const at::Tensor values =
        to_stock(format_view(out, {whole.end - whole.begin}, {1}, whole.begin), compute_);
    for (const at::Tensor& t : together) {
      pairs_.push_back({t,
                        at::_ops::as_strided::call(values, t.sym_sizes(), t.sym_strides(),
                                                   t.storage_offset() - whole.begin),
                        false});
    }
  }
}

// Whether a GPU may cast several tensors at once: not if the order of random draws matters.
bool BoxedCall::casts_together(const at::Tensor& t) const {
  return on_gpu(t.device()) && casts_ == Casts::Plain && !random_ &&
      compute_ == ScalarType::Float && own_->compute == ScalarType::Float &&
      !c10::formats::is_stochastic(rounding_format(*own_).rounding);
}

// Makes the stand-ins of all operands by one launch, which costs more than casting a small tensor.
void BoxedCall::decode_together(const Plan& plan, const torch::jit::Stack& stack, size_t base) {
  std::vector<at::Tensor> ours;
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    each_tensor(plan.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) {
      if (!is_format_tensor(t) || !casts_together(t) || &entry_of(t) != own_ ||
          (!ours.empty() && t.device() != ours[0].device()))
        return;
      const auto is_it = [&](const at::Tensor& other) { return other.is_same(t); };
      const bool known = std::any_of(ours.begin(), ours.end(), is_it) ||
          std::any_of(pairs_.begin(), pairs_.end(), [&](const Pair& p) { return is_it(p.ours); });
      if (!known) ours.push_back(t);
    });
  }
  if (ours.size() < 2) return;
  const std::vector<at::Tensor> values = decoded_together(ours);
  for (size_t i = 0; i < ours.size(); ++i) pairs_.push_back({ours[i], values[i], false});
}

at::Tensor BoxedCall::stand_in(const at::Tensor& t, bool written) {
  if (!entry_beneath(t)) {
    // A tensor that a stock derivative's formula makes from a gradient's options() has the
    // container's dtype.
    const bool stray = format_ && !written && c10::isFloatingType(t.scalar_type()) &&
        t.scalar_type() != compute_ && (in_stock_formula() || plan_.has(fact::Internal));
    return stray || (!format_ && takes_promoted(plan_, t, written, compute_)) ? t.to(compute_) : t;
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

// A stand-in with the tensor's strides, including gaps: random numbers are drawn in memory order,
// and stock kernels treat tensors without gaps differently.
at::Tensor BoxedCall::laid_out(const at::Tensor& t) const {
  const bool blank = t.is_same(blank_);
  if (t.numel() == 0 || (!blank && t.is_non_overlapping_and_dense())) return to_stock(t, compute_);
  const Extent whole(t);
  const int64_t size = whole.end - whole.begin;
  const at::Tensor values = blank
      ? at::empty({size}, at::TensorOptions().dtype(compute_).device(t.device()))
      : to_stock(format_view(t, {size}, {1}, whole.begin), compute_);
  return at::_ops::as_strided::call(values, t.sym_sizes(), t.sym_strides(), 0);
}

at::Tensor BoxedCall::cast(const at::Tensor& t, ScalarType type) const {
  if (casts_ == Casts::Plain)
    return is_format_tensor(t) ? to_stock(t, type) : encoded(t, c10::formats::format_entry(type));
  const ExplicitDtypeGuard explicit_dtype;
  return at::_ops::to_dtype::call(t, type, false, false, {});
}

// Drops the signs of NaN as drop_nan_signs() does.
static at::Tensor without_signs_of_nan(const at::Tensor& t, const FormatEntry& entry) {
  return c10::formats::shows_nan_signs(entry.format) && t.is_floating_point()
      ? t.masked_fill(t.isnan(), std::numeric_limits<double>::quiet_NaN())
      : t;
}

const BoxedCall::Pair* BoxedCall::written_as(const at::Tensor& stock) const {
  const auto found = std::find_if(pairs_.begin(), pairs_.end(), [&](const Pair& p) {
    return p.written && p.stock.is_same(stock);
  });
  return found == pairs_.end() ? nullptr : &*found;
}

at::Tensor BoxedCall::result(const at::Tensor& t) const {
  if (!t.defined() || is_format_tensor(t)) return t; // encode_together() has made it
  if (const Pair* written = written_as(t)) return written->ours;
  if (t.scalar_type() != compute_ || !format_) return t;
  TORCH_CHECK_NOT_IMPLEMENTED(
      t.layout() == c10::kStrided, plan_.name, ": expected a dense result, but got a ", t.layout(),
      " one of ", format_->name,
      ": there are no sparse tensors of number formats; leave out sparse=True.");
  const RoundingGuard guard(rounding_of_results(*format_));
  const LogarithmGuard logarithms(on_logarithms_);
  const Unobserved selected(selects_);
  const at::Tensor values = before_rounding(t);
  const at::Tensor made =
      cast(casts_ == Casts::Plain ? without_signs_of_nan(values, *format_) : values,
           c10::formats::scalar_type(*format_));
  if (!selects_ && !plan_.random) tell_of_infinities(plan_.base, made, values);
  sign_zeros_of(made);
  return made;
}

static Tail tail_of(const Plan& plan) {
  if (plan.has(fact::LargerDecides)) return Tail::ZerosAlone;
  return plan.has(fact::NegativeZeros) ? Tail::NegativeZeros : Tail::Signed;
}

// The stock operator's values, corrected where float64 lacks the exact result.
at::Tensor BoxedCall::before_rounding(const at::Tensor& result) const {
  at::Tensor t = result;
  if (magnitudes_.defined() && t.scalar_type() == compute_) {
    // t + (exact - t) is exact, and keeps the derivative.
    const at::Tensor known = t.isfinite().logical_and(t.ne(0)).logical_and(magnitudes_.isfinite());
    // Adding -0 keeps the sign of -0.
    t = t.add(at::where(known, magnitudes_.copysign(t.detach()).sub(t.detach()), -0.0));
  }
  if (plan_.has(fact::BelowOne) && t.scalar_type() == compute_ && format_) {
    const double least =
        c10::formats::least_uniform(format_->format, compute_ == ScalarType::Float ? 24 : 53);
    at::Tensor values = t;
    return least > 0 ? values.masked_fill_(values.lt(least), 0) : values;
  }
  if (plan_.has(fact::Interval | fact::Integers | fact::Positive) && t.scalar_type() == compute_ &&
      format_)
    return at::Tensor(t).clamp_(least_, most_);
  if (!operand_.defined() || t.scalar_type() != operand_.scalar_type()) return t;
  const FunctionEnds ends = ends_of(plan_.base, near_, ranged_, tail_of(plan_));
  // with_ends() keeps the derivative.
  return casts_ == Casts::Plain ? put_ends(t, operand_, ends) : with_ends(t, operand_, ends);
}

// The mode of results. Values that were only selected must neither move nor use up random bits, so
// a mode that moves exact values becomes nearest even. Deterministic modes keep selected values,
// and still round new ones (a bound, a fill value).
std::optional<Rounding> BoxedCall::rounding_of_results(const FormatEntry& entry) const {
  if (plan_.has(fact::BelowOne)) return Rounding::TowardZero;
  const bool moves = selects_ && c10::formats::is_stochastic(rounding_format(entry).rounding);
  return moves ? std::optional(Rounding::NearestEven) : rounding_override();
}

// If the stock kernel wrote into an expanded tensor (for some it only warns): returns one of the
// elements that share a place.
static at::Tensor for_itself(at::Tensor t) {
  if (at::has_internal_overlap(t) != at::MemOverlap::Yes) return t;
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (t.stride(d) == 0) t = t.narrow(d, 0, 1);
  }
  return t;
}

// As decode_together(), for new results.
void BoxedCall::encode_together(size_t first, torch::jit::Stack* stack) const {
  if (stack->size() - first < 2 || format_ != own_ || plan_.has(fact::BelowOne) ||
      plan_.first_alone)
    return;
  std::vector<size_t> places;
  for (size_t i = first; i < stack->size(); ++i) {
    const c10::IValue& value = (*stack)[i];
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const at::Tensor& t = value.toTensor();
    if (!written_as(t) && t.scalar_type() == compute_ && t.layout() == c10::kStrided &&
        casts_together(t))
      places.push_back(i);
  }
  if (places.size() < 2) return;
  std::vector<at::Tensor> values;
  for (const size_t i : places)
    values.push_back(without_signs_of_nan(before_rounding((*stack)[i].toTensor()), *format_));
  const RoundingGuard guard(rounding_of_results(*format_));
  const std::vector<at::Tensor> made = encoded_together(values, *format_);
  for (size_t k = 0; k < places.size(); ++k) (*stack)[places[k]] = made[k];
}

void BoxedCall::finish(size_t results, torch::jit::Stack* stack) const {
  const Unobserved selected(selects_);
  const WordSourceGuard words(generator_);
  for (const Pair& p : pairs_) {
    if (!p.written) continue;
    if (casts_ == Casts::Recorded) {
      const ExplicitDtypeGuard explicit_dtype;
      at::_ops::copy_::call(const_cast<at::Tensor&>(p.ours), p.stock, false);
      continue;
    }
    if (p.ours.sizes() != p.stock.sizes()) resize_to_result(p.ours, p.stock);
    const RoundingGuard guard(rounding_of_results(entry_of(p.ours)));
    const LogarithmGuard logarithms(on_logarithms_ && &entry_of(p.ours) == format_);
    encode_into(for_itself(p.ours),
                without_signs_of_nan(before_rounding(for_itself(p.stock)), entry_of(p.ours)));
    if (!selects_ && !plan_.random) tell_of_infinities(plan_.base, p.ours, p.stock);
    if (&entry_of(p.ours) == format_) sign_zeros_of(p.ours);
  }
  const size_t first = stack->size() - results;
  encode_together(first, stack);
  for (size_t i = first; i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    // Further results are kept for a derivative. They may be beyond the range (1 / sqrt(eps), a
    // number of targets), and rounding them would spoil all gradients.
    if (plan_.first_alone && i > first) continue;
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
