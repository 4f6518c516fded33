#include <ATen/native/formats/gpu/DeviceKernels.h>

#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/native/formats/stock/Backend.h>
#include <c10/util/Exception.h>

namespace at::formats {

const CpuKernels& kernels(c10::Device device, const char* what) {
  if (on_host(device)) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !by_stock(device), what,
        ": expected the back end \"kernels\", but got stock operators, which cannot do it. "
        "Call torch_dtypes.set_backend(None) first.");
    return cpu_kernels();
  }
  if (on_gpu(device) || device.is_cuda()) {
    expect_gpu(device, what);
    TORCH_CHECK_NOT_IMPLEMENTED(false, what, ": expected a CPU tensor, but got one on ", device,
                                ": there is no kernel for it. Move it with .cpu() first.");
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, what, ": expected a tensor on the CPU or a CUDA device, but got one on ", device,
      ": number formats have kernels only for these. Move it with .cpu() first.");
}

const CpuKernels& host_kernels() {
  return cpu_kernels();
}

void expect_kernels(c10::Device device, const char* what) {
  if (on_gpu(device) && !by_stock(device)) expect_gpu(device, what);
  else if (!device.is_meta()) kernels(device, what);
}

void expect_one_device(c10::Device a, c10::Device b) {
  TORCH_CHECK(a == b,
              "Expected all tensors to be on the same device, but found at least two devices, ", a,
              " and ", b, "!");
}

} // namespace at::formats
