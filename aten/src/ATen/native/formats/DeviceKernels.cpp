#include <ATen/native/formats/DeviceKernels.h>

#include <c10/util/Exception.h>

namespace at::formats {

const CpuKernels& kernels(c10::Device device, const char* what) {
  switch (device.type()) {
    case c10::DeviceType::CPU: return cpu_kernels();
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, what, ": expected a CPU tensor, but got one on ", device,
                                  ": this build of torch_dtypes has CPU kernels only. Move it with .cpu() first.");
  }
}

} // namespace at::formats
