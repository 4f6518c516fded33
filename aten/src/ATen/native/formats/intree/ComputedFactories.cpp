// Factories that compute: ranges, windows, random numbers. Stock operators compute in float64, or
// int64 for integers. Draws use float32 if it has the format's digits, so that a seed gives the
// same numbers there. The result is rounded once.
// PyTorch's BackendSelect kernels send calls here by their dtype. Beside a stock wheel, hooks in
// front of Python's functions do (torch/torch_dtypes/host/hooks/factories.py).
#include <ATen/FormatRounding.h>
#include <ATen/FormatTensor.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/formats/elementwise/DrawnIntegers.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty_like_ops.h>
#include <ATen/ops/lt_ops.h>
#include <ATen/ops/masked_fill_ops.h>
#include <c10/core/DefaultDtype.h>
#include <c10/formats/FormatLimits.h>
#include <torch/library.h>

#include <algorithm>

namespace at::formats {
namespace {

using c10::ScalarType;
using torch::jit::Stack;

enum class Computes { Range, Exactly, Draws, DrawsBelowOne };

// Decodes a range's ends that are tensors: they do not decide its dtype.
void decode_ends(Stack& stack, size_t base) {
  for (size_t i = base; i < stack.size(); ++i) {
    if (stack[i].isTensor() && entry_beneath(stack[i].toTensor()))
      stack[i] = decoded(stack[i].toTensor()).to(ScalarType::Double);
  }
}

bool has_fractions(const Stack& stack, size_t base) {
  return std::any_of(stack.begin() + base, stack.end(),
                     [](const c10::IValue& v) { return v.isDouble(); });
}

at::Tensor below_one(const at::Tensor& values, const FormatEntry& entry, int digits) {
  const double least = c10::formats::least_uniform(entry.format, digits);
  const at::Tensor kept = least > 0
      ? at::_ops::masked_fill_Scalar::call(values, at::_ops::lt_Scalar::call(values, least), 0)
      : values;
  const RoundingGuard toward_zero(c10::formats::Rounding::TowardZero);
  return encoded(kept, entry);
}

template <Computes how>
void computed(const c10::OperatorHandle& op, Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const size_t base = stack->size() - arguments.size();
  const auto argument = [&](const char* name) -> c10::IValue& {
    return (*stack)[base + *op.schema().argumentIndexWithName(name)];
  };
  TORCH_CHECK_NOT_IMPLEMENTED(argument("pin_memory").isNone() || !argument("pin_memory").toBool(),
                              "expected pin_memory=False for a new tensor of a number format, but "
                              "got True; make it, then call its pin_memory()");
  c10::IValue& dtype = argument("dtype");
  const bool by_default = dtype.isNone();
  decode_ends(*stack, base);
  const auto asked = by_default ? c10::get_default_dtype_as_scalartype() : dtype.toScalarType();
  if (!c10::formats::is_format_type(asked)) { // the ends of a range brought it here
    op.callBoxed(stack);
    return;
  }
  const auto& entry = c10::formats::format_entry(asked);
  if (op.schema().name() == "aten::randperm") expect_permutation(entry, argument("n").toInt());
  const bool narrow = entry.format.significand_bits() <= 24;
  ScalarType type = ScalarType::Double;
  if (how == Computes::Range && !has_fractions(*stack, base)) type = ScalarType::Long;
  if (how >= Computes::Draws && narrow) type = ScalarType::Float;
  dtype = static_cast<int64_t>(type);
  op.callBoxed(stack);
  // a range of integers, which the stock operator makes
  if (type == ScalarType::Long && by_default) return;
  const at::Tensor values = stack->back().toTensor();
  stack->back() = how == Computes::DrawsBelowOne ? below_one(values, entry, narrow ? 24 : 53)
                                                 : encoded(values, entry);
}

} // namespace

// Uniform numbers for rand_like of a format tensor (declared in TensorFactories.cpp, by an edit).
at::Tensor draw_below_one(const at::Tensor& result);
at::Tensor draw_below_one(const at::Tensor& result) {
  const FormatEntry& entry = *entry_beneath(result);
  const bool narrow = entry.format.significand_bits() <= 24;
  const at::Tensor drawn = at::_ops::empty_like::call(
      result, narrow ? ScalarType::Float : ScalarType::Double, {}, {}, {}, {});
  return at::_ops::copy_::call(const_cast<at::Tensor&>(result),
                               below_one(drawn.uniform_(0, 1), entry, narrow ? 24 : 53), false);
}

namespace {

template <Computes how>
void give(torch::Library& m, std::initializer_list<const char*> names) {
  for (const char* name : names)
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&computed<how>>());
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse2, m) {
  give<Computes::Range>(m, {"arange", "arange.start", "arange.start_step"});
  give<Computes::Exactly>(m,
                          {"linspace",
                           "linspace.Tensor_Tensor",
                           "linspace.Tensor_Scalar",
                           "linspace.Scalar_Tensor",
                           "logspace",
                           "logspace.Tensor_Tensor",
                           "logspace.Tensor_Scalar",
                           "logspace.Scalar_Tensor",
                           "range",
                           "range.step",
                           "randperm",
                           "randperm.generator",
                           "bartlett_window",
                           "bartlett_window.periodic",
                           "blackman_window",
                           "blackman_window.periodic",
                           "hamming_window",
                           "hamming_window.periodic",
                           "hamming_window.periodic_alpha",
                           "hamming_window.periodic_alpha_beta",
                           "hann_window",
                           "hann_window.periodic",
                           "kaiser_window",
                           "kaiser_window.periodic",
                           "kaiser_window.beta"});
  // randint stays PyTorch's own: it calls random_, which keeps to its range.
  give<Computes::Draws>(m, {"randn", "randn.generator", "normal.float_float"});
  give<Computes::DrawsBelowOne>(m, {"rand", "rand.generator"});
}

} // namespace at::formats
