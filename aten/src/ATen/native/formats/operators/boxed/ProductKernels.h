// The kernels of operators that add up products or values, as rows of OperatorFacts.cpp name them.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstddef>

namespace at::formats {

namespace accumulated {
struct Sums;
}

// On the arguments of a schema, and how many there are.
using ProductKernel = c10::SmallVector<at::Tensor, 3> (*)(const accumulated::Sums&,
                                                          const c10::IValue*, size_t);

struct ProductKernels {
  ProductKernel kernel;
  // Of an overload with an argument `dim`, where that is another kernel.
  ProductKernel along_dims{nullptr};
  ProductKernel on_cores{nullptr};   // of the step TensorCores
  // Where the first of two factors stands, and of how many dimensions they are.
  size_t factors{0};
  int64_t factor_dims{0};
  bool differentiable{false}; // autograd records the operators of which the kernel is made
};

namespace products { // DotOperators.cpp
extern const ProductKernels addbmm, addmm, addmv, addr, attention, baddbmm, bmm, conv_tbc,
    convolution, convolution_backward, cumsum, dot, mean, mm, mv, sum;
}

} // namespace at::formats
