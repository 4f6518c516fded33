// torch.ops.torch_dtypes.chop: rounding to a format as an operator of the dispatcher, so that
// graphs record the call and not its result. The format is given by its name, which contains every
// parameter, so a graph needs no dtype of the process that made it.
#include <ATen/native/formats/chop/BlockChop.h>
#include <ATen/native/formats/chop/Chop.h>

#include <ATen/FewRandomBits.h>
#include <ATen/FormatRounding.h>
#include <ATen/FormatTensor.h>
#include <ATen/Releases.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/ops/alias_ops.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/to_ops.h>
#include <c10/formats/ForkSafeMutex.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/dynamo/compiled_autograd.h>
#include <torch/library.h>

#include <map>
#include <mutex>

namespace at::formats {
namespace {

using Name = std::string_view;
using OptionalName = std::optional<std::string_view>;
using c10::ScalarType;
using std::optional;

FormatParser parser = nullptr;

// Formats by name, or by name and rounding mode with a space between. formats_mutex guards it.
std::map<std::string, Format, std::less<>> known_formats;
c10::formats::ForkSafeMutex formats_mutex;
// then the map starts anew: a sweep may use any number of formats
constexpr size_t kMaxKnown = 4096;

at::Tensor chop_values(const at::Tensor& input, Name name, OptionalName rounding, double flip_prob,
                       optional<at::Generator> generator) {
  const Format format = format_of_call(name, rounding);
  const ScalarType type = input.scalar_type();
  const bool narrow = type == ScalarType::Half || type == ScalarType::BFloat16;
  TORCH_CHECK_TYPE(narrow || type == ScalarType::Float || type == ScalarType::Double,
                   "expected a tensor of float16, bfloat16, float32 or float64 to chop, but got ",
                   type);
  TORCH_CHECK_TYPE(input.layout() == at::kStrided,
                   "expected a strided tensor to chop, but got one of layout ", input.layout());
  TORCH_CHECK_VALUE(flip_prob >= 0 && flip_prob <= 1, "expected flip_prob from 0 to 1, but got ",
                    flip_prob);
  if (!narrow) return chop(input, format, flip_prob, generator);
  const at::Tensor wide = at::_ops::to_dtype::call(input, ScalarType::Float, false, false, {});
  return at::_ops::to_dtype::call(chop(wide, format, flip_prob, generator), type, false, false, {});
}

// The seed of a call in a graph, of the generator that the call would draw from.
at::Tensor draw_seed(const at::Tensor& like) {
  return at::scalar_tensor(static_cast<int64_t>(next_seed({}, like.device()).number), at::kLong);
}

at::Tensor refuse_own(const at::Tensor& input, Name, OptionalName, double,
                      optional<at::Generator>) {
  TORCH_CHECK_TYPE(
      false, "expected a tensor of float16, bfloat16, float32 or float64 to chop, but got torch.",
      entry_of(input).name,
      ": a tensor of a number format is rounded already. Cast it, for example by x.to(...).");
}

constexpr const char* kNodeName = "ChopBackward"; // the straight-through estimator's node

at::Tensor chop_autograd(const at::Tensor& input, Name name, OptionalName rounding,
                         double flip_prob, optional<at::Generator> generator) {
  at::Tensor result;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    result = call_chop(input, name, rounding, flip_prob, generator);
  }
  if (torch::autograd::compute_requires_grad(input)) pass_gradient(input, result, kNodeName);
  if (torch::autograd::isFwGradDefined(input)) {
    result._set_fw_grad(at::_ops::clone::call(input._fw_grad(/*level=*/0), {}), /*level=*/0,
                        /*is_inplace_op=*/false);
  }
  return result;
}

// vmap: rounds the whole batch in one call, with one seed. The level is read from the operand: the
// only operand always has the right one. (The header with the innermost transformation's level
// includes a library that wheels lack.)
at::Tensor chop_batched(const at::Tensor& input, Name name, OptionalName rounding, double flip_prob,
                        optional<at::Generator> generator) {
  const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKey::FuncTorchBatched);
  const auto* batched = at::functorch::maybeGetBatchedImpl(input);
  if (!batched) return call_chop(input, name, rounding, flip_prob, generator);
  return at::functorch::makeBatched(
      call_chop(batched->value(), name, rounding, flip_prob, generator), batched->bdim(),
      batched->level());
}

// Whether nobody else holds the tensor or sees its memory. Then it may be written, and autograd
// need not know.
bool is_alone(const at::Tensor& t, size_t holders) {
  const ScalarType type = t.scalar_type();
  return t.use_count() == holders && !at::isTensorSubclassLike(t) &&
      (t.device().is_cpu() || on_gpu(t.device())) && t.layout() == at::kStrided &&
      (type == ScalarType::Float || type == ScalarType::Double) &&
      t.is_non_overlapping_and_dense() && t.storage().use_count() == 1 && !entry_beneath(t);
}

at::Tensor chop_named(const at::Tensor& t, const NamedFormat& format) {
  return call_chop(t, format.name, format.rounding, 0, {});
}

void chop_named_in_place(const at::Tensor& t, const NamedFormat& format) {
  chop_in_place(t, format_of_call(format.name, format.rounding), {});
}

// A tensor's hook that rounds the gradient, without Python. It is made with the tensor, so it runs
// before the tensor's other hooks. Its mode is that of the block in which backward runs.
struct RoundHook final : torch::autograd::FunctionPreHook {
  NamedFormat format;

  explicit RoundHook(NamedFormat f) : format(std::move(f)) {}

  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& gradients) override {
    const at::Tensor& g = gradients[0];
    if (!g.defined()) return gradients;
    if (at::GradMode::is_enabled() || !is_alone(g, 1)) return {chop_named(g, format)};
    chop_named_in_place(g, format);
    return gradients;
  }

// PyTorch 2.6's compiled autograd takes no C++ hooks; there the base class raises.
#if TORCH_DTYPES_SINCE(2, 11)
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override {
    args.add_cpp_single_tensor_pre_hook(
        [f = format](const at::TensorBase& g) -> at::TensorBase {
          return chop_named(at::Tensor(g), f);
        },
        /*idx=*/0);
  }
#endif
};

} // namespace

at::Tensor round_through(const at::Tensor& input, const optional<NamedFormat>& forward,
                         const optional<NamedFormat>& backward, bool fresh) {
  TORCH_INTERNAL_ASSERT(forward || fresh);
  at::Tensor result;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    const bool overwrites = forward && fresh && is_alone(input, input.use_count());
    if (overwrites) {
      chop_named_in_place(input, *forward);
      // If something has saved it after all, backward raises.
      if (!input.is_inference()) input.unsafeGetTensorImpl()->bump_version();
    }
    result = forward && !overwrites ? chop_named(input, *forward) : at::_ops::alias::call(input);
  }
  if (torch::autograd::compute_requires_grad(input)) {
    torch::autograd::Node& node = pass_gradient(input, result, kNodeName);
    if (backward) node.add_tensor_pre_hook(std::make_unique<RoundHook>(*backward));
  }
  if (torch::autograd::isFwGradDefined(input)) {
    result._set_fw_grad(at::_ops::clone::call(input._fw_grad(/*level=*/0), {}), /*level=*/0,
                        /*is_inplace_op=*/false);
  }
  return result;
}

static Format read(Name name, OptionalName rounding) {
  std::string both;
  if (rounding) both.append(name).append(1, ' ').append(*rounding);
  {
    const std::lock_guard<std::mutex> lock(formats_mutex);
    if (const auto found = known_formats.find(rounding ? Name(both) : name);
        found != known_formats.end())
      return found->second;
  }
  TORCH_CHECK(parser, "expected torch_dtypes to be imported, but it is not; import it first");
  const Format format = parser(name, rounding); // calls Python, which may raise; without the mutex
  const std::lock_guard<std::mutex> lock(formats_mutex);
  if (known_formats.size() >= kMaxKnown) known_formats.clear();
  known_formats.insert_or_assign(rounding ? both : std::string(name), format);
  return format;
}

Format format_of_call(Name name, OptionalName rounding) {
  Format format = read(name, rounding);
  if (!rounding) round_by_override(format);
  return format;
}

void set_format_parser(FormatParser parse) {
  parser = parse;
}

at::Tensor call_chop(const at::Tensor& input, Name name, OptionalName rounding, double flip_prob,
                     const optional<at::Generator>& generator) {
  using Call = at::Tensor(const at::Tensor&, Name, OptionalName, double, optional<at::Generator>);
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("torch_dtypes::chop", "").typed<Call>();
  return op.call(input, name, rounding, flip_prob, generator);
}

// Results may be random (a stochastic mode, flips), and the tag says so of every call. Graphs then
// neither merge its calls, nor recompute them in backward, nor drop them.
TORCH_LIBRARY(torch_dtypes, m) {
  m.def(
      "chop(Tensor input, str format, str? rounding=None, float flip_prob=0., *, Generator? "
      "generator=None) -> Tensor",
      {at::Tag::nondeterministic_seeded, at::Tag::pt2_compliant_tag});
  m.def("draw_seed(Tensor like) -> Tensor",
        {at::Tag::nondeterministic_seeded, at::Tag::pt2_compliant_tag});
}
TORCH_LIBRARY_IMPL(torch_dtypes, CompositeExplicitAutograd, m) {
  m.impl("chop", &chop_values);
  m.impl("draw_seed", &draw_seed);
}
TORCH_LIBRARY_IMPL(torch_dtypes, PrivateUse2, m) {
  m.impl("chop", &refuse_own);
}
TORCH_LIBRARY_IMPL(torch_dtypes, Autograd, m) {
  m.impl("chop", &chop_autograd);
}
TORCH_LIBRARY_IMPL(torch_dtypes, FuncTorchBatched, m) {
  m.impl("chop", &chop_batched);
}

} // namespace at::formats
