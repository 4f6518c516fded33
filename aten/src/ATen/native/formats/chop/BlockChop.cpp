// torch.ops.torch_dtypes.chop_blocks: rounds to an element format times a scale that a block
// shares, in one pass over memory, or in two if the tensor has a scale on top.
// targets/block_targets.py does it for every shape and rule by stock operators; results agree bit
// for bit.
#include <ATen/native/formats/chop/BlockChop.h>

#include <ATen/AutogradNode.h>
#include <ATen/FormatRounding.h>
#include <ATen/FormatTensor.h>
#include <ATen/Observation.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/formats/chop/BlockRounder.h>
#include <ATen/native/formats/chop/Chop.h>
#include <ATen/native/formats/gpu/DeviceKernels.h>
#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/native/formats/gpu/GpuObservation.h>
#include <ATen/ops/alias_ops.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like_ops.h>
#include <ATen/ops/where_ops.h>
#include <c10/formats/BlockScale.h>
#include <c10/formats/FormatLimits.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/generated/Functions.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

namespace at::formats {
namespace {

using c10::formats::BlockScale;
using std::optional;

constexpr const char* kHif4 = "hif4"; // the name of its scales
constexpr int64_t kHif4Block = 64;

// Reads the operator's arguments `scale` and `rule`; BlockChop.h explains them.
ScaleRule read_rule(std::string_view scale, c10::ArrayRef<double> rule,
                    const optional<at::Tensor>& above) {
  ScaleRule result;
  const bool powers = scale.empty(), groups = scale == kHif4;
  const size_t numbers = powers ? 5 : groups ? 0 : 4;
  TORCH_CHECK_VALUE(rule.size() == numbers && (!above || numbers == 4), "expected ", numbers,
                    " numbers as the rule for scales '", scale, "' of chop_blocks, but got ", rule,
                    above ? " and a scale of the tensor" : "");
  if (powers) {
    TORCH_CHECK_VALUE(
        std::abs(rule[0]) <= 256 && -127 <= rule[3] && rule[3] <= rule[4] && rule[4] <= 127,
        "expected exponents of scales from -127 to 127 to chop_blocks, but got ", rule[3], " to ",
        rule[4], ", emax=", rule[0]);
    result.powers = BlockScale::make(static_cast<int>(rule[0]), static_cast<int>(rule[3]),
                                     static_cast<int>(rule[4]), rule[1], rule[2] != 0);
  } else if (groups) {
    result.kind = ScaleRule::Kind::Groups;
  } else {
    result.kind = ScaleRule::Kind::Numbers;
    result.format = format_of_call(scale, rule[3] != 0 ? "up" : "nearest_even");
    TORCH_CHECK_VALUE(result.format.fits_float(),
                      "expected a scale format of at most float32's range to chop_blocks, but got ",
                      scale);
    result.full = static_cast<float>(rule[0]);
    result.smallest = static_cast<float>(rule[1]);
    result.brought_to = static_cast<float>(rule[2]);
    if (above) result.above = above->item<float>();
  }
  return result;
}

// HiF4's rows hold whole blocks of 64, which it divides into groups.
BlockPlane plane_of(const at::Tensor& input, at::IntArrayRef size, at::IntArrayRef axis,
                    const ScaleRule& rule) {
  return BlockPlane::make(input.sizes(), size, axis,
                          rule.kind == ScaleRule::Kind::Groups ? kHif4Block : 1);
}

// Whether rounding tells a tiny quotient from 0.
bool is_careful(const Format& f) {
  return c10::formats::is_stochastic(f.rounding) || c10::formats::sees_inexact(f.rounding) ||
      c10::formats::keeps_minpos(f);
}

void chop_blocks_on_gpu(const at::Tensor& input, const at::Tensor& out, const Format& format,
                        const BlockScale& scale, int64_t size,
                        const optional<at::Generator>& generator) {
  const Gpu gpu(input.device(), "chop_blocks");
  gpu.expect(format);
  const RandomWords words = next_words(format, generator, input.device());
  const int64_t length = input.size(-1);
  const cuda::Blocks blocks{scale, std::min(size, length), length, is_careful(format)};
  const Recorder seen = recorder(format, out.const_data_ptr(), input.const_data_ptr());
  const auto for_counts = [&] {
    return seen ? at::empty(input.sizes(), input.options()) : at::Tensor();
  };
  const auto data = [](const at::Tensor& t) {
    return t.defined() ? t.mutable_data_ptr<float>() : nullptr;
  };
  const at::Tensor scaled = for_counts(), rounded = for_counts();
  gpu.check(gpu->chop_blocks(format, blocks, input.const_data_ptr<float>(),
                             out.mutable_data_ptr<float>(), input.numel(), words.seed, data(scaled),
                             data(rounded), gpu.stream()));
  if (seen) count_values_on_gpu(seen, scaled, rounded);
}

void expect_input(const at::Tensor& input) {
  TORCH_CHECK_TYPE(input.scalar_type() == c10::ScalarType::Float,
                   "expected a tensor of float32 to chop_blocks, but got ", input.scalar_type());
  TORCH_CHECK_VALUE(input.dim() > 0 && input.is_contiguous(),
                    "expected a contiguous tensor with a dimension to chop_blocks, but got sizes ",
                    input.sizes(), " and strides ", input.strides());
}

at::Tensor chop_blocks(const at::Tensor& input, std::string_view name,
                       optional<std::string_view> rounding, at::IntArrayRef size,
                       at::IntArrayRef axis, std::string_view scale, c10::ArrayRef<double> numbers,
                       const optional<at::Tensor>& above, optional<at::Generator> generator) {
  expect_kernels(input.device(), "chop_blocks"); // an error before any work
  expect_input(input);
  const ScaleRule rule = read_rule(scale, numbers, above);
  const BlockPlane plane = plane_of(input, size, axis, rule);
  const Format format = format_of_call(name, rounding);
  TORCH_CHECK_VALUE(
      format.fits_float(),
      "expected an element format of at most float32's range to chop_blocks, but got ", name);
  at::Tensor out = at::_ops::empty_like::call(input, {}, {}, {}, {}, at::MemoryFormat::Contiguous);
  if (input.numel() == 0) return out;
  if (on_gpu(input.device())) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        rule.kind == ScaleRule::Kind::Powers && axis.size() == 1 &&
            (axis[0] == -1 || axis[0] == input.dim() - 1),
        "expected blocks of the last dimension with powers of two as scales to chop_blocks on a "
        "GPU, but got scales '",
        scale, "' along ", axis);
    chop_blocks_on_gpu(input, out, format, rule.powers, size[0], generator);
    return out;
  }
  const CpuKernels& k = kernels(input.device(), "chop_blocks");
  const auto seen = [&](const Format& f) {
    return recorder(f, out.const_data_ptr(), input.const_data_ptr());
  };
  BlockRounder round{k, scaled_kernels(k.name), format, rule, plane, is_careful(format)};
  round.words = next_words(format, generator, input.device());
  round.seen = seen(format);
  if (rule.kind == ScaleRule::Kind::Numbers) round.seen_scales = seen(rule.format);
  round(input.const_data_ptr<float>(), out.mutable_data_ptr<float>());
  return out;
}

at::Tensor refuse_blocks_of_own(const at::Tensor& input, std::string_view,
                                optional<std::string_view>, at::IntArrayRef, at::IntArrayRef,
                                std::string_view, c10::ArrayRef<double>,
                                const optional<at::Tensor>&, optional<at::Generator>) {
  TORCH_CHECK_TYPE(
      false, "expected a tensor of float32 to chop_blocks, but got torch.", entry_of(input).name,
      ": a tensor of a number format is rounded already. Cast it, for example by x.to(...).");
}

// Passes the gradient where the mask is true.
struct StraightThroughBackward final : torch::autograd::Node {
  torch::autograd::SavedVariable passes;

  std::string name() const override { return "StraightThroughBackward"; }
  void release_variables() override { passes.reset_data(); }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    if (!grads[0].defined()) return {at::Tensor()};
    return {at::_ops::where_ScalarOther::call(passes.unpack(), grads[0], 0)};
  }
};

// Passes the gradient unchanged, under a name of its own in profiles. Derived from alias's node,
// because compiled autograd knows that one.
struct IdentityBackward final : torch::autograd::generated::AliasBackward0 {
  const char* label;

  explicit IdentityBackward(const char* name) : label(name) {}
  std::string name() const override { return label; }
};

at::Tensor chop_blocks_autograd(const at::Tensor& input, std::string_view name,
                                optional<std::string_view> rounding, at::IntArrayRef size,
                                at::IntArrayRef axis, std::string_view scale,
                                c10::ArrayRef<double> rule, const optional<at::Tensor>& above,
                                optional<at::Generator> generator) {
  at::Tensor result;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    result = call_chop_blocks(input, name, rounding, size, axis, scale, rule, above, generator);
  }
  return straight_through(input, result, {});
}

} // namespace

BlockCounts count_blocks(const at::Tensor& values, std::string_view element, at::IntArrayRef size,
                         at::IntArrayRef axis, std::string_view scale, c10::ArrayRef<double> rule) {
  expect_input(values);
  const CpuKernels& k = kernels(values.device(), "observe");
  const Format format = format_of_call(element, {});
  const ScaleRule scales = read_rule(scale, rule, {});
  const BlockRounder round{k,
                           scaled_kernels(k.name),
                           format,
                           scales,
                           plane_of(values, size, axis, scales),
                           is_careful(format)};
  return values.numel() == 0 ? BlockCounts() : round.count(values.const_data_ptr<float>());
}

torch::autograd::Node& pass_gradient(const at::Tensor& input, const at::Tensor& result,
                                     const char* name) {
  const auto node = make_node<IdentityBackward>(name);
  node->set_next_edges(torch::autograd::collect_next_edges(input));
  torch::autograd::set_history(result, node);
  return *node;
}

at::Tensor straight_through(const at::Tensor& input, at::Tensor values,
                            const optional<at::Tensor>& passes) {
  // Only a tensor that autograd does not take for a view can get this history and be written in
  // place.
  if (values.is_view()) {
    const at::AutoDispatchBelowADInplaceOrView below;
    values = at::_ops::alias::call(values);
  }
  const bool masked = passes && passes->defined();
  if (torch::autograd::compute_requires_grad(input)) {
    if (masked) {
      const auto node = make_node<StraightThroughBackward>();
      node->passes = torch::autograd::SavedVariable(*passes, /*is_output=*/false);
      node->set_next_edges(torch::autograd::collect_next_edges(input));
      torch::autograd::set_history(values, node);
    } else {
      pass_gradient(input, values, "RoundingBackward");
    }
  }
  if (torch::autograd::isFwGradDefined(input)) {
    const at::Tensor tangent = input._fw_grad(/*level=*/0);
    values._set_fw_grad(masked ? at::_ops::where_ScalarOther::call(*passes, tangent, 0)
                               : at::_ops::clone::call(tangent, {}),
                        /*level=*/0,
                        /*is_inplace_op=*/false);
  }
  return values;
}

at::Tensor call_chop_blocks(const at::Tensor& input, std::string_view format,
                            std::optional<std::string_view> rounding, at::IntArrayRef size,
                            at::IntArrayRef axis, std::string_view scale,
                            c10::ArrayRef<double> rule, const std::optional<at::Tensor>& above,
                            const std::optional<at::Generator>& generator) {
  using Call = at::Tensor(const at::Tensor&, std::string_view, optional<std::string_view>,
                          at::IntArrayRef, at::IntArrayRef, std::string_view, c10::ArrayRef<double>,
                          const optional<at::Tensor>&, optional<at::Generator>);
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("torch_dtypes::chop_blocks", "").typed<Call>();
  return op.call(input, format, rounding, size, axis, scale, rule, above, generator);
}

TORCH_LIBRARY_FRAGMENT(torch_dtypes, m) {
  m.def(
      "chop_blocks(Tensor input, str element, str? rounding, int[] size, int[] axis, str scale, "
      "float[] rule, *, Tensor? above=None, Generator? generator=None) -> Tensor",
      {at::Tag::nondeterministic_seeded, at::Tag::pt2_compliant_tag});
}
TORCH_LIBRARY_IMPL(torch_dtypes, CompositeExplicitAutograd, m) {
  m.impl("chop_blocks", &chop_blocks);
}
TORCH_LIBRARY_IMPL(torch_dtypes, PrivateUse2, m) {
  m.impl("chop_blocks", &refuse_blocks_of_own);
}
TORCH_LIBRARY_IMPL(torch_dtypes, Autograd, m) {
  m.impl("chop_blocks", &chop_blocks_autograd);
}

} // namespace at::formats
