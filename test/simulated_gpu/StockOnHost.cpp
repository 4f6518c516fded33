// PyTorch's operators on a simulated GPU's memory: the CPU's, in place of CUDA's. Every aten
// operator with a CUDA kernel gets one that views the operands as CPU tensors on the same memory.
// It calls the operator and gives new results memory on the GPU. Operators that need no kernel
// there (empty tensors, views, copies of whole blocks of memory) stay PyTorch's own.
#include "Launch.h"
#include "OnlyOnGpu.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/op_registration.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/ops/copy_native.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace simulated_gpu {
namespace {

using torch::jit::Stack;

// PyTorch's kernels that launch nothing, and torch_dtypes' kernels for stock tensors.
const std::set<std::string> kLaunchNothing{
    "aten::_efficientzerotensor",
    "aten::_to_copy",
    "aten::_local_scalar_dense",
    "aten::_pin_memory",
    "aten::_reshape_alias",
    "aten::as_strided",
    "aten::empty",
    "aten::empty_strided",
    "aten::is_pinned",
    "aten::is_set_to",
    "aten::record_stream",
    "aten::resize_",
    "aten::set_",
    "aten::unfold",
    "aten::view",
    "aten::view_as_complex",
    "aten::view_as_real",
};
// These have no CUDA kernel but a way to one that would launch, such as cuDNN's.
const std::set<std::string> kByDevice{"aten::convolution", "aten::convolution_backward",
                                      "aten::copy_", "aten::ldexp"};
// These take host tensors with dimensions beside a GPU's.
const std::set<std::string> kMixed{"aten::copy_", "aten::index", "aten::index_put_",
                                   "aten::_index_put_impl_"};
// The kernels of these are limited in the number of dimensions.
const std::set<std::string> kFewDimensions{"aten::kthvalue", "aten::median", "aten::mode",
                                           "aten::nanmedian"};

void finish_stream() {
  C10_CUDA_CHECK(cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream().stream()));
}

// ---- operands, as CPU tensors on the same memory ----

class Operands {
 public:
  explicit Operands(bool copied) : copied_(copied) {}

  at::Tensor of(const at::Tensor& t) {
    if (!t.defined() || !t.is_cuda()) return t;
    if (t._is_zerotensor())
      return at::_efficientzerotensor(t.sizes(), t.options().device(c10::DeviceType::CPU));
    TORCH_CHECK_NOT_IMPLEMENTED(t.has_storage() && !t.is_quantized(),
                                "simulated GPU: expected dense tensors, but got one of ",
                                t.toString());
    for (const auto& [there, here] : pairs_) {
      if (there.is_same(t)) return here;
    }
    c10::Storage& storage = storages_[t.storage().unsafeGetStorageImpl()];
    if (!storage) {
      const size_t n = t.storage().nbytes();
      void* data = t.storage().mutable_data();
      if (copied_) {
        storage = c10::Storage(c10::Storage::use_byte_size_t(), n,
                               c10::GetAllocator(c10::DeviceType::CPU), /*resizable=*/true);
        const OpenMemory open;
        if (n > 0) std::memcpy(storage.mutable_data(), data, n);
      } else {
        storage = c10::Storage(c10::Storage::use_byte_size_t(), n,
                               c10::DataPtr(data, c10::DeviceType::CPU),
                               c10::GetAllocator(c10::DeviceType::CPU),
                               /*resizable=*/true);
      }
    }
    auto here = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), t.dtype());
    auto* const impl = here.unsafeGetTensorImpl();
    impl->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
    if (t.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
    if (t.is_conj()) here._set_conj(true);
    if (t.is_neg()) here._set_neg(true);
    pairs_.emplace_back(t, here);
    return here;
  }

  c10::IValue of(const c10::IValue& value) {
    if (value.isTensor()) return of(value.toTensor());
    if (!value.isList()) return value;
    const auto list = value.toList();
    if (!list.elementType()->isSubtypeOf(c10::OptionalType::create(c10::TensorType::get())))
      return value;
    auto made = c10::impl::GenericList(list.elementType());
    for (const c10::IValue& element : list.vec()) made.push_back(of(element));
    return made;
  }

  // Returns the operand that a result aliases, if any. If the operand was resized, its GPU tensor
  // is resized too.
  const at::Tensor* original(const at::Tensor& result) const {
    for (const auto& [there, here] : pairs_) {
      if (!here.is_same(result)) continue;
      if (here.sizes() != there.sizes() || here.strides() != there.strides() ||
          moved(here, there)) {
        const at::AutoDispatchBelowAutograd guard;
        // Makes room for its strides, which may leave gaps.
        const size_t extent = at::detail::computeStorageNbytes(here.sizes(), here.strides(), 1);
        there.resize_({static_cast<int64_t>(extent)});
        there.unsafeGetTensorImpl()->set_sizes_and_strides(here.sizes(), here.strides());
        if (!copied_) finish_stream(); // as for new results
        put(there, here);
      }
      return &there;
    }
    return nullptr;
  }

  bool shares(const at::Tensor& result) const {
    return std::any_of(pairs_.begin(), pairs_.end(), [&](const auto& pair) {
      return pair.second.storage().is_alias_of(result.storage());
    });
  }

  static void put(const at::Tensor& there, const at::Tensor& here) {
    if (there.numel() == 0) return;
    Operands target(false);
    const OpenMemory open;
    target.of(there).copy_(here);
  }

 private:
  bool moved(const at::Tensor& here, const at::Tensor& there) const {
    return !copied_ && here.storage().data() != there.storage().data();
  }

  bool copied_;
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;
  std::map<c10::StorageImpl*, c10::Storage> storages_;
};

void for_each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& f) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) f(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) for_each_tensor(element, f);
  }
}

// Returns the GPU that an operator runs on. Raises where PyTorch would say that not everything is
// on it.
c10::Device device_of(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  std::optional<c10::Device> device;
  bool host = false;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& t) {
      if (t.is_cuda()) {
        TORCH_CHECK(
            !device || *device == t.device(),
            "Expected all tensors to be on the same device, but found at least two devices, ",
            *device, " and ", t.device(), " (", op.schema().name(), ")");
        device = t.device();
      } else if (t.dim() > 0) {
        host = true;
      }
    });
  }
  TORCH_CHECK(
      !host || !device || kMixed.count(op.schema().name()),
      "Expected all tensors to be on the same device, but found at least two devices, cpu and ",
      *device, " (", op.schema().name(), ")");
  for (const c10::IValue& argument : arguments) {
    if (!device && argument.isDevice() && argument.toDevice().is_cuda())
      device = argument.toDevice();
  }
  if (!device || !device->has_index())
    device = c10::Device(c10::DeviceType::CUDA, c10::cuda::current_device());
  return *device;
}

// ---- random numbers: from a CPU generator with the GPU's seed and offset ----

at::Generator drawn(const std::optional<at::Generator>& given, c10::Device device, bool captured) {
  auto* const source = at::get_generator_or_default<at::CUDAGeneratorImpl>(
      given, at::cuda::detail::getDefaultCUDAGenerator(device.index()));
  uint64_t seed = 0;
  if (!captured) { // all runs of a simulated graph draw the same
    const std::lock_guard lock(source->mutex_);
    const auto [key, offset] = source->philox_engine_inputs(4);
    seed = key * 0x9e3779b97f4a7c15u + offset;
  }
  return at::detail::createCPUGenerator(seed);
}

bool is_generator(const c10::Argument& argument) {
  return argument.type()->str().find("Generator") != std::string::npos;
}

// Calls an operator on the host's tensors. Operators that draw without an explicit generator use
// the default one.
void call(const c10::OperatorHandle& op, Stack& stack,
          const std::optional<at::Generator>& generator) {
  const at::AutoDispatchBelowAutograd guard;
  // The CPU's autocast does not apply to tensors of a GPU.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const OpenMemory open;
  if (const Composed function = composed(op.operator_name())) {
    stack = function(stack);
    return;
  }
  const bool has_kernel = op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
  TORCH_CHECK_NOT_IMPLEMENTED(has_kernel,
                              "simulated GPU: expected an operator that the CPU has too, but got ",
                              op.operator_name());
  if (!generator) return op.callBoxed(stack);
  at::Generator target = at::detail::getDefaultCPUGenerator();
  const at::Tensor before = target.get_state();
  target.set_state(generator->get_state());
  const auto restore = c10::make_scope_exit([&] { target.set_state(before); });
  op.callBoxed(stack);
}

at::Tensor with_place(const at::Tensor& here, c10::Device device) {
  return at::empty_strided(here.sizes(), here.strides(), here.options().device(device));
}

// ---- an operator ----

bool is_capturing() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

// Tells whether PyTorch's own code copies: whole blocks of memory, and from one device to another.
bool copies_by_itself(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor &to = arguments[0].toTensor(), from = arguments[1].toTensor();
  if (to.device() != from.device()) return true;
  return to.dtype() == from.dtype() && to.sizes() == from.sizes() && to.is_contiguous() &&
      from.is_contiguous() && !to.is_conj() && !from.is_conj() && !to.is_neg() && !from.is_neg();
}

void on_host(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const auto& schema = op.schema();
  const size_t n = schema.arguments().size(), base = stack->size() - n;
  const std::vector<c10::IValue> arguments(stack->begin() + static_cast<int64_t>(base),
                                           stack->end());
  static const bool traced = std::getenv("SIMULATED_GPU_TRACE");
  if (traced) std::cerr << "simulated GPU: " << schema.name() << '\n';
  const auto give = [&](std::vector<c10::IValue> results) {
    stack->resize(base);
    for (c10::IValue& result : results) stack->push_back(std::move(result));
  };
  if (schema.name() == "aten::copy_" && copies_by_itself(arguments)) {
    at::Tensor to = arguments[0].toTensor();
    return give({at::native::copy_(to, arguments[1].toTensor(), arguments[2].toBool())});
  }
  // Math: the fused kernels are CUDA's alone.
  if (schema.name() == "aten::_fused_sdp_choice") return give({int64_t{0}});
  if (schema.name() == "aten::_use_cudnn_ctc_loss" || schema.name() == "aten::_use_miopen_ctc_loss")
    return give({false});
  if (kFewDimensions.count(schema.name())) {
    for (const c10::IValue& argument : arguments) {
      for_each_tensor(argument, [](const at::Tensor& t) {
        TORCH_CHECK(t.dim() < 25, "CUDA Tensors cannot have more than 25 dimensions");
      });
    }
  }

  const c10::Device device = device_of(op, arguments);
  const c10::cuda::CUDAGuard guard(device);
  const bool captured = is_capturing();
  std::optional<at::Generator> hidden;
  bool says_generator = false;
  for (size_t i = 0; i < n; ++i) says_generator |= is_generator(schema.arguments()[i]);
  if (!says_generator && op.hasTag(at::Tag::nondeterministic_seeded))
    hidden = drawn({}, device, captured);

  const auto operands_by = [&](Operands& operands) {
    Stack here;
    for (size_t i = 0; i < n; ++i) {
      const c10::IValue& argument = arguments[i];
      if (is_generator(schema.arguments()[i])) {
        here.push_back(drawn(argument.toOptional<at::Generator>(), device, captured));
      } else if (argument.isDevice()) {
        here.push_back(c10::Device(c10::DeviceType::CPU));
      } else {
        here.push_back(operands.of(argument));
      }
    }
    return here;
  };
  // Earlier work of the stream comes first. A graph's work runs on copies, to find the sizes of
  // results, and is recorded.
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
  if (!captured) finish_stream();
  auto operands = std::make_shared<Operands>(captured);
  Stack here = operands_by(*operands);
  call(op, here, hidden);

  // New results, and their positions among all tensors of the results.
  std::vector<std::pair<at::Tensor, size_t>> placed;
  size_t at = 0;
  const auto finished = [&](const at::Tensor& result) -> at::Tensor {
    const size_t place = at++;
    if (!result.defined()) return result;
    if (result._is_zerotensor())
      return at::_efficientzerotensor(result.sizes(), result.options().device(device));
    TORCH_CHECK_NOT_IMPLEMENTED(result.layout() == at::kStrided && !result.is_quantized(),
                                "simulated GPU: expected a dense tensor of ", schema.name(),
                                ", but got one of ", result.toString());
    if (const at::Tensor* const original = operands->original(result)) return *original;
    TORCH_CHECK(!operands->shares(result), "simulated GPU: expected a new tensor of ",
                schema.name(), ", but got a view: add it to kLaunchNothing");
    const at::Tensor there = with_place(result, device);
    if (!captured) {
      // The memory may have belonged to a tensor that another thread's kernel, on the same stream,
      // is still to read.
      finish_stream();
      Operands::put(there, result);
    }
    placed.emplace_back(there, place);
    return there;
  };
  std::vector<c10::IValue> results;
  for (const c10::IValue& result : here) {
    if (result.isTensor()) {
      results.emplace_back(finished(result.toTensor()));
    } else if (result.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& element : result.toTensorVector()) list.push_back(finished(element));
      results.emplace_back(list);
    } else {
      results.push_back(result);
    }
  }
  if (captured) {
    auto aliases = std::make_shared<Operands>(false);
    const auto run = [op, aliases, again = operands_by(*aliases), placed, hidden] {
      Stack here = again;
      call(op, here, hidden);
      std::vector<at::Tensor> tensors;
      for (const c10::IValue& result : here) {
        if (result.isTensor()) tensors.push_back(result.toTensor());
        if (result.isTensorList()) {
          for (const at::Tensor& element : result.toTensorVector()) tensors.push_back(element);
        }
      }
      for (const auto& [there, place] : placed) Operands::put(there, tensors.at(place));
    };
    C10_CUDA_CHECK(launch(stream, schema.name().c_str(), run));
  }
  // CUDA kernels of these count the versions of tensors that they write.
  if (schema.name().rfind("aten::_foreach_", 0) == 0) {
    for (size_t i = 0; i < n; ++i) {
      const c10::AliasInfo* const alias = schema.arguments()[i].alias_info();
      if (alias && alias->isWrite())
        for_each_tensor(arguments[i],
                        [](const at::Tensor& t) { t.unsafeGetTensorImpl()->bump_version(); });
    }
  }
  give(std::move(results));
}

// ---- all operators ----

class Quiet : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

const bool registered = [] {
  static auto& kept = *new std::vector<c10::RegistrationHandleRAII>;
  Quiet quiet; // a second kernel for a key gives a warning
  const c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op || name.name.rfind("aten::", 0) != 0 || kLaunchNothing.count(name.name)) continue;
    if (!op->hasKernelForDispatchKey(c10::DispatchKey::CUDA) && !kByDevice.count(name.name))
      continue;
    kept.push_back(dispatcher.registerImpl(
        name, c10::DispatchKey::CUDA, c10::KernelFunction::makeFromBoxedFunction<&on_host>(),
        std::nullopt, nullptr, "the CPU's kernel on a simulated GPU's memory"));
  }
  // cuDNN has separate kernels, as fused attention has.
  at::globalContext().setUserEnabledCuDNN(false);
  at::globalContext().setSDPUseFlash(false);
  at::globalContext().setSDPUseMemEfficient(false);
  at::globalContext().setSDPUseCuDNN(false);
  return true;
}();

} // namespace
} // namespace simulated_gpu
