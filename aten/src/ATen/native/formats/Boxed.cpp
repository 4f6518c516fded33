#include <ATen/native/formats/Boxed.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/formats/Accumulate.h>
#include <ATen/native/formats/BoxedCall.h>
#include <ATen/native/formats/Elementary.h>
#include <ATen/native/formats/MixedAutograd.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <set>

namespace at::formats {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using torch::jit::Stack;

class BoxedKernel final : public c10::OperatorKernel {
 public:
  explicit BoxedKernel(const c10::FunctionSchema& schema) : plan_(schema) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) const {
    if (plan_.adds_products && run_dot_operator(op, stack)) return;
    if (plan_.tabled && run_by_table(op, plan_, stack)) return;
    const at::AutoDispatchBelowADInplaceOrView guard;
    const BoxedCall call(plan_, stack);
    op.callBoxed(stack);
    call.finish(op.schema().returns().size(), stack);
  }

 private:
  Plan plan_;
};

// ---- composite operators that misread the container ----

// By base name; a set without a derivative and one with.
const std::set<std::string>& without_derivative() {
  static const std::set<std::string> names = {
      "aten::isfinite", "aten::isreal", "aten::allclose", "aten::isclose", "aten::linalg_matrix_rank",
  };
  return names;
}

const std::set<std::string>& with_derivative() {
  static const std::set<std::string> names = {
      "aten::fft_fft",   "aten::fft_fft2",   "aten::fft_fftn",   "aten::fft_hfft",  "aten::fft_hfft2",  "aten::fft_hfftn",  "aten::fft_rfft",
      "aten::fft_rfft2", "aten::fft_rfftn",  "aten::fft_ifft",   "aten::fft_ifft2", "aten::fft_ifftn",  "aten::fft_ihfft",  "aten::fft_ihfft2",
      "aten::fft_ihfftn", "aten::fft_irfft", "aten::fft_irfft2", "aten::fft_irfftn", "aten::stft",      "aten::istft",      "aten::quantile",
      "aten::nanquantile", "aten::logdet",   "aten::linalg_det", "aten::det",       "aten::linalg_matrix_norm", "aten::linalg_norm", "aten::linalg_vander",
      "aten::ctc_loss",  "aten::scaled_dot_product_attention", "aten::max_pool1d", "aten::rms_norm", "aten::pad_sequence", "aten::vander",
  };
  return names;
}

// Runs the stock operator on decoded values with autograd recording, and keeps that graph for the backward.
struct CompositeFunction : torch::autograd::Function<CompositeFunction> {
  // inputs: every tensor that requires a gradient, of ours or stock. The operator's arguments lie on the stack, and its results will.
  static variable_list forward(AutogradContext* ctx, at::TensorList inputs, const c10::OperatorHandle* op, const Plan* plan, Stack* stack) {
    const at::AutoGradMode recording(true);
    BoxedCall call(*plan, stack);
    variable_list sources;
    for (const at::Tensor& input : inputs) {
      at::Tensor source = input;
      for (BoxedCall::Pair& p : call.pairs()) {
        if (p.ours.is_same(input)) source = p.stock.set_requires_grad(true);
      }
      sources.push_back(source);
    }
    op->callBoxed(stack);
    variable_list results, stock_results;
    for (size_t i = stack->size() - op->schema().returns().size(); i < stack->size(); ++i) {
      c10::IValue& value = (*stack)[i];
      if (!value.isTensor()) continue;
      stock_results.push_back(value.toTensor());
      results.push_back(call.result(value.toTensor().detach()));
    }
    std::vector<int64_t> formats;
    for (const at::Tensor& input : inputs) formats.push_back(is_format_tensor(input) ? entry_of(input).id : -1);
    ctx->saved_data["formats"] = formats;
    ctx->saved_data["sources"] = sources;
    ctx->saved_data["results"] = stock_results;
    return results;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list sources = ctx->saved_data["sources"].toTensorVector();
    variable_list outputs, output_grads;
    const variable_list results = ctx->saved_data["results"].toTensorVector();
    for (size_t i = 0; i < results.size(); ++i) {
      if (!results[i].requires_grad() || !grads[i].defined()) continue;
      outputs.push_back(results[i]);
      output_grads.push_back(is_format_tensor(grads[i]) ? decoded(grads[i], results[i].scalar_type()) : grads[i]);
    }
    variable_list stock = torch::autograd::grad(outputs, sources, output_grads, /*retain_graph=*/true, /*create_graph=*/false, /*allow_unused=*/true);
    const auto formats = ctx->saved_data["formats"].toIntVector();
    for (size_t i = 0; i < stock.size(); ++i) {
      if (stock[i].defined() && formats[i] >= 0) stock[i] = encoded(stock[i], c10::formats::format_entry(static_cast<int>(formats[i])));
    }
    stock.resize(stock.size() + 3);
    return stock;
  }
};

class CompositeAutogradKernel final : public c10::OperatorKernel {
 public:
  explicit CompositeAutogradKernel(const c10::FunctionSchema& schema) : plan_(schema) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const {
    if (plan_.adds_products && run_dot_operator(op, stack)) return; // attention: by operators that are differentiated one by one
    variable_list inputs;
    const size_t base = stack->size() - plan_.arguments.size();
    for (size_t i = 0; i < plan_.arguments.size(); ++i) {
      each_tensor(plan_.arguments[i].slot, (*stack)[base + i], [&](const at::Tensor& t) {
        if (t.defined() && t.requires_grad()) inputs.push_back(t);
      });
    }
    if (inputs.empty() || !at::GradMode::is_enabled()) {
      const at::AutoDispatchBelowADInplaceOrView guard;
      op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
      return;
    }
    const variable_list results = CompositeFunction::apply(at::TensorList(inputs), &op, &plan_, stack);
    auto result = results.begin();
    for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); ++i) {
      if ((*stack)[i].isTensor()) (*stack)[i] = *result++;
    }
  }

 private:
  Plan plan_;
};

} // namespace

int register_boxed_kernels() {
  // Both live as long as the process: unregistering at exit would race with other libraries' destructors.
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", kFormatKey, __FILE__, __LINE__);
  static auto* autograd = new torch::Library(torch::Library::IMPL, "aten", kFormatAutogradKey, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  int registered = 0;
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.getNamespace().value_or("") != "aten") continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || op->hasKernelForDispatchKey(kFormatKey)) continue;
    const bool composite = op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
    const bool differentiable = with_derivative().count(name.name) != 0;
    if (composite && !differentiable && without_derivative().count(name.name) == 0) continue;
    if (Plan::makes_view(op->schema()) || !Plan(op->schema()).takes_tensor()) continue;
    const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<BoxedKernel>(op->schema())));
    // A kernel on our key takes a composite operator's kernel off our autograd key.
    if (composite && differentiable) {
      autograd->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<CompositeAutogradKernel>(op->schema())));
    } else if (composite) {
      autograd->impl(full.c_str(), torch::CppFunction::makeFallthrough());
    }
    ++registered;
  }
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = name.getNamespace().value_or("") == "aten" ? dispatcher.findSchema(name) : std::nullopt;
    if (!op || !mixes_operands(*op)) continue;
    const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    autograd->impl(full.c_str(), mixed_operands_kernel(op->schema()));
  }
  return registered;
}

} // namespace at::formats
