#include <ATen/native/formats/gpu/GpuKernels.h>

#include <ATen/Observation.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/formats/codec/FastDecode.h>

#include <map>
#include <mutex>

namespace at::formats {

// Without kernels no device counts as a GPU: stock operators compute for all devices but the CPU.
static constexpr c10::DeviceType kNone = c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES;
c10::DeviceType gpu_type = kNone;

static const GpuBinding* bound = nullptr; // the binding for CUDA

void bind_gpu(const GpuBinding& binding) {
  bound = &binding;
  gpu_type = c10::DeviceType::CUDA;
}

bool has_gpu_kernels() {
  return bound;
}

#ifdef TORCH_DTYPES_GPU_ON_HOST
static const GpuBinding* host_binding() {
  static constexpr GpuBinding binding{
      .kernels = &cuda::cuda_kernels,
      .current_stream = [](c10::Device) -> cuda::Stream { return nullptr; },
      .check = [](cuda::Status status, const char*) { TORCH_INTERNAL_ASSERT(status == 0); },
      .capturing = [](c10::Device) { return false; },
      .synchronize = [] {}, // a kernel has run when its launch returns
      .multiplies_bfloat16 = [](c10::Device) { return true; },
      .draw = nullptr,      // the CPU's generators are used
  };
  return &binding;
}
#else
static const GpuBinding* host_binding() {
  return nullptr;
}
#endif

bool built_for_host() {
  return host_binding();
}

bool gpu_on_host() {
  return gpu_type == c10::DeviceType::CPU;
}

void set_gpu_on_host(bool on) {
  TORCH_CHECK_NOT_IMPLEMENTED(!on || built_for_host(),
                              "expected a build with TORCH_DTYPES_GPU_ON_HOST=ON, but got one "
                              "without: see CONTRIBUTING.md");
  const c10::DeviceType own = bound ? c10::DeviceType::CUDA : kNone;
  gpu_type = on ? c10::DeviceType::CPU : own;
}

static const GpuBinding& binding_for(c10::Device device, const char* what) {
  const GpuBinding* binding = device.is_cpu() ? host_binding() : bound;
  TORCH_CHECK_NOT_IMPLEMENTED(binding, what, ": expected a CPU tensor, but got one on ", device,
                              ": this build of torch_dtypes has CPU kernels only. Move it with "
                              ".cpu(); or, where nvcc of the major version in torch.version.cuda "
                              "is found, build kernels for it, which have run on no GPU yet: "
                              "pip install --force-reinstall --no-deps --no-build-isolation -C "
                              "cmake.define.TORCH_DTYPES_CUDA=ON torch-dtypes");
  const bool observed = observing() && observed_thread().observer;
  TORCH_CHECK_NOT_IMPLEMENTED(!observed || !binding->capturing(device), what,
                              ": expected no CUDA graph to be captured in a block that is "
                              "observed, but got one: its runs would not be counted. ",
                              "Capture it before or after, or observe eager calls.");
  return *binding;
}

void expect_gpu(c10::Device device, const char* what) {
  binding_for(device, what);
}

Gpu::Gpu(c10::Device device, const char* what)
    : what_(what),
      binding_(binding_for(device, what)),
      guard_(device),
      kernels_(binding_.kernels()),
      stream_(binding_.current_stream(device)) {
}

void Gpu::check(cuda::Status status) const {
  if (status != 0) binding_.check(status, what_);
}

void Gpu::expect(const Format& format) const {
  const bool served =
      !format.is_posit() || c10::formats::PositDecoder<double, int64_t>::serves(format);
  TORCH_CHECK_NOT_IMPLEMENTED(served, what_,
                              ": expected any format but posits of more than 53 bits on a GPU, ",
                              "but got a tensor of such a posit. Move it with .cpu() first.");
}

void hold_on_stream(const at::Tensor& read) {
  if (read.is_cpu()) return; // the GPU's kernels on the host have already run
  const c10::DeviceGuard guard(read.device());
  const c10::impl::VirtualGuardImpl device(read.device().type());
  device.recordDataPtrOnStream(read.storage().data_ptr(), device.getStream(read.device()));
}

void hold_for_launches(const at::Tensor& read) {
  if (read.is_cpu()) return;
  hold_on_stream(read);
  if (!binding_for(read.device(), "graphs").capturing(read.device())) return;
  static auto& mutex = *new std::mutex;
  static auto& kept = *new std::map<const void*, at::Tensor>;
  const std::lock_guard<std::mutex> lock(mutex);
  kept.emplace(read.const_data_ptr(), read);
}

bool is_captured(c10::Device device) {
  return binding_for(device, "graphs").capturing(device);
}

void expect_no_graph(c10::Device device) {
  TORCH_CHECK_NOT_IMPLEMENTED(!binding_for(device, "random words").capturing(device),
                              "random words: expected a GPU generator while a CUDA graph is "
                              "captured, but got a CPU generator (a block of torch_dtypes.fuzzy ",
                              "has one), whose words would be the same in each run of the graph. "
                              "Capture without it.");
}

bool multiplies_bfloat16(c10::Device device) {
  return binding_for(device, "products on tensor cores").multiplies_bfloat16(device);
}

Seed draw_on_gpu(const std::optional<at::Generator>& generator, c10::Device device) {
  return binding_for(device, "random words").draw(generator, device);
}

} // namespace at::formats
