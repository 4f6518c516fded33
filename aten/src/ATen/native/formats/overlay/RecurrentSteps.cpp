#include <ATen/native/formats/overlay/RecurrentSteps.h>

#include <ATen/Accumulation.h>
#include <ATen/AutogradNode.h>
#include <ATen/Float32Products.h>
#include <ATen/FormatRounding.h>
#include <ATen/FormatWrapper.h>
#include <ATen/Observation.h>
#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/native/formats/overlay/RecurrentScan.h>
#include <ATen/native/formats/stock/Backend.h>
#include <c10/formats/tables/ValueTable.h>

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <array>

namespace at::formats {
namespace {

using at::Tensor;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

std::array<Tensor, 5> tensors_of(const Recurrence& r) {
  return {r.inputs, r.h, r.c, r.weight, r.bias};
}

// Whether sizes match; if not, single operators raise.
bool have_sizes(const Recurrence& r) {
  if (r.h.dim() != 2 || r.inputs.dim() != 2) return false;
  const int64_t batch = r.h.size(0), features = r.h.size(1);
  const int64_t wide = (r.cell == Cell::Lstm ? 4 : 3) * features;
  return batch > 0 && r.inputs.size(0) % batch == 0 && r.inputs.size(1) == wide &&
      (!r.c.defined() || r.c.sizes() == r.h.sizes()) &&
      r.weight.sizes() == at::IntArrayRef({wide, features}) &&
      (!r.bias.defined() || r.bias.sizes() == at::IntArrayRef({wide}));
}

// For one scope: sums as in the dtype's format without a policy.
struct MachinePolicy {
  std::optional<Accumulation> previous{set_accumulation_override(Accumulation{})};
  ~MachinePolicy() { set_accumulation_override(previous); }
};

struct RecurrentBackward final : torch::autograd::Node {
  Cell cell{};
  bool backwards{};
  ByOperators by_operators{};
  std::array<SavedVariable, 5> operands; // as in Recurrence
  SavedVariable kept;

  std::string name() const override {
    return cell == Cell::Lstm ? "LstmStepsBackward" : "GruStepsBackward";
  }
  void release_variables() override {
    for (SavedVariable& v : operands) v.reset_data();
    kept.reset_data();
  }
  variable_list apply(variable_list&& gradients) override {
    const bool any = std::any_of(gradients.begin(), gradients.end(),
                                 [](const Tensor& t) { return t.defined(); });
    if (!any) return variable_list(operands.size());
    const Recurrence r{cell,
                       backwards,
                       operands[0].unpack(),
                       operands[1].unpack(),
                       operands[2].unpack(),
                       operands[3].unpack(),
                       operands[4].unpack()};
    const bool plain = std::all_of(gradients.begin(), gradients.end(), [](const Tensor& t) {
      return !t.defined() || (is_format_tensor(t) && !is_wrapper(t));
    });
    const FormatEntry* entry =
        plain && !at::GradMode::is_enabled() ? format_of_steps(tensors_of(r)) : nullptr;
    if (entry) {
      const at::AutoDispatchBelowADInplaceOrView below;
      if (auto all = run_backward(RecurrentScan(r, *entry), kept.unpack(), gradients,
                                  task_should_compute_output(3), task_should_compute_output(4)))
        return *all;
    }
    return run_operators(r, gradients);
  }

 private:
  // Runs the steps anew, as they ran, and differentiates them as the caller asks.
  variable_list run_operators(const Recurrence& r, const variable_list& gradients) {
    RecurrentResult result;
    {
      const at::AutoGradMode recording(true);
      const RoundingGuard nearest(Rounding::NearestEven);
      const MachinePolicy policy;
      const Unobserved again;
      result = by_operators(r);
    }
    const Tensor results[] = {result.outputs, result.h, result.c};
    const auto from = tensors_of(r);
    variable_list roots, seeds, leaves;
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      roots.push_back(results[i]);
      seeds.push_back(gradients[i]);
    }
    for (size_t i = 0; i < operands.size(); ++i) {
      if (task_should_compute_output(i)) leaves.push_back(from[i]);
    }
    const bool differentiable = at::GradMode::is_enabled();
    const variable_list found = torch::autograd::grad(roots, leaves, seeds, differentiable,
                                                      differentiable, /*allow_unused=*/true);
    variable_list all(operands.size());
    size_t next = 0;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (task_should_compute_output(i)) all[i] = found[next++];
    }
    return all;
  }
};

} // namespace

const FormatEntry* format_of_steps(at::TensorList operands) {
  const FormatEntry* entry = nullptr;
  for (const Tensor& t : operands) {
    if (!t.defined()) continue;
    const bool plain = is_format_tensor(t) && !is_wrapper(t) && t.device().is_cpu() &&
        t.is_contiguous() && !torch::autograd::isFwGradDefined(t);
    if (!plain || (entry && &entry_of(t) != entry)) return nullptr;
    entry = &entry_of(t);
  }
  const Format f = rounding_format(*entry);
  const bool in_float = entry->compute == at::kFloat && f.itemsize() <= 2 &&
      f.arithmetic_in_float() && !c10::formats::is_logarithmic(f) &&
      f.rounding == Rounding::NearestEven &&
      accumulation_of(*entry).kind == Accumulation::Kind::Machine &&
      float32_keeps(f.significand_bits(), "mm", c10::DeviceType::CPU);
  const bool watched = observing() || c10::impl::TorchDispatchModeTLS::any_modes_set() ||
      c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Tracer) ||
      at::autocast::is_autocast_enabled(at::kCPU);
  const bool kernels = !on_gpu(at::kCPU) && !by_stock(at::kCPU);
  return in_float && !watched && kernels ? entry : nullptr;
}

std::optional<RecurrentResult> run_steps(const Recurrence& r, ByOperators by_operators) {
  const FormatEntry* entry = have_sizes(r) ? format_of_steps(tensors_of(r)) : nullptr;
  // Tables of functions must pay for themselves.
  if (!entry || r.inputs.size(0) * r.h.size(1) < int64_t{1} << (8 * entry->format.itemsize()))
    return {};
  const bool recorded =
      torch::autograd::compute_requires_grad(r.inputs, r.h, r.c, r.weight, r.bias);
  std::optional<RecurrentResult> result;
  Tensor kept;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    const RecurrentScan scan(r, *entry);
    kept = kept_memory(scan, recorded);
    result = run_forward(r, scan, kept);
  }
  if (!result || !recorded) return result;
  const auto node = make_node<RecurrentBackward>();
  node->cell = r.cell;
  node->backwards = r.backwards;
  node->by_operators = by_operators;
  node->operands = {SavedVariable(r.inputs, false), SavedVariable(r.h, false),
                    SavedVariable(r.c, false), SavedVariable(r.weight, false),
                    SavedVariable(r.bias, false)};
  node->kept = SavedVariable(kept, false);
  node->set_next_edges(torch::autograd::collect_next_edges(r.inputs, r.h, r.c, r.weight, r.bias));
  variable_list results{result->outputs, result->h};
  if (result->c.defined()) results.push_back(result->c);
  torch::autograd::set_history(results, node);
  return result;
}

} // namespace at::formats
