// The steps of SGD, Adam and AdamW over lists of parameters: _fused_sgd_, _fused_adam_,
// _fused_adamw_. The programs below repeat the order of operators in torch/optim
// (_single_tensor_sgd, _single_tensor_adam), so they have the bits of those loops.
#include <ATen/native/formats/elementwise/BlockProgram.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <deque>

namespace at::formats {
namespace {

using at::Tensor;
using at::TensorList;
using OptionalTensor = std::optional<Tensor>;

// Registers: parameter, gradient, and the states; then the changed gradient, and Adam's
// denominator.
enum : int { W, G, M, V, VMax, Gradient, Denominator };

// Applies GradScaler's arguments. Returns false if the step must be left out. Divides gradients by
// the scale, in their own memory, as the stock kernel does.
bool unscale(TensorList grads, const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  if (found_inf && found_inf->defined() && found_inf->item().toDouble() == 1) return false;
  if (grad_scale && grad_scale->defined()) {
    const c10::Scalar scale = grad_scale->item().toDouble();
    for (Tensor g : grads) at::_ops::div__Scalar::call(g, scale);
  }
  return true;
}

// Tells autograd that tensors have changed, as in-place operators do; the kernels beneath do not.
void have_changed(TensorList tensors) {
  for (const Tensor& t : tensors) {
    if (!t.is_inference()) t.unsafeGetTensorImpl()->bump_version();
  }
}

struct Sgd {
  double weight_decay, momentum, lr, dampening;
  bool nesterov, maximize, is_first_step;

  Program program() const {
    Program p;
    int g = G;
    if (maximize) {
      p.add(Do::Negate, Gradient, G);
      g = Gradient;
    }
    if (weight_decay != 0) {
      p.add(Do::AddScaled, Gradient, g, W, 0, weight_decay);
      g = Gradient;
    }
    if (momentum != 0) {
      if (is_first_step) {
        p.add(Do::Copy, M, g);
      } else {
        p.add(Do::MultiplyNumber, M, M, 0, 0, momentum);
        p.add(Do::AddScaled, M, M, g, 0, 1 - dampening);
      }
      if (nesterov) p.add(Do::AddScaled, Gradient, g, M, 0, momentum);
      g = nesterov ? Gradient : M;
    }
    p.add(Do::AddScaled, W, W, g, 0, -lr);
    return p;
  }
};

struct Adam {
  double lr, beta1, beta2, weight_decay, eps;
  bool amsgrad, maximize, decoupled;

  Program program(double step) const {
    Program p;
    int g = G;
    if (maximize) {
      p.add(Do::Negate, Gradient, G);
      g = Gradient;
    }
    if (weight_decay != 0 && decoupled)
      p.add(Do::MultiplyNumber, W, W, 0, 0, 1 - lr * weight_decay);
    if (weight_decay != 0 && !decoupled) {
      p.add(Do::AddScaled, Gradient, g, W, 0, weight_decay);
      g = Gradient;
    }
    p.add(Do::Lerp, M, M, g, 0, 1 - beta1);
    p.add(Do::MultiplyNumber, V, V, 0, 0, beta2);
    p.add(Do::Addcmul, V, V, g, g, 1 - beta2);
    if (amsgrad) p.add(Do::Maximum, VMax, VMax, V);
    // Python's numbers: ** calls pow, also for an exponent of one half.
    const double correction1 = 1 - std::pow(beta1, step), correction2 = 1 - std::pow(beta2, step);
    p.add(Do::Sqrt, Denominator, amsgrad ? VMax : V);
    p.add(Do::DivideNumber, Denominator, Denominator, 0, 0, std::pow(correction2, 0.5));
    p.add(Do::AddNumber, Denominator, Denominator, 0, 0, eps);
    p.add(Do::Addcdiv, W, W, M, Denominator, -(lr / correction1));
    return p;
  }
};

void sgd_(TensorList params, TensorList grads, TensorList buffers, double weight_decay,
          double momentum, double lr, double dampening, bool nesterov, bool maximize,
          bool is_first_step, const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  TORCH_CHECK(grads.size() == params.size() && (momentum == 0 || buffers.size() == params.size()),
              "_fused_sgd_: expected lists of ", params.size(), " tensors, but got ", grads.size(),
              " gradients and ", buffers.size(), " momentum buffers");
  if (!unscale(grads, grad_scale, found_inf)) return;
  const Program program =
      Sgd{weight_decay, momentum, lr, dampening, nesterov, maximize, is_first_step}.program();
  std::vector<Run> runs;
  for (size_t i = 0; i < params.size(); ++i)
    runs.push_back({&program, {params[i], grads[i], momentum == 0 ? Tensor() : buffers[i]}});
  run_programs(runs);
  have_changed(params);
  have_changed(buffers);
}
void sgd_tensor_lr_(TensorList params, TensorList grads, TensorList buffers, double weight_decay,
                    double momentum, const Tensor& lr, double dampening, bool nesterov,
                    bool maximize, bool is_first_step, const OptionalTensor& grad_scale,
                    const OptionalTensor& found_inf) {
  sgd_(params, grads, buffers, weight_decay, momentum, lr.item().toDouble(), dampening, nesterov,
       maximize, is_first_step, grad_scale, found_inf);
}

// Numbers of tensors without dimensions, copied from a GPU at once.
std::vector<double> numbers_of(TensorList counts) {
  std::vector<double> numbers;
  const bool together = counts.size() > 1 &&
      std::all_of(counts.begin(), counts.end(),
                  [](const Tensor& t) { return t.is_cuda() && t.dim() == 0; });
  if (together) {
    const Tensor copied = at::stack(counts).to(c10::kCPU, ScalarType::Double);
    numbers.assign(copied.const_data_ptr<double>(),
                   copied.const_data_ptr<double>() + counts.size());
  } else {
    for (const Tensor& t : counts) numbers.push_back(t.item().toDouble());
  }
  return numbers;
}

template <bool decoupled>
void adam_(TensorList params, TensorList grads, TensorList averages, TensorList squares,
           TensorList largest, TensorList steps, double lr, double beta1, double beta2,
           double weight_decay, double eps, bool amsgrad, bool maximize,
           const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const size_t n = params.size();
  const bool alike = grads.size() == n && averages.size() == n && squares.size() == n &&
      steps.size() == n && (!amsgrad || largest.size() == n);
  TORCH_CHECK(alike, "_fused_adam_: expected lists of ", n, " tensors, but got ", grads.size(),
              ", ", averages.size(), ", ", squares.size(), ", ", largest.size(), " and ",
              steps.size());
  if (!unscale(grads, grad_scale, found_inf)) return;
  const Adam adam{lr, beta1, beta2, weight_decay, eps, amsgrad, maximize, decoupled};
  // Programs by step: all parameters share one, except those that were frozen for a while.
  std::deque<std::pair<double, Program>> programs;
  std::vector<Run> runs;
  const std::vector<double> counted = numbers_of(steps);
  for (size_t i = 0; i < n; ++i) {
    const double step = counted[i];
    auto known = std::find_if(programs.begin(), programs.end(),
                              [step](const auto& p) { return p.first == step; });
    if (known == programs.end()) known = programs.insert(known, {step, adam.program(step)});
    runs.push_back(
        {&known->second,
         {params[i], grads[i], averages[i], squares[i], amsgrad ? largest[i] : Tensor()}});
  }
  run_programs(runs);
  for (const TensorList& written : {params, averages, squares, largest}) have_changed(written);
}
template <bool decoupled>
void adam_tensor_lr_(TensorList params, TensorList grads, TensorList averages, TensorList squares,
                     TensorList largest, TensorList steps, const Tensor& lr, double beta1,
                     double beta2, double weight_decay, double eps, bool amsgrad, bool maximize,
                     const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  const double number = lr.item().toDouble();
  adam_<decoupled>(params, grads, averages, squares, largest, steps, number, beta1, beta2,
                   weight_decay, eps, amsgrad, maximize, grad_scale, found_inf);
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse2, m) {
  m.impl("_fused_sgd_", &sgd_);
  m.impl("_fused_sgd_.tensor_lr", &sgd_tensor_lr_);
  m.impl("_fused_adam_", &adam_<false>);
  m.impl("_fused_adam_.tensor_lr", &adam_tensor_lr_<false>);
  m.impl("_fused_adamw_", &adam_<true>);
  m.impl("_fused_adamw_.tensor_lr", &adam_tensor_lr_<true>);
}

} // namespace at::formats
