// Products with a bias under vmap. PyTorch's batching rules multiply, round, and add. Here they
// stay one sum, made as the accumulation policy says, with the roundings of eager code.
#include <ATen/native/formats/operators/vmap/VmapSums.h>

#include <ATen/FormatTensor.h>
#include <ATen/StockKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/PlumbingHelper.h>
#include <ATen/native/formats/sums/Contractions.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/baddbmm_ops.h>
#include <torch/library.h>

#include <array>

namespace at::formats {
namespace {

using at::Tensor;
using torch::jit::Stack;

constexpr auto kBatched = c10::DispatchKey::FuncTorchBatched,
               kTransforms = c10::DispatchKey::FuncTorchDynamicLayerFrontMode;

// A tensor with vmap's batch dimension first, of size 1 if it has none.
struct Batched {
  Tensor tensor;
  bool along;

  Batched(const Tensor& t, int64_t level) {
    auto [value, dim] = at::functorch::unwrapTensorAtLevel(t, level);
    along = dim.has_value();
    tensor = along ? value.movedim(*dim, 0) : value.unsqueeze(0);
  }
  // Returns the tensor with ones inserted behind the batch dimension, up to `dims` dimensions.
  Tensor with_dims(int64_t dims) const {
    Tensor t = tensor;
    while (t.dim() - 1 < dims) t = t.unsqueeze(1);
    return t;
  }
};

// start + a b as [batches, m, n]. a is [batches or 1, m, k], b [batches or 1, k, n]; start is
// broadcast to the result.
Tensor sum_of(int64_t batches, const Tensor& start, const Tensor& a, const Tensor& b,
              const c10::Scalar& beta, const c10::Scalar& alpha) {
  const int64_t m = a.size(1), k = a.size(2), n = b.size(2);
  // One right factor for all batches: their rows form one matrix.
  if (a.size(0) == batches && b.size(0) == 1 && start.size(0) == 1 && start.size(1) == 1)
    return at::_ops::addmm::call(start.squeeze(0), a.reshape({a.size(0) * m, k}), b.squeeze(0),
                                 beta, alpha)
        .reshape({a.size(0), m, n});
  return at::_ops::baddbmm::call(start.expand({batches, m, n}), a.expand({batches, m, k}),
                                 b.expand({batches, k, n}), beta, alpha);
}

enum class Form : uint8_t { Mm, Mv, Bmm, Sum }; // addmm, addmv, baddbmm, addbmm

Tensor batched_sum(Form form, const Batched& self, const Batched& a, const Batched& b,
                   const c10::Scalar& beta, const c10::Scalar& alpha) {
  const Batched& factor = a.along ? a : b;
  const int64_t batches = (self.along ? self : factor).tensor.size(0);
  switch (form) {
    case Form::Mm: return sum_of(batches, self.with_dims(2), a.tensor, b.tensor, beta, alpha);
    case Form::Mv:
      return sum_of(batches, self.with_dims(1).unsqueeze(2), a.tensor, b.tensor.unsqueeze(2), beta,
                    alpha)
          .squeeze(2);
    case Form::Sum: {
      // One sum runs over the inner batches of each sample.
      const Tensor x = a.tensor.transpose(1, 2), &y = b.tensor;
      const int64_t k = y.size(1) * y.size(2);
      return sum_of(batches, self.with_dims(2), x.reshape({x.size(0), x.size(1), k}),
                    y.reshape({y.size(0), k, y.size(3)}), beta, alpha);
    }
    case Form::Bmm: break;
  }
  const auto flat = [&](const Tensor& t, int64_t first, int64_t m, int64_t n) {
    return t.expand({batches, first, m, n}).reshape({batches * first, m, n});
  };
  const int64_t first = a.tensor.size(1), m = a.tensor.size(2), k = a.tensor.size(3),
                n = b.tensor.size(3);
  const Tensor made =
      at::_ops::baddbmm::call(flat(self.with_dims(3), first, m, n), flat(a.tensor, first, m, k),
                              flat(b.tensor, first, k, n), beta, alpha);
  return made.reshape({batches, first, m, n});
}

class BatchedSums final : public c10::OperatorKernel {
 public:
  BatchedSums(const c10::OperatorHandle& op, Form form)
      : stock_(stock_kernel(op, kBatched)),
        form_(form) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const {
    const c10::IValue* arguments = &(*stack)[stack->size() - 5];
    if (!entry_beneath(arguments[1].toTensor())) return stock_.callBoxed(op, keys, stack);
    const Tensor start = arguments[0].toTensor(), x = arguments[1].toTensor(),
                 y = arguments[2].toTensor();
    constexpr std::array<int64_t, 4> kDims{2, 2, 3, 3}; // dimensions of the first factor, by form
    constexpr std::array<int64_t, 4> kMost{2, 1, 3, 2}; // most dimensions of self, by form
    const int64_t wanted = kDims[static_cast<size_t>(form_)];
    bool fits = one_format({start, x, y}) && x.dim() == wanted &&
        y.dim() == (form_ == Form::Mv ? 1 : wanted) &&
        start.dim() <= kMost[static_cast<size_t>(form_)];
    if (fits && wanted == 3) fits = x.size(0) == y.size(0) && x.size(2) == y.size(1);
    if (!fits) return stock_.callBoxed(op, keys, stack); // the stock kernel raises
    const int64_t level = at::functorch::maybeCurrentDynamicLayer()->layerId();
    Tensor made;
    {
      const c10::impl::ExcludeDispatchKeyGuard beneath(kBatched);
      const Batched self(start, level), a(x, level), b(y, level);
      // batched at an outer level
      if (!(self.along || a.along || b.along)) return op.callBoxed(stack);
      made = batched_sum(form_, self, a, b, arguments[3].toScalar(), arguments[4].toScalar());
    }
    const Tensor result = at::functorch::makeBatched(made, 0, level);
    torch::jit::drop(*stack, 5);
    stack->emplace_back(result);
  }

 private:
  StockKernel stock_;
  Form form_;
};

// Convolutions with batched weights or biases, where PyTorch adds the bias to a rounded
// convolution. Here a batch is a group of channels with its bias.
class BatchedConvolution final : public c10::OperatorKernel {
 public:
  explicit BatchedConvolution(const c10::OperatorHandle& op) : stock_(stock_kernel(op, kBatched)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const {
    constexpr size_t kArguments = 9;
    c10::IValue* arguments = &(*stack)[stack->size() - kArguments];
    if (!entry_beneath(arguments[0].toTensor()) || !arguments[2].isTensor())
      return stock_.callBoxed(op, keys, stack);
    const Tensor input = arguments[0].toTensor(), weight = arguments[1].toTensor(),
                 offsets = arguments[2].toTensor();
    const int64_t level = at::functorch::maybeCurrentDynamicLayer()->layerId(),
                  groups = arguments[8].toInt();
    // For batched inputs alone PyTorch makes one longer batch.
    const bool batched = is_along(weight, level) || is_along(offsets, level);
    if (!batched || !one_format({input, weight, offsets}) || input.dim() != weight.dim() ||
        offsets.dim() != 1)
      return stock_.callBoxed(op, keys, stack);
    {
      const c10::impl::ExcludeDispatchKeyGuard beneath(kBatched);
      const Batched x(input, level), w(weight, level), b(offsets, level);
      const int64_t batches = (w.along ? w : b).tensor.size(0);
      arguments[0] = fold_batches(x.tensor, 1, batches);
      arguments[1] = fold_batches(w.tensor, 0, batches);
      arguments[2] = fold_batches(b.tensor, 0, batches);
      arguments[8] = groups * batches;
      op.callBoxed(stack);
      const Tensor made = stack->back().toTensor();
      c10::DimVector sizes(made.sizes());
      sizes[1] /= batches;
      sizes.insert(sizes.begin() + 1, batches);
      stack->back() = made.reshape(sizes);
    }
    stack->back() = at::functorch::makeBatched(stack->back().toTensor(), 1, level);
  }

 private:
  static bool is_along(const Tensor& t, int64_t level) {
    return std::get<1>(at::functorch::unwrapTensorAtLevel(t, level)).has_value();
  }
  // Folds the leading batch dimension into `dim`, which becomes `batches` times as long.
  static Tensor fold_batches(const Tensor& t, int64_t dim, int64_t batches) {
    c10::DimVector sizes(t.sizes());
    sizes[0] = batches;
    const Tensor moved = t.expand(sizes).movedim(0, dim);
    sizes.erase(sizes.begin());
    sizes[dim] *= batches;
    return moved.reshape(sizes);
  }

  StockKernel stock_;
};

// linear as a sum with the bias, row by row. torch.func decomposes linear when it first sees it,
// for all transformations.
class TransformedLinear final : public c10::OperatorKernel {
 public:
  explicit TransformedLinear(const c10::OperatorHandle& op)
      : stock_(stock_kernel(op, kTransforms)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const {
    const c10::IValue* arguments = &(*stack)[stack->size() - 3];
    if (!entry_beneath(arguments[0].toTensor()) || !arguments[2].isTensor())
      return stock_.callBoxed(op, keys, stack);
    const Tensor x = arguments[0].toTensor(), w = arguments[1].toTensor(),
                 bias = arguments[2].toTensor();
    if (!linear_is_one_sum(x, w, bias)) return stock_.callBoxed(op, keys, stack);
    const Tensor made = linear_as_sum(x, w, bias);
    torch::jit::drop(*stack, 3);
    stack->emplace_back(made);
  }

 private:
  StockKernel stock_;
};

// vecdot and tensordot, which stock code decomposes into products and their sum.
class BatchedContraction final : public c10::OperatorKernel {
 public:
  explicit BatchedContraction(const c10::OperatorHandle& op) : stock_(stock_kernel(op, kBatched)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const {
    if (!run_contraction(op.schema().name(), stack)) stock_.callBoxed(op, keys, stack);
  }

 private:
  StockKernel stock_;
};

} // namespace

void register_batched_sums(torch::Library& front, torch::Library& rules) {
  const auto put = [](torch::Library& library, const char* name, const auto& make) {
    const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow((std::string("aten::") + name).c_str(), "");
    library.impl(name, torch::CppFunction::makeFromBoxedFunctor(make(op)));
  };
  const auto sums = [](Form form) {
    return
        [form](const c10::OperatorHandle& op) { return std::make_unique<BatchedSums>(op, form); };
  };
  const auto contraction = [](const c10::OperatorHandle& op) {
    return std::make_unique<BatchedContraction>(op);
  };
  put(rules, "addmm", sums(Form::Mm));
  put(rules, "addmv", sums(Form::Mv));
  put(rules, "baddbmm", sums(Form::Bmm));
  put(rules, "addbmm", sums(Form::Sum));
  put(rules, "convolution",
      [](const c10::OperatorHandle& op) { return std::make_unique<BatchedConvolution>(op); });
  put(rules, "linalg_vecdot", contraction);
  put(rules, "tensordot", contraction);
  put(front, "linear",
      [](const c10::OperatorHandle& op) { return std::make_unique<TransformedLinear>(op); });
}

} // namespace at::formats
