// Registers kernels for number formats for every operator of PyTorch, once all operators exist:
// when libtorch is loaded, which is after libtorch_cpu.
#include <ATen/native/formats/operators/boxed/Boxed.h>

namespace at::formats {

int register_tolerances(); // Tolerances.cpp

[[maybe_unused]] static const int registered = (register_tolerances(), register_boxed_kernels());

} // namespace at::formats
