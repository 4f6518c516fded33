// torch.ops.torch_dtypes.chop_blocks: rounds to an element format times a power of two that a block
// of the last dimension shares, in one pass over memory. torch_dtypes/targets/blocks.py does it for
// every shape and scale by stock operators; results agree bit for bit.
#include <ATen/native/formats/chop/BlockChop.h>

#include <ATen/AutogradNode.h>
#include <ATen/FormatRounding.h>
#include <ATen/FormatTensor.h>
#include <ATen/Observation.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
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
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace at::formats {
namespace {

using c10::formats::BlockScale;
using std::optional;

constexpr int64_t kBuffer = 1024;
constexpr uint32_t kInfinity = 0x7f80'0000;

// Compares magnitudes by their bits, where NaN is the greatest. Loops over floats would need a case
// for NaN, and compilers do not vectorise them.
uint32_t absmax_bits(const float* x, int64_t n) {
  int32_t most = 0;
  for (int64_t i = 0; i < n; ++i) {
    int32_t bits = 0;
    std::memcpy(&bits, x + i, sizeof bits);
    most = std::max(most, bits & 0x7fff'ffff);
  }
  return static_cast<uint32_t>(most);
}

void multiply(const float* x, float factor, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factor;
}

// Keeps nonzero numbers nonzero, for modes that tell a tiny magnitude from 0. (Nothing becomes
// infinite here: the scale is the block's own.)
void keep_from_zero(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    if (y[i] == 0 && x[i] != 0) y[i] = std::copysign(std::numeric_limits<float>::min(), x[i]);
}

struct Blocks {
  const CpuKernels& kernels;
  Format format;
  BlockScale scale_of;
  int64_t size, length; // size: of a block; length: of the last dimension
  bool careful;
  RandomWords words;
  Recorder seen;

  void round(const float* values, float* results, int64_t first, int64_t n) const {
    if (!kernels.round(format, values, results, n)) {
      alignas(64) char codes[kBuffer * 4];
      kernels.encode(format, values, codes, n, {words.seed, static_cast<uint64_t>(first)});
      kernels.decode(format, codes, results, n);
    }
    if (seen) seen.values(values, results, n);
  }

  // Rounds blocks [begin, end) of the tensor, counted row by row. Random words are indexed as if
  // the last block of each row were whole.
  void operator()(const float* values, float* results, int64_t begin, int64_t end) const {
    const int64_t blocks_of_row = (length + size - 1) / size;
    alignas(64) float scaled[kBuffer];
    alignas(64) float rounded[kBuffer];
    while (begin < end) {
      // As many blocks as the buffer holds, up to the end of a row that ends in a shorter one.
      const int64_t row = begin / blocks_of_row, column = begin % blocks_of_row;
      const int64_t left = length % size ? blocks_of_row - column : end - begin;
      const int64_t count = std::min({left, end - begin, kBuffer / size});
      const int64_t offset = row * length + column * size;
      int64_t n = 0;
      int exponents[kBuffer];
      for (int64_t b = 0; b < count; ++b) {
        const int64_t wide = length % size ? std::min(size, length - (column + b) * size) : size;
        const float* x = values + offset + n;
        const uint32_t most = absmax_bits(x, wide);
        float absmax = 0;
        std::memcpy(&absmax, &most, sizeof absmax);
        exponents[b] = most < kInfinity ? scale_of(absmax) : std::numeric_limits<int>::max();
        const float inverse = most < kInfinity ? static_cast<float>(std::ldexp(1.0, -exponents[b]))
                                               : std::numeric_limits<float>::quiet_NaN();
        multiply(x, inverse, scaled + n, wide);
        if (careful) keep_from_zero(x, scaled + n, wide);
        n += wide;
      }
      round(scaled, rounded, begin * size, n);
      for (int64_t b = 0, i = 0; b < count; ++b) {
        const int64_t wide = std::min(size, n - i);
        const bool finite = exponents[b] != std::numeric_limits<int>::max();
        const float scale = finite ? static_cast<float>(std::ldexp(1.0, exponents[b]))
                                   : std::numeric_limits<float>::quiet_NaN();
        multiply(rounded + i, scale, results + offset + i, wide);
        i += wide;
      }
      begin += count;
    }
  }
};

at::Tensor chop_blocks(const at::Tensor& input, std::string_view name,
                       optional<std::string_view> rounding, int64_t size, int64_t emax,
                       double threshold, bool included, int64_t lowest, int64_t highest,
                       optional<at::Generator> generator) {
  expect_kernels(input.device(), "chop_blocks"); // an error before any work
  TORCH_CHECK_TYPE(input.scalar_type() == c10::ScalarType::Float,
                   "expected a tensor of float32 to chop_blocks, but got ", input.scalar_type());
  TORCH_CHECK_VALUE(input.dim() > 0 && input.is_contiguous(),
                    "expected a contiguous tensor with a dimension to chop_blocks, but got sizes ",
                    input.sizes(), " and strides ", input.strides());
  TORCH_CHECK_VALUE(size >= 1 && size <= kBuffer, "expected blocks of 1 to ", kBuffer,
                    " to chop_blocks, but got ", size);
  TORCH_CHECK_VALUE(std::abs(emax) <= 256 && -127 <= lowest && lowest <= highest && highest <= 127,
                    "expected exponents of scales from -127 to 127 to chop_blocks, but got ",
                    lowest, " to ", highest, ", emax=", emax);
  const Format format = format_of_call(name, rounding);
  TORCH_CHECK_VALUE(
      format.fits_float(),
      "expected an element format of at most float32's range to chop_blocks, but got ", name);
  const bool to_nearest =
      !c10::formats::is_stochastic(format.rounding) && !c10::formats::sees_inexact(format.rounding);
  at::Tensor out = at::_ops::empty_like::call(input, {}, {}, {}, {}, at::MemoryFormat::Contiguous);
  if (input.numel() == 0) return out;
  const BlockScale scale_of{static_cast<int>(emax), static_cast<int>(lowest),
                            static_cast<int>(highest), threshold, included};
  const int64_t length = input.size(-1);
  size = std::min(size, length);
  const bool careful = !to_nearest || c10::formats::keeps_minpos(format);
  const RandomWords words = next_words(format, generator, input.device());
  if (on_gpu(input.device())) {
    const Gpu gpu(input.device(), "chop_blocks");
    gpu.expect(format);
    const cuda::Blocks blocks{scale_of, size, length, careful};
    const Recorder seen = recorder(format, out.const_data_ptr(), input.const_data_ptr());
    const auto for_counts = [&] {
      return seen ? at::empty(input.sizes(), input.options()) : at::Tensor();
    };
    const auto data = [](const at::Tensor& t) {
      return t.defined() ? t.mutable_data_ptr<float>() : nullptr;
    };
    const at::Tensor scaled = for_counts(), rounded = for_counts();
    gpu.check(gpu->chop_blocks(format, blocks, input.const_data_ptr<float>(),
                               out.mutable_data_ptr<float>(), input.numel(), words.seed,
                               data(scaled), data(rounded), gpu.stream()));
    if (seen) count_values_on_gpu(seen, scaled, rounded);
    return out;
  }
  const CpuKernels& k = kernels(input.device(), "chop_blocks");
  const Recorder seen = recorder(format, out.const_data_ptr(), input.const_data_ptr());
  const Blocks blocks{k, format, scale_of, size, length, careful, words, seen};
  const int64_t count = input.numel() / length * ((length + size - 1) / size);
  const float* values = input.const_data_ptr<float>();
  float* results = out.mutable_data_ptr<float>();
  at::parallel_for(0, count, std::max<int64_t>(1, 32768 / size),
                   [&](int64_t begin, int64_t end) { blocks(values, results, begin, end); });
  return out;
}

at::Tensor refuse_blocks_of_own(const at::Tensor& input, std::string_view,
                                optional<std::string_view>, int64_t, int64_t, double, bool, int64_t,
                                int64_t, optional<at::Generator>) {
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
                                optional<std::string_view> rounding, int64_t size, int64_t emax,
                                double threshold, bool included, int64_t lowest, int64_t highest,
                                optional<at::Generator> generator) {
  at::Tensor result;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    result = call_chop_blocks(input, name, rounding, size, emax, threshold, included, lowest,
                              highest, generator);
  }
  return straight_through(input, result, {});
}

} // namespace

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
                            optional<std::string_view> rounding, int64_t size, int64_t emax,
                            double threshold, bool included, int64_t lowest, int64_t highest,
                            const optional<at::Generator>& generator) {
  using Call = at::Tensor(const at::Tensor&, std::string_view, optional<std::string_view>, int64_t,
                          int64_t, double, bool, int64_t, int64_t, optional<at::Generator>);
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("torch_dtypes::chop_blocks", "").typed<Call>();
  return op.call(input, format, rounding, size, emax, threshold, included, lowest, highest,
                 generator);
}

TORCH_LIBRARY_FRAGMENT(torch_dtypes, m) {
  m.def(
      "chop_blocks(Tensor input, str element, str? rounding, int size, int emax, float threshold, "
      "bool included, int lowest, int highest, *, "
      "Generator? generator=None) -> Tensor",
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
