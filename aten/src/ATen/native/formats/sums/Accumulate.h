// Operators that add up products, under accumulation policies that stock kernels cannot obey: exact
// sums, and sums rounded at every step. All tensors have the format, except attention's mask.
#pragma once
#include <ATen/Accumulation.h>
#include <ATen/FormatTensor.h>
#include <ATen/native/formats/sums/ConvolutionDots.h>
#include <c10/util/OptionalArrayRef.h>

#include <array>
#include <optional>

namespace at::formats::accumulated {

using at::Tensor;
using c10::Scalar;

// The operands' format, and the policy that adds up their products.
struct Sums {
  const FormatEntry& entry;
  const Accumulation& policy;
};

Tensor mm(const Sums& sums, const Tensor& a, const Tensor& b);
Tensor bmm(const Sums& sums, const Tensor& a, const Tensor& b);
Tensor mv(const Sums& sums, const Tensor& a, const Tensor& x);
Tensor dot(const Sums& sums, const Tensor& x, const Tensor& y);
// beta * self + alpha * a b. With both 1, the accumulator starts at self. Otherwise "exact" rounds
// the whole once. Under other policies the machine's type multiplies the accumulator's number by
// alpha and adds beta * self; that is rounded once.
Tensor addmm(const Sums& sums, const Tensor& self, const Tensor& a, const Tensor& b,
             const Scalar& beta, const Scalar& alpha);
Tensor addr(const Sums& sums, const Tensor& self, const Tensor& x, const Tensor& y,
            const Scalar& beta, const Scalar& alpha);
Tensor addmv(const Sums& sums, const Tensor& self, const Tensor& a, const Tensor& x,
             const Scalar& beta, const Scalar& alpha);
Tensor baddbmm(const Sums& sums, const Tensor& self, const Tensor& a, const Tensor& b,
               const Scalar& beta, const Scalar& alpha);
Tensor addbmm(const Sums& sums, const Tensor& self, const Tensor& a, const Tensor& b,
              const Scalar& beta, const Scalar& alpha);

// a [b, m, k] times b [b, k, n], of one format or two, rounded to the format of sums. Its policy
// must have own_kernels(). start: of that format, or undefined.
Tensor product_into(const Sums& sums, const Tensor& a, const Tensor& b, const Tensor& start);
// start - a b, all of the format of sums: products of -a and b enter an accumulator that begins at
// start.
Tensor subtract_product(const Sums& sums, const Tensor& start, const Tensor& a, const Tensor& b);

// sum and mean. dtype: the number of a format dtype to convert values to before the sum, or
// nothing.
enum class Divided : uint8_t { ByOne, ByCount };
Tensor reduce_all(const Sums& sums, const Tensor& self, std::optional<c10::ScalarType> dtype,
                  Divided divided);
Tensor reduce_dims(const Sums& sums, const Tensor& self, c10::OptionalArrayRef<int64_t> dims,
                   bool keep, std::optional<c10::ScalarType> dtype, Divided divided);
Tensor cumsum(const Sums& sums, const Tensor& self, int64_t along,
              std::optional<c10::ScalarType> dtype);

// bias: [channels], or undefined. A list of parameters may hold one number for all dimensions.
Tensor convolution(const Sums& sums, const Tensor& x, const Tensor& w, const Tensor& bias,
                   const Convolution& parameters);
// The gradients of input, weight and bias; undefined where not wanted.
std::array<Tensor, 3> convolution_backward(const Sums& sums, const Tensor& grad, const Tensor& x,
                                           const Tensor& w, const Convolution& parameters,
                                           const std::array<bool, 3>& wanted);

Tensor attention(const Sums& sums, const Tensor& q, const Tensor& key, const Tensor& value,
                 const std::optional<Tensor>& mask, double dropout, bool causal,
                 std::optional<double> scaling, bool grouped);

} // namespace at::formats::accumulated
