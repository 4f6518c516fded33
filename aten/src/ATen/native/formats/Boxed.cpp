#include <ATen/native/formats/Boxed.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/formats/Accumulate.h>
#include <ATen/native/formats/BoxedCall.h>
#include <ATen/native/formats/Elementary.h>
#include <ATen/native/formats/ForwardMode.h>
#include <ATen/native/formats/MixedAutograd.h>
#include <ATen/native/formats/Tracing.h>
#include <ATen/native/formats/Vmap.h>
#include <torch/library.h>

#include <set>

namespace at::formats {
namespace {

using torch::jit::Stack;

class BoxedKernel final : public c10::OperatorKernel {
 public:
  explicit BoxedKernel(const c10::FunctionSchema& schema) : plan_(schema), unrecorded_(is_unrecorded(schema.name())) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const {
    if (unrecorded_ && is_tracing()) return recorded(op, stack, [&] { (*this)(op, keys, stack); });
    const OutOfAutocast exact;
    if (plan_.adds_products && run_dot_operator(op, stack)) return;
    if (plan_.tabled && run_by_table(op, plan_, stack)) return;
    const at::AutoDispatchBelowADInplaceOrView guard;
    const BoxedCall call(plan_, stack);
    op.callBoxed(stack);
    call.finish(op.schema().returns().size(), stack);
  }

 private:
  Plan plan_;
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
      "aten::ctc_loss",  "aten::scaled_dot_product_attention", "aten::max_pool1d", "aten::rms_norm", "aten::pad_sequence", "aten::vander",
      "aten::special_ndtr", "aten::_pad_packed_sequence", "aten::_pack_padded_sequence",
      // the stock derivative's formula makes zeros, ones or gradients of the container's dtype
      "aten::_linalg_eigvals", "aten::cat", "aten::clamp", "aten::clamp_max", "aten::clamp_min", "aten::complex", "aten::copysign", "aten::cummax",
      "aten::cummin", "aten::cumprod", "aten::index_put", "aten::index_reduce", "aten::linalg_eig", "aten::linalg_eigvals", "aten::linalg_matrix_exp",
      "aten::linalg_vector_norm", "aten::logcumsumexp", "aten::matrix_exp", "aten::max_pool2d_with_indices_backward", "aten::mvlgamma",
      "aten::norm", "aten::normal", "aten::polar", "aten::prod", "aten::put", "aten::renorm", "aten::repeat",
      "aten::_adaptive_avg_pool2d_backward", "aten::_adaptive_avg_pool3d_backward", "aten::_prelu_kernel_backward",
      "aten::adaptive_max_pool2d_backward", "aten::adaptive_max_pool3d_backward", "aten::avg_pool2d_backward", "aten::avg_pool3d_backward",
      "aten::fractional_max_pool2d_backward", "aten::grid_sampler_2d_backward", "aten::grid_sampler_3d_backward",
      "aten::fractional_max_pool3d_backward", "aten::max_pool3d_with_indices_backward",
      "aten::reflection_pad1d_backward", "aten::reflection_pad2d_backward", "aten::reflection_pad3d_backward",
      "aten::replication_pad1d_backward", "aten::replication_pad2d_backward", "aten::replication_pad3d_backward",
      "aten::scatter_reduce", "aten::sgn", "aten::sinc", "aten::special_i1", "aten::special_i1e", "aten::trace",
  };
  return names;
}

// Whether autograd records the call.
bool records(const Plan& plan, const Stack& stack) {
  bool recorded = false;
  const size_t base = stack.size() - plan.arguments.size();
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    each_tensor(plan.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) { recorded |= t.defined() && t.requires_grad(); });
  }
  return recorded && at::GradMode::is_enabled();
}

// Whether an operand is ours, maybe within wrappers of torch.func.
bool any_beneath(const Plan& plan, const Stack& stack) {
  bool ours = false;
  const size_t base = stack.size() - plan.arguments.size();
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    each_tensor(plan.arguments[i].slot, stack[base + i], [&](const at::Tensor& t) { ours |= entry_beneath(t) != nullptr; });
  }
  return ours;
}

// Above autograd: casts the operands of ours to the compute type, runs the stock operator on them with its own derivative, and casts the
// results back. The casts are differentiable, so first and higher derivatives run on stock values, each rounded once at its cast.
class ByCastsKernel final : public c10::OperatorKernel {
 public:
  explicit ByCastsKernel(const c10::FunctionSchema& schema) : plan_(schema) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const {
    const OutOfAutocast exact;
    if (plan_.adds_products && run_dot_operator(op, stack)) return; // attention: by operators that are differentiated one by one
    if (!any_beneath(plan_, *stack)) { // a stock tensor of the wrappers' backend
      run_stock_formula(op, keys, stack);
      return;
    }
    if (!records(plan_, *stack) && !has_tangent(plan_, *stack)) {
      const at::AutoDispatchBelowADInplaceOrView guard;
      op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
      return;
    }
    const BoxedCall call(plan_, stack, BoxedCall::Casts::Recorded);
    op.callBoxed(stack);
    call.finish(op.schema().returns().size(), stack);
  }

 private:
  Plan plan_;
};

// In-place variants of what is differentiated by casts, or by a formula of ours: the functional variant, whose derivative is right, and a
// copy into the tensor. (In the stock formula of the in-place variant zeros and ones would be of the container's dtype.)
class InPlaceByCopyKernel final : public c10::OperatorKernel {
 public:
  InPlaceByCopyKernel(const c10::FunctionSchema& schema, c10::OperatorHandle functional) : plan_(schema), functional_(functional) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const {
    const size_t base = stack->size() - plan_.arguments.size();
    const at::Tensor self = (*stack)[base].toTensor();
    if (!entry_beneath(self) || !(records(plan_, *stack) || has_tangent(plan_, *stack))) {
      run_stock_formula(op, keys, stack);
      return;
    }
    functional_.callBoxed(stack);
    const at::Tensor result = stack->back().toTensor();
    TORCH_CHECK(result.sizes() == self.sizes(), plan_.name, ": expected operands that broadcast to the sizes ", self.sizes(), ", but they do to ",
                result.sizes());
    stack->back() = at::_ops::copy_::call(const_cast<at::Tensor&>(self), result, false);
  }

 private:
  Plan plan_;
  c10::OperatorHandle functional_;
};

// The variant that returns a new tensor: "aten::prod" of "aten::prod_", with the same overload's name.
std::optional<c10::OperatorHandle> functional_variant(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  const bool in_place = name.name.back() == '_' && op.schema().is_mutable() && op.schema().returns().size() == 1;
  if (!in_place) return std::nullopt;
  auto functional = c10::Dispatcher::singleton().findSchema({name.name.substr(0, name.name.size() - 1), name.overload_name});
  return functional && functional->schema().arguments().size() == op.schema().arguments().size() ? functional : std::nullopt;
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
    const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<BoxedKernel>(op->schema())));
    // A kernel on our key takes a composite operator's kernel off our autograd key.
    if (differentiable && !op->schema().is_mutable()) {
      for (torch::Library* at : {autograd, wrapped}) {
        at->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<ByCastsKernel>(op->schema())));
      }
    } else if (composite) {
      autograd->impl(full.c_str(), torch::CppFunction::makeFallthrough());
    }
    ++registered;
  }
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = name.getNamespace().value_or("") == "aten" ? dispatcher.findSchema(name) : std::nullopt;
    const auto functional = op ? functional_variant(*op) : std::nullopt;
    if (!functional || op->hasKernelForDispatchKey(kFormatAutogradKey)) continue;
    if (by_casts().count(functional->schema().name()) == 0 && functional->schema().name() != "aten::nextafter") continue;
    const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    for (torch::Library* at : {autograd, wrapped}) {
      at->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<InPlaceByCopyKernel>(op->schema(), *functional)));
    }
  }
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = name.getNamespace().value_or("") == "aten" ? dispatcher.findSchema(name) : std::nullopt;
    if (!op || !mixes_operands(*op) || (by_casts().count(name.name) != 0 && !op->schema().is_mutable())) continue;
    const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    for (torch::Library* at : {autograd, wrapped}) at->impl(full.c_str(), mixed_operands_kernel(op->schema()));
  }
  register_vmap_kernels(by_casts());
  return registered;
}

} // namespace at::formats
