// torch.autocast with a format dtype. PyTorch's autocast kernels cast to it as to any dtype number
// (by Copy.cpp's casts). Three kinds of operators need kernels here:
// - operators that take the widest dtype of their operands, which PyTorch finds by the container;
// - operators whose result PyTorch wants in float32, also for format tensors that are to be left
//   alone;
// - cuDNN's recurrent layers, which PyTorch casts to float16 whatever the block's dtype.
#include <ATen/native/formats/overlay/Autocast.h>

#include <ATen/FormatTensor.h>
#include <ATen/Operators.h>
#include <ATen/StockKernel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/stack.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

namespace at::formats {

using at::autocast::CastPolicy;
using c10::DeviceType;
using c10::ScalarType;

bool autocast_has_format(DeviceType device) {
  return c10::formats::is_format_type(at::autocast::get_autocast_dtype(device));
}

bool autocast_has_format() {
  return std::any_of(kAutocastDevices.begin(), kAutocastDevices.end(),
                     [](DeviceType device) { return autocast_has_format(device); });
}

namespace {

bool is_own(const at::Tensor& t) {
  return t.defined() && entry_beneath(t) != nullptr;
}

// ---- arguments of operators: tensors and lists of tensors ----

// Whether an argument holds a tensor for which `is` returns true.
template <typename Is>
bool holds(const at::Tensor& t, Is is) {
  return t.defined() && is(t);
}
template <typename Is>
bool holds(const std::optional<at::Tensor>& t, Is is) {
  return t && holds(*t, is);
}
template <typename Is>
bool holds(at::TensorList list, Is is) {
  return std::any_of(list.begin(), list.end(), [&](const at::Tensor& t) { return holds(t, is); });
}
template <typename Is>
bool holds(const at::ITensorListRef& list, Is is) {
  return std::any_of(list.begin(), list.end(), [&](const at::Tensor& t) { return holds(t, is); });
}
template <typename T, typename Is>
bool holds(const T&, Is) {
  return false;
}

// Casts a format tensor to float32 if float32 has its values.
at::Tensor widen(const at::Tensor& t) {
  if (!is_own(t) || !entry_of(t).format.fits_float()) return t;
  const ExplicitDtypeGuard explicit_dtype; // float32 itself, even if it is a container
  return t.to(ScalarType::Float);
}
std::optional<at::Tensor> widen(const std::optional<at::Tensor>& t) {
  return t ? std::optional(widen(*t)) : t;
}
std::vector<at::Tensor> widen(const at::ITensorListRef& list) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& t : list) result.push_back(widen(t));
  return result;
}
std::vector<at::Tensor> widen(at::TensorList list) {
  return widen(at::ITensorListRef(list));
}
template <typename T>
const T& widen(const T& other) {
  return other;
}

constexpr c10::DispatchKey key_of(DeviceType device) {
  return device == DeviceType::CPU ? c10::DispatchKey::AutocastCPU : c10::DispatchKey::AutocastCUDA;
}

// ---- operators that take the widest dtype ----

// For operands with a format tensor. If autocast's dtype is a format and float32 is among the
// operands, operands become float32, except wider ones; otherwise they are left alone. Code with
// float32 and bfloat16 pays for one question, or for none in a process without format tensors.
template <DeviceType Device, typename Signature, Signature* F>
struct Promoted;

template <DeviceType Device, typename Result, typename... Args, Result (*F)(Args...)>
struct Promoted<Device, Result(Args...), F> {
  static Result call(Args... args) {
    using Stock = typename at::autocast::WrapFunction<CastPolicy::promote, Device, Result(Args...),
                                                      Result(Args...), F>::type;
    if (!any_format_tensor() || !(holds(args, is_own) || ...)) return Stock::call(args...);
    const c10::impl::ExcludeDispatchKeyGuard beneath(key_of(Device));
    const auto is_float = [](const at::Tensor& t) {
      return !is_own(t) && t.scalar_type() == ScalarType::Float;
    };
    if (!autocast_has_format(Device) || !(holds(args, is_float) || ...)) return F(args...);
    return F(widen(args)...);
  }
};

// ---- operators whose result PyTorch wants in float32 ----

// Whether autocast leaves a tensor alone: any format tensor in a block with a stock dtype, and in
// every block one wider than float32 (as in Copy.cpp).
template <DeviceType Device>
bool is_left_alone(const at::Tensor& t) {
  return is_own(t) && !(autocast_has_format(Device) && entry_of(t).format.fits_float());
}

template <DeviceType Device, CastPolicy Policy, typename Signature, Signature* F,
          typename Redispatch, Redispatch* G>
struct InFloat;

template <DeviceType Device, CastPolicy Policy, typename Result, typename... Args,
          Result (*F)(Args...), typename Redispatch, Redispatch* G>
struct InFloat<Device, Policy, Result(Args...), F, Redispatch, G> {
  static Result call(Args... args) {
    using Stock =
        typename at::autocast::WrapFunction<Policy, Device, Result(Args...), Redispatch, G>::type;
    if (!any_format_tensor() || !(holds(args, is_left_alone<Device>) || ...))
      return Stock::call(args...);
    const c10::impl::ExcludeDispatchKeyGuard beneath(key_of(Device));
    return F(args...);
  }
};

// ---- cuDNN's recurrent layers ----

at::Tensor in_block_dtype(const at::Tensor& t) {
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(at::kCUDA), t, at::kCUDA);
}

enum CudnnMode : int64_t { kRelu, kTanh, kLstm, kGru };

// _cudnn_rnn under an autocast with a format dtype: calls at::lstm, at::gru, ... again with
// operands in it. Those run this package's operators, which round each step.
void rnn_in_block_dtype(torch::jit::Stack& stack) {
  // The indices are the schema's.
  const auto at_place = [&](size_t i) -> const c10::IValue& {
    return torch::jit::peek(stack, i, 16);
  };
  const at::Tensor x = in_block_dtype(at_place(0).toTensor()),
                   h = in_block_dtype(at_place(4).toTensor());
  std::vector<at::Tensor> weights;
  for (const at::Tensor& w : at_place(1).toTensorVector()) weights.push_back(in_block_dtype(w));
  // Each layer has weights of input and state, and biases for both; an LSTM may also have a
  // projection.
  const bool biases = at_place(2).toInt() >= 4;
  const int64_t mode = at_place(6).toInt(), layers = at_place(9).toInt();
  const bool batch_first = at_place(10).toBool(), train = at_place(12).toBool(),
             both_ways = at_place(13).toBool();
  const double dropout = at_place(11).toDouble();
  // Packed input: the number of sequences that have each step.
  const std::vector<int64_t> of_steps = at_place(14).toIntVector();
  const at::Tensor packed =
      of_steps.empty() ? at::Tensor() : at::tensor(of_steps, at::TensorOptions().dtype(at::kLong));
  at::Tensor out, hy, cy;
  if (mode == kLstm) {
    const std::vector<at::Tensor> states{h, in_block_dtype(at_place(5).toTensor())};
    const c10::impl::ExcludeDispatchKeyGuard beneath(c10::DispatchKey::AutocastCUDA);
    std::tie(out, hy, cy) = packed.defined()
        ? ATEN_FN2(lstm, data)(x, packed, states, weights, biases, layers, dropout, train,
                               both_ways)
        : ATEN_FN2(lstm, input)(x, states, weights, biases, layers, dropout, train, both_ways,
                                batch_first);
  } else {
    const c10::impl::ExcludeDispatchKeyGuard beneath(c10::DispatchKey::AutocastCUDA);
    const auto run = [&](auto layer, auto layer_of_packed) {
      return packed.defined()
          ? layer_of_packed(x, packed, h, weights, biases, layers, dropout, train, both_ways)
          : layer(x, h, weights, biases, layers, dropout, train, both_ways, batch_first);
    };
    if (mode == kGru) std::tie(out, hy) = run(ATEN_FN2(gru, input), ATEN_FN2(gru, data));
    else if (mode == kTanh)
      std::tie(out, hy) = run(ATEN_FN2(rnn_tanh, input), ATEN_FN2(rnn_tanh, data));
    else std::tie(out, hy) = run(ATEN_FN2(rnn_relu, input), ATEN_FN2(rnn_relu, data));
  }
  torch::jit::drop(stack, 16);
  // the last two are used by cuDNN only
  torch::jit::push(stack, out, hy, cy, at::Tensor(), at::Tensor());
}

const StockKernel* stock_rnn = nullptr; // set if PyTorch has cuDNN

void cudnn_rnn(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (autocast_has_format(at::kCUDA)) return rnn_in_block_dtype(*stack);
  stock_rnn->callBoxed(op, keys, stack);
}

struct Silent final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// Replaces PyTorch's kernels, of which the dispatcher warns. For stock tensors these do the same,
// by the same templates.
[[maybe_unused]] const bool conversions_registered = [] {
  Silent silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  // Outlives exit.
  auto& cpu = *new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::AutocastCPU,
                                  __FILE__, __LINE__);
  auto& gpu = *new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::AutocastCUDA,
                                  __FILE__, __LINE__);
#define OVERLOADS(_1, _2, NAME, ...) NAME
#define PROMOTED(LIBRARY, DEVICE, NAME) \
  LIBRARY.impl(#NAME, TORCH_FN((Promoted<DEVICE, decltype(ATEN_FN(NAME)), ATEN_FN(NAME)>::call)));
#define PROMOTED_ON_GPU(NAME) PROMOTED(gpu, DeviceType::CUDA, NAME)
#define IN_FLOAT(NAME, FUNCTION)                                                                   \
  gpu.impl(NAME,                                                                                   \
           TORCH_FN((InFloat<DeviceType::CUDA, CastPolicy::fp32_set_opt_dtype, decltype(FUNCTION), \
                             FUNCTION, decltype(FUNCTION), FUNCTION>::call)));
#define IN_FLOAT_1(NAME) IN_FLOAT(#NAME, ATEN_FN(NAME))
#define IN_FLOAT_2(NAME, OVERLOAD) IN_FLOAT(#NAME "." #OVERLOAD, ATEN_FN2(NAME, OVERLOAD))
#define IN_FLOAT_ON_GPU(...) OVERLOADS(__VA_ARGS__, IN_FLOAT_2, IN_FLOAT_1)(__VA_ARGS__)
#define IN_FLOAT_BY_OTHER(FUNCTION, NAME, SIGNATURE, OTHER, POLICY)                             \
  gpu.impl(NAME,                                                                                \
           TORCH_FN((InFloat<DeviceType::CUDA, CastPolicy::POLICY, SIGNATURE, &FUNCTION, OTHER, \
                             &FUNCTION>::call)));
  PROMOTED(cpu, DeviceType::CPU, cat)
  PROMOTED(cpu, DeviceType::CPU, stack)
  PROMOTED(cpu, DeviceType::CPU, index_copy)
  AT_FORALL_PROMOTE(PROMOTED_ON_GPU)
  AT_FORALL_FP32_SET_OPT_DTYPE(IN_FLOAT_ON_GPU)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(IN_FLOAT_BY_OTHER)
#undef IN_FLOAT_BY_OTHER
#undef IN_FLOAT_ON_GPU
#undef IN_FLOAT_2
#undef IN_FLOAT_1
#undef IN_FLOAT
#undef PROMOTED_ON_GPU
#undef PROMOTED
#undef OVERLOADS
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_cudnn_rnn", "");
  if (op.hasKernelForDispatchKey(c10::DispatchKey::AutocastCUDA)) {
    stock_rnn = new StockKernel(stock_kernel(op, c10::DispatchKey::AutocastCUDA)); // outlives exit
    gpu.impl("_cudnn_rnn", torch::CppFunction::makeFromBoxedFunction<&cudnn_rnn>());
  }
  return true;
}();

} // namespace
} // namespace at::formats
