// Kernels of operators that add up products or values, as rows of OperatorFacts.cpp name them.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstddef>

namespace at::formats {

namespace accumulated {
struct Sums;
}

// Takes a schema's arguments and their number.
using ProductKernel = c10::SmallVector<at::Tensor, 3> (*)(const accumulated::Sums&,
                                                          const c10::IValue*, size_t);

struct ProductKernels {
  ProductKernel kernel;
  // Used instead by an overload with an argument `dim`, if set.
  ProductKernel along_dims{nullptr};
  ProductKernel on_cores{nullptr};   // for the step TensorCores
  // The index of the first of two factors, and the number of their dimensions.
  size_t factors{0};
  int64_t factor_dims{0};
  bool differentiable{false}; // autograd records the kernel's operators
};

namespace products { // DotOperators.cpp
extern const ProductKernels addbmm, addmm, addmv, addr, attention, baddbmm, bmm, conv_tbc,
    convolution, convolution_backward, cumsum, dot, mean, mm, mv, sum;
}

} // namespace at::formats
