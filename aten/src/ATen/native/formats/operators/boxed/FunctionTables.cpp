#include <ATen/native/formats/operators/boxed/FunctionTables.h>

#include <ATen/FormatRounding.h>
#include <ATen/Observation.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/formats/elementwise/Elementary.h>
#include <ATen/native/formats/elementwise/FillInfinity.h>
#include <ATen/native/formats/gpu/DeviceKernels.h>
#include <ATen/native/formats/gpu/GpuCasts.h>
#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/native/formats/gpu/GpuObservation.h>
#include <ATen/native/formats/operators/boxed/BoxedCall.h>
#include <ATen/native/formats/stock/Backend.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/formats/codec/KeptDenormals.h>

#include <optional>
#include <sstream>
#include <string>

namespace at::formats {
namespace {

// The other arguments as text; nothing if one is not a number, a truth value, a string or None.
std::optional<std::string> text_of_arguments(const torch::jit::Stack& stack, size_t first) {
  // Most calls end here; a stream costs more than the rest of a small call.
  if (first == stack.size()) return std::string();
  std::ostringstream text;
  for (size_t i = first; i < stack.size(); ++i) {
    const c10::IValue& v = stack[i];
    if (!(v.isNone() || v.isScalar() || v.isString())) return std::nullopt;
    if (v.isDouble()) {
      text << std::hexfloat << v.toDouble() << ',';
    } else {
      text << v.tagKind() << ' ' << v << ',';
    }
  }
  return text.str();
}

// Runs the operator on every code that an element can hold. Behind the results comes a 1 if it
// produced an infinity that the format lacks, else a 0.
at::Tensor make_table(const c10::OperatorHandle& op, const Plan& plan, const FormatEntry& entry,
                      const torch::jit::Stack& stack, size_t base) {
  const c10::formats::KeptDenormals kept;
  const NoInfinitiesTold every_code;
  const int64_t count = int64_t{1} << (8 * entry.format.itemsize());
  at::Tensor all =
      at::arange(count, at::TensorOptions().dtype(c10::ScalarType::Int)).to(entry.bits);
  torch::jit::Stack call(stack.begin() + static_cast<int64_t>(base), stack.end());
  call[0] = format_alias(all, entry);
  const BoxedCall boxed(plan, &call);
  op.callBoxed(&call);
  boxed.finish(1, &call);
  const at::Tensor result = call[0].toTensor();
  if (!is_format_tensor(result) || &entry_of(result) != &entry) return {};
  const at::Tensor bits = bits_alias(result);
  return at::cat({bits, at::full({1}, every_code.any(), bits.options())});
}

bool has_poles(const at::Tensor& table) {
  const char* end = static_cast<const char*>(table.const_data_ptr()) + table.nbytes();
  return *(end - table.itemsize()) != 0; // the low byte, of 0 or 1
}

} // namespace

// The operator's results before rounding: in float64, or rounded to odd in float32 if the format is
// narrow enough.
static at::Tensor make_exact_table(const c10::OperatorHandle& op, const Plan& plan,
                                   const FormatEntry& entry, const torch::jit::Stack& stack,
                                   size_t base) {
  const Unobserved every_code;
  LastEncoded encoded;
  if (!make_table(op, plan, entry, stack, base).defined()) return {};
  const at::Tensor values = encoded.values;
  if (!values.defined() || values.numel() != int64_t{1} << (8 * entry.format.itemsize())) return {};
  if (values.scalar_type() != c10::ScalarType::Double) return {};
  const at::Tensor dense = values.contiguous(), sizes = dense.abs();
  const bool ordinary = dense.isnan()
                            .logical_or(dense.eq(0))
                            .logical_or(dense.isinf())
                            .logical_or(sizes.ge(0x1p-126).logical_and(sizes.le(0x1p126)))
                            .all()
                            .item()
                            .toBool();
  if (!ordinary || !entry.format.fits_float() || entry.format.significand_bits() > 12) return dense;
  at::Tensor narrow = at::empty(dense.sizes(), at::TensorOptions().dtype(c10::ScalarType::Float));
  host_kernels().narrow_to_odd(dense.const_data_ptr<double>(), narrow.mutable_data_ptr<float>(),
                               dense.numel());
  return narrow;
}

// Looks up exact results for a tensor's codes, in memory order.
static at::Tensor exact_results(const at::Tensor& table, const at::Tensor& in) {
  // Some dtypes of codes are signed.
  const at::Tensor codes = in.as_strided({in.numel()}, {1}).to(c10::ScalarType::Long);
  return table.index_select(0, codes.bitwise_and((int64_t{1} << (8 * in.itemsize())) - 1));
}

// Warns of infinities behind NaN results from a table with infinities. The operator runs again to
// find them, unless its operand had NaN already.
static void tell_of_looked_up(const c10::OperatorHandle& op, const Plan& plan,
                              const torch::jit::Stack& stack, size_t base, const at::Tensor& self,
                              const at::Tensor& out) {
  if (holds_nan(self)) return;
  torch::jit::Stack call(stack.begin() + static_cast<int64_t>(base), stack.end());
  call[0] = self;
  const BoxedCall boxed(plan, &call);
  op.callBoxed(&call);
  tell_of_infinities(plan.base, out, call[0].toTensor());
}

bool run_by_table(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t base = stack->size() - schema.arguments().size();
  if (schema.returns().size() != 1 || !(*stack)[base].isTensor()) return false;
  const at::Tensor self = (*stack)[base].toTensor();
  const bool in_place = schema.is_mutable();
  if (!is_format_tensor(self) || !computes(self.device()) || by_stock(self.device()) ||
      (in_place && !plan.arguments[0].written))
    return false;
  const FormatEntry& entry = entry_of(self);
  const bool observed = observing() && observed_thread().observer && !plan.selects;
  const Format format = rounding_format(entry);
  if (format.itemsize() > 2 || c10::formats::is_stochastic(format.rounding)) return false;
  const auto arguments = text_of_arguments(*stack, base + 1);
  if (!arguments) return false;
  const at::AutoDispatchBelowADInplaceOrView guard;
  const FunctionKey key{&schema, *arguments, entry.serial, format.rounding};
  auto [table, due] = find_table(key, self.numel(), int64_t{1} << (8 * format.itemsize()));
  const bool gpu = on_gpu(self.device());
  if (!table.defined()) {
    if (!due && !gpu) return false;
    const Unobserved every_code;
    // Made without a lock, because an operator may run anything.
    table = make_table(op, plan, entry, *stack, base);
    if (!table.defined()) return false;
    keep_table(key, table);
  }
  at::Tensor exact;
  if (observed) {
    exact = find_exact_table(key);
    if (!exact.defined()) {
      exact = make_exact_table(op, plan, entry, *stack, base);
      if (!exact.defined()) return false;
      keep_exact_table(key, exact);
    }
  }
  if (gpu) {
    FunctionKey there = key;
    there.device = self.device().index();
    at::Tensor copied = find_table(there, 0, 1).first;
    if (!copied.defined()) keep_table(there, copied = table.to(self.device()));
    hold_for_launches(table = copied);
    if (observed) {
      at::Tensor values = find_exact_table(there);
      if (!values.defined()) keep_exact_table(there, values = exact.to(self.device()));
      exact = values;
    }
  }
  const bool watches = !gpu && !plan.selects && format.infinity_is_nan() && has_poles(table);
  const at::Tensor operand =
      watches && in_place ? format_alias(bits_alias(self).clone(), entry) : self;
  const at::Tensor codes = bits_alias(self);
  const at::Tensor in = dense(codes);
  at::Tensor out = in_place && in.is_same(codes)
      ? self
      : empty_strided_format(in.sizes(), in.strides(), entry, self.device());
  const Recorder seen = observed ? recorder(entry.format, out.const_data_ptr()) : Recorder();
  if (gpu) {
    const at::Tensor results = seen ? exact_results(exact, in) : at::Tensor();
    if (seen) hold_for_launches(exact);
    look_up_on_gpu(table, in, out);
    if (seen) count_codes_on_gpu(seen, results, out.const_data_ptr());
  } else {
    if (seen) count_look_up(exact, table, in, seen);
    if (!watches) {
      look_up(table, in, out);
    } else if (const auto [first, second] = nan_codes(format);
               look_up_watching(table, in, out, first, second)) {
      tell_of_looked_up(op, plan, *stack, base, operand, out);
    }
  }
  if (in_place && !out.is_same(self)) {
    bits_alias(self).copy_(bits_alias(out));
    out = self;
  }
  torch::jit::drop(*stack, schema.arguments().size());
  stack->emplace_back(out);
  return true;
}

} // namespace at::formats
