#include <ATen/native/formats/overlay/Boxed.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/formats/Accumulate.h>
#include <ATen/native/formats/overlay/BoxedCall.h>
#include <ATen/native/formats/Elementary.h>
#include <ATen/native/formats/overlay/Foreach.h>
#include <ATen/native/formats/overlay/ForwardMode.h>
#include <ATen/native/formats/overlay/InPlaceAutograd.h>
#include <ATen/native/formats/overlay/MixedAutograd.h>
#include <ATen/native/formats/overlay/MovedCodes.h>
#include <ATen/native/formats/overlay/OperandRules.h>
#include <ATen/native/formats/overlay/TouchedElements.h>
#include <ATen/native/formats/overlay/Tracing.h>
#include <ATen/native/formats/overlay/Vmap.h>
#include <c10/formats/ExactCodec.h>
#include <torch/library.h>

#include <set>

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
  if (below.isNone()) below = f.is_signed ? -most : 0.0;
}

class BoxedKernel final : public c10::OperatorKernel {
 public:
  explicit BoxedKernel(const c10::FunctionSchema& schema)
      : plan_(schema), touches_(touches(schema)), unrecorded_(is_unrecorded(schema.name())) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const {
    if (unrecorded_ && is_tracing()) return recorded(op, stack, [&] { (*this)(op, keys, stack); });
    const OutOfAutocast exact;
    if (plan_.adds_products && run_dot_operator(op, stack)) return;
    if (plan_.moves && run_on_codes(op, plan_, stack)) return;
    if (plan_.rule == OperandRule::Normalisation && run_normalisation(op, plan_, stack, BoxedCall::Casts::Plain)) return;
    if (touches_ != Touches::All && run_on_touched(op, plan_, touches_, stack)) return;
    if (plan_.limits >= 0) give_limits(plan_, *stack);
    if (plan_.per_place) return run_place_by_place(op, plan_, stack);
    if (!plan_.numbers.empty()) exchange_infinities(plan_.numbers, plan_.arguments.size(), stack);
    if (plan_.tabled && run_by_table(op, plan_, stack)) return;
    const at::AutoDispatchBelowADInplaceOrView guard;
    const BoxedCall call(plan_, stack);
    try {
      op.callBoxed(stack);
    } catch (c10::Error& error) {
      call.explain(error);
      throw;
    }
    call.finish(op.schema().returns().size(), stack);
  }

 private:
  Plan plan_;
  Touches touches_;
  bool unrecorded_; // in the graphs of torch.jit.trace
};

// ---- operators that misread the container, or whose derivatives do ----

// By base name; a set without a derivative and one with.
const std::set<std::string>& without_derivative() {
  static const std::set<std::string> names = {
      "aten::isfinite", "aten::isreal", "aten::allclose", "aten::isclose", "aten::linalg_matrix_rank",
  };
  return names;
}

const std::set<std::string>& by_casts() {
  static const std::set<std::string> names = {
      // composite: what they decide by the dtype, or make of it
      "aten::fft_fft",   "aten::fft_fft2",   "aten::fft_fftn",   "aten::fft_hfft",  "aten::fft_hfft2",  "aten::fft_hfftn",  "aten::fft_rfft",
      "aten::fft_rfft2", "aten::fft_rfftn",  "aten::fft_ifft",   "aten::fft_ifft2", "aten::fft_ifftn",  "aten::fft_ihfft",  "aten::fft_ihfft2",
      "aten::fft_ihfftn", "aten::fft_irfft", "aten::fft_irfft2", "aten::fft_irfftn", "aten::stft",      "aten::istft",      "aten::quantile",
      "aten::nanquantile", "aten::logdet",   "aten::linalg_det", "aten::det",       "aten::linalg_matrix_norm", "aten::linalg_norm", "aten::linalg_vander",
      "aten::ctc_loss",  "aten::scaled_dot_product_attention", "aten::max_pool1d", "aten::rms_norm", "aten::pad_sequence", "aten::vander", "aten::cosine_similarity",
      "aten::special_ndtr", "aten::svd", "aten::_scaled_dot_product_attention_math", "aten::cummaxmin_backward", "aten::_pad_packed_sequence",
      "aten::_pack_padded_sequence", "aten::_pack_padded_sequence_backward", "aten::infinitely_differentiable_gelu_backward",
      // the stock derivative's formula makes zeros, ones or gradients of the container's dtype
      "aten::_linalg_eigvals", "aten::cat", "aten::clamp", "aten::clamp_max", "aten::clamp_min", "aten::complex", "aten::copysign", "aten::cummax",
      "aten::cummin", "aten::cumprod", "aten::index_put", "aten::index_reduce", "aten::linalg_eig", "aten::linalg_eigvals", "aten::linalg_matrix_exp",
      "aten::linalg_vector_norm", "aten::logcumsumexp", "aten::matrix_exp", "aten::max_pool2d_with_indices_backward", "aten::mvlgamma",
      "aten::norm", "aten::normal", "aten::poisson", "aten::polar", "aten::prod", "aten::put", "aten::renorm", "aten::repeat",
      "aten::_softmax_backward_data", "aten::_adaptive_avg_pool2d_backward", "aten::_adaptive_avg_pool3d_backward", "aten::_prelu_kernel_backward",
      "aten::adaptive_max_pool2d_backward", "aten::adaptive_max_pool3d_backward", "aten::avg_pool2d_backward", "aten::avg_pool3d_backward",
      "aten::fractional_max_pool2d_backward", "aten::grid_sampler_2d_backward", "aten::grid_sampler_3d_backward",
      "aten::fractional_max_pool3d_backward", "aten::max_pool3d_with_indices_backward",
      "aten::reflection_pad1d_backward", "aten::reflection_pad2d_backward", "aten::reflection_pad3d_backward",
      "aten::replication_pad1d_backward", "aten::replication_pad2d_backward", "aten::replication_pad3d_backward",
      "aten::scatter_reduce", "aten::sgn", "aten::sinc", "aten::special_i1", "aten::special_i1e", "aten::trace", "aten::triangular_solve",
  };
  return names;
}

// Above autograd: casts the operands of ours to the compute type, runs the stock operator on them with its own derivative, and casts the
// results back. The casts are differentiable, so first and higher derivatives run on stock values, each rounded once at its cast.
class ByCastsKernel final : public c10::OperatorKernel {
 public:
  explicit ByCastsKernel(const c10::FunctionSchema& schema) : plan_(schema) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const {
    const OutOfAutocast exact;
    if (plan_.adds_products && run_dot_operator(op, stack)) return; // attention: by operators that are differentiated one by one
    if (!any_of_ours(plan_, *stack)) { // a stock tensor of the wrappers' backend
      run_stock_formula(op, keys, stack);
      return;
    }
    if (plan_.rule == OperandRule::Normalisation && run_normalisation(op, plan_, stack, BoxedCall::Casts::Recorded)) return;
    if (!is_differentiated(plan_, *stack)) {
      const at::AutoDispatchBelowADInplaceOrView guard;
      op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
      return;
    }
    if (!plan_.numbers.empty()) exchange_infinities(plan_.numbers, plan_.arguments.size(), stack);
    const BoxedCall call(plan_, stack, BoxedCall::Casts::Recorded);
    op.callBoxed(stack);
    call.finish(op.schema().returns().size(), stack);
  }

 private:
  Plan plan_;
};

std::string full_name(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

} // namespace

int register_boxed_kernels() {
  // Both live as long as the process: unregistering at exit would race with other libraries' destructors.
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", kFormatKey, __FILE__, __LINE__);
  static auto* autograd = new torch::Library(torch::Library::IMPL, "aten", kFormatAutogradKey, __FILE__, __LINE__);
  static auto* wrapped = new torch::Library(torch::Library::IMPL, "aten", kWrappedAutogradKey, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  int registered = 0;
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.getNamespace().value_or("") != "aten") continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || op->hasKernelForDispatchKey(kFormatKey)) continue;
    const bool composite = op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
    const bool differentiable = by_casts().count(name.name) != 0;
    if (composite && !differentiable && without_derivative().count(name.name) == 0) continue;
    if (Plan::makes_view(op->schema()) || !Plan(op->schema()).takes_tensor()) continue;
    library->impl(full_name(name).c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<BoxedKernel>(op->schema())));
    // A kernel on our key takes a composite operator's kernel off our autograd key.
    if (differentiable && !op->schema().is_mutable()) {
      for (torch::Library* at : {autograd, wrapped}) {
        at->impl(full_name(name).c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<ByCastsKernel>(op->schema())));
      }
    } else if (composite) {
      for (torch::Library* at : {autograd, wrapped}) at->impl(full_name(name).c_str(), torch::CppFunction::makeFallthrough());
    }
    ++registered;
  }
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = name.getNamespace().value_or("") == "aten" ? dispatcher.findSchema(name) : std::nullopt;
    if (!op || op->hasKernelForDispatchKey(kFormatAutogradKey)) continue;
    const bool recorded = op->hasKernelForDispatchKey(c10::DispatchKey::Autograd);
    const auto functional = recorded ? functional_form(*op) : std::nullopt;
    const bool by_copy = functional && (keeps_little(functional->schema().name()) || by_casts().count(functional->schema().name()) != 0);
    const bool sums = sums_in_dtype(*op);
    const bool mixes = mixes_operands(*op) && (by_casts().count(name.name) == 0 || op->schema().is_mutable());
    if (!by_copy && !sums && !mixes) continue;
    for (torch::Library* at : {autograd, wrapped}) {
      const c10::FunctionSchema& schema = op->schema();
      at->impl(full_name(name).c_str(), by_copy ? in_place_kernel(*functional, schema) : sums ? sum_in_dtype_kernel(schema) : mixed_operands_kernel(schema));
    }
  }
  register_checked_composites();
  register_vmap_kernels(by_casts());
  return registered;
}

} // namespace at::formats
