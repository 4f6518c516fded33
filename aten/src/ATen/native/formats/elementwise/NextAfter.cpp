// nextafter: the next number of the format itself, found by stepping its codes. (The stock kernel
// steps numbers of the compute type, which round back to where they came from.)
#include <ATen/FormatLibrary.h>
#include <ATen/native/formats/elementwise/Elementwise.h>
#include <ATen/native/formats/elementwise/ResultType.h>
#include <ATen/native/formats/gpu/DeviceKernels.h>
#include <ATen/native/formats/gpu/GpuCasts.h>
#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/native/formats/stock/Backend.h>
#include <ATen/native/formats/stock/StockCodes.h>

#include <ATen/AutogradNode.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/nextafter_ops.h>
#include <ATen/ops/to_ops.h>
#include <c10/formats/codec/ExactCodec.h>
#include <c10/formats/codec/NextCode.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <cmath>

namespace at::formats {
namespace {

using at::Tensor;

uint64_t next_of_table(const Format& f, uint64_t code, double from, double towards) {
  if (std::isnan(from) || std::isnan(towards)) return f.nan_code();
  if (from != towards) return c10::formats::next_code_of_table(f, code, towards > from);
  // 0, with the sign of towards
  return from != 0 ? code : c10::formats::encode(f, c10::formats::unpack(towards));
}

template <typename Code>
void step_all(const Format& f, const Tensor& codes, const Tensor& from, const Tensor& towards,
              const Tensor& result) {
  const auto* in = static_cast<const Code*>(codes.const_data_ptr());
  auto* out = static_cast<Code*>(result.mutable_data_ptr());
  const double *a = from.const_data_ptr<double>(), *b = towards.const_data_ptr<double>();
  const auto next = f.is_table() ? &next_of_table : &c10::formats::next_code;
  at::parallel_for(0, codes.numel(), 8192, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = static_cast<Code>(next(f, in[i], a[i], b[i]));
  });
}

Tensor nextafter_kernel(const Tensor& given, const Tensor& given_other) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  ResultType type;
  type.see(given, "nextafter");
  type.see(given_other, "nextafter");
  TORCH_CHECK_TYPE(!type.is_complex(), "nextafter: expected real operands, but got a complex one");
  if (!type.result()) {
    const auto stock = [&](const Tensor& t) {
      return is_format_tensor(t) ? to_stock(t, *type.stock()) : t;
    };
    return at::_ops::nextafter::call(stock(given), stock(given_other));
  }
  // A number on the CPU may join tensors on another device, as in any elementwise operator.
  const auto beside = [](const Tensor& t, const Tensor& o) {
    return t.dim() == 0 && o.dim() != 0 && t.device().is_cpu() ? t.to(o.device()) : t;
  };
  const Tensor self = beside(given, given_other), other = beside(given_other, given);
  expect_one_device(self.device(), other.device());
  const FormatEntry& entry = *type.result();
  const Format& f = entry.format;
  const auto sizes = at::infer_size_dimvector(self.sizes(), other.sizes());
  const auto whole = [&](const Tensor& t) { return t.expand(sizes).contiguous(); };
  const auto values = [](const Tensor& t) {
    return is_format_tensor(t) ? to_stock(t, at::kDouble) : t.to(at::kDouble);
  };
  const Tensor start = is_format_tensor(self) ? self : encoded(self, entry);
  Tensor result = empty_format(sizes, entry, self.device());
  if (self.device().is_meta()) return result;
  const bool stock = by_stock(self.device());
  if (!stock) expect_kernels(self.device(), "nextafter");
  const Tensor codes = whole(bits_alias(start)), from = whole(values(start)),
               towards = whole(values(other));
  if (stock) {
    bits_alias(result).copy_(next_codes_by_stock(f, codes, from, towards));
    return result;
  }
  if (on_gpu(self.device())) {
    next_codes_on_gpu(f, codes, from, towards, result);
    return result;
  }
  switch (f.itemsize()) {
    case 1: step_all<uint8_t>(f, codes, from, towards, result); break;
    case 2: step_all<uint16_t>(f, codes, from, towards, result); break;
    case 4: step_all<uint32_t>(f, codes, from, towards, result); break;
    default: step_all<uint64_t>(f, codes, from, towards, result);
  }
  return result;
}

// The neighbour moves with the number, and does not depend on `towards`. If the operands are equal
// there is no gradient, as in PyTorch.
struct NextAfterBackward final : torch::autograd::Node {
  // moves: where the operands differ. self, other: empty tensors of the operands' dtypes, because
  // nextafter_ overwrites the operands.
  Tensor moves, self, other;
  c10::DimVector sizes, other_sizes;

  NextAfterBackward(const Tensor& a, const Tensor& b)
      : moves(a.ne(b)),
        self(a.detach().new_empty({0})),
        other(b.detach().new_empty({0})),
        sizes(a.sizes()),
        other_sizes(b.sizes()) {}
  std::string name() const override { return "NextafterBackward"; }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    Tensor grad, none;
    if (!grads[0].defined()) return {grad, none};
    if (task_should_compute_output(0)) {
      grad = at::_ops::to_other::call(
          at::sum_to(at::_ops::mul_Tensor::call(grads[0], moves), sizes), self, false, false, {});
    }
    if (task_should_compute_output(1)) none = other.new_zeros(other_sizes);
    return {grad, none};
  }
};

Tensor nextafter_autograd(const Tensor& self, const Tensor& other) {
  ResultType type;
  type.see(self, "nextafter");
  type.see(other, "nextafter");
  if (type.result()) {
    Tensor result;
    {
      const at::AutoDispatchBelowADInplaceOrView below;
      result = at::_ops::nextafter::call(self, other);
    }
    if (torch::autograd::compute_requires_grad(self, other)) {
      const auto node = make_node<NextAfterBackward>(self, other);
      node->set_next_edges(torch::autograd::collect_next_edges(self, other));
      torch::autograd::set_history(result, node);
    }
    if (torch::autograd::isFwGradDefined(self)) {
      result._set_fw_grad(at::_ops::mul_Tensor::call(self._fw_grad(/*level=*/0), self.ne(other)),
                          /*level=*/0, /*is_inplace_op=*/false);
    }
    return result;
  }
  // The result is stock: run the operator through casts that autograd records.
  const ExplicitDtypeGuard explicit_dtype;
  const auto stock = [&](const Tensor& t) {
    return entry_beneath(t)
        ? at::_ops::to_dtype::call(t, c10::toRealValueType(*type.stock()), false, false, {})
        : t;
  };
  return at::_ops::nextafter::call(stock(self), stock(other));
}

Tensor& nextafter_out_kernel(const Tensor& self, const Tensor& other, Tensor& out) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const bool ours = is_format_tensor(self) || is_format_tensor(other);
  return store(ours ? nextafter_kernel(self, other) : at::_ops::nextafter::call(self, other), out,
               {self, other});
}

Tensor& nextafter_in_place(Tensor& self, const Tensor& other) {
  const auto sizes = at::infer_size_dimvector(self.sizes(), other.sizes());
  TORCH_CHECK(self.sizes() == sizes, "nextafter_: expected operands that broadcast to the sizes ",
              self.sizes(), ", but got ", other.sizes());
  return nextafter_out_kernel(self, other, self);
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse2, m) {
  m.impl("nextafter", &nextafter_kernel);
  m.impl("nextafter_", &nextafter_in_place);
  m.impl("nextafter.out", &nextafter_out_kernel);
}

static void register_derivative(torch::Library& m) {
  m.impl("nextafter", &nextafter_autograd);
}
TD_REGISTER_AUTOGRAD(register_derivative)

} // namespace at::formats
