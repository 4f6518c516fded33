#include <ATen/native/formats/operators/facts/TouchedElements.h>

#include <ATen/ExpandUtils.h>
#include <ATen/FormatRounding.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/native/formats/operators/boxed/BoxedCall.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>

#include <algorithm>

namespace at::formats {
namespace {

using at::Tensor;
using torch::jit::Stack;

// The written places, each once, and for each index the number of its place.
struct Distinct {
  Tensor unique, inverse;
};

// Whether running on the written places pays: finding them is a sort, and a small tensor is decoded
// sooner.
bool pays(int64_t indices, int64_t places, const Tensor& self) {
  // UpDown moves every number that it rounds, so untouched elements must not be rounded.
  if (rounding_format(entry_of(self)).rounding == Rounding::UpDown) return indices > 0;
  // Looking at indices waits for a GPU.
  return !self.device().is_cuda() && indices > 0 && 4 * indices <= places && self.numel() >= 4096;
}

bool is_index(const Tensor& t) {
  const auto type = t.scalar_type();
  return !is_format_tensor(t) && computes(t.device()) &&
      (type == c10::ScalarType::Long || type == c10::ScalarType::Int);
}

// Indices from 0 to n - 1 (from -n if they wrap), or nothing.
std::optional<Tensor> within(const Tensor& index, int64_t n, bool wraps) {
  if (index.numel() == 0) return std::nullopt;
  Tensor at = index.to(c10::ScalarType::Long);
  if (wraps) at = at::where(at.lt(0), at.add(n), at);
  if (at.min().item<int64_t>() < 0 || at.max().item<int64_t>() >= n) return std::nullopt;
  return at;
}

Distinct distinct(const Tensor& index) {
  auto [unique, inverse, counts] =
      at::_unique2(index, /*sorted=*/true, /*return_inverse=*/true, /*return_counts=*/false);
  return {unique, inverse};
}

// One call on the elements that it writes: a copy of the stack in which self and the indices are
// replaced.
class TouchedCall {
 public:
  TouchedCall(const c10::OperatorHandle& op, const Plan& plan, Stack* stack)
      : op_(op),
        plan_(plan),
        stack_(stack),
        base_(stack->size() - plan.arguments.size()),
        call_(stack->begin() + static_cast<int64_t>(base_), stack->end()) {}

  c10::IValue& operator[](size_t i) { return call_[i]; }
  Tensor tensor(size_t i) const { return call_[i].toTensor(); }

  // The operator's result, as codes; undefined if it has another dtype.
  Tensor run(const FormatEntry& entry) {
    const BoxedCall boxed(plan_, &call_);
    op_.callBoxed(&call_);
    boxed.finish(1, &call_);
    const Tensor result = call_.back().toTensor();
    return is_format_tensor(result) && &entry_of(result) == &entry ? bits_alias(result) : Tensor();
  }

  // Replaces the arguments by the tensor of these codes, or by self.
  bool finish(const Tensor& codes, const Tensor& self, const FormatEntry& entry) {
    const Tensor result = writes() ? self : format_alias(codes, entry);
    torch::jit::drop(*stack_, plan_.arguments.size());
    stack_->emplace_back(result);
    return true;
  }

  bool writes() const { return plan_.arguments[0].written; }

 private:
  const c10::OperatorHandle& op_;
  const Plan& plan_;
  Stack* stack_;
  size_t base_;
  Stack call_;
};

// The codes to write to: self's own, or a copy.
Tensor target_of(const TouchedCall& call, const Tensor& self) {
  const Tensor codes = bits_alias(self);
  return call.writes() ? codes : codes.clone();
}

bool run_index_lines(TouchedCall& call, const Tensor& self) {
  const FormatEntry& entry = entry_of(self);
  if (!call[1].isInt() || self.dim() == 0) return false;
  const int64_t asked = call[1].toInt();
  if (asked < -self.dim() || asked >= self.dim()) return false;
  const int64_t dim = at::maybe_wrap_dim(asked, self.dim()), n = self.size(dim);
  const Tensor index = call.tensor(2);
  if (!is_index(index) || index.dim() > 1 || !pays(index.numel(), n, self)) return false;
  const auto at = within(index, n, /*wraps=*/true);
  // index_fill is the only one that takes negative indices
  if (!at || (call[3].isTensor() && call.tensor(3).dim() > 0 && index.min().item<int64_t>() < 0))
    return false;
  const Distinct where = distinct(*at);
  call[0] = format_alias(bits_alias(self).index_select(dim, where.unique), entry);
  call[2] = where.inverse;
  const Tensor lines = call.run(entry);
  if (!lines.defined()) return false;
  Tensor codes = target_of(call, self);
  codes.index_copy_(dim, where.unique, lines);
  return call.finish(codes, self, entry);
}

// Elements of the flattened tensor: `index`, the argument at `place`, is replaced.
bool run_flat(TouchedCall& call, const Tensor& self, const Tensor& flat, size_t place) {
  const FormatEntry& entry = entry_of(self);
  const Distinct where = distinct(flat);
  call[0] = format_alias(bits_alias(self).take(where.unique), entry);
  call[place] = where.inverse;
  const Tensor elements = call.run(entry);
  if (!elements.defined()) return false;
  Tensor codes = target_of(call, self);
  codes.put_(where.unique, elements);
  return call.finish(codes, self, entry);
}

bool run_put(TouchedCall& call, const Tensor& self) {
  const Tensor index = call.tensor(1);
  if (!is_index(index) || call.tensor(2).numel() != index.numel() ||
      !pays(index.numel(), self.numel(), self))
    return false;
  const auto at = within(index, self.numel(), /*wraps=*/true);
  return at && run_flat(call, self, *at, 1);
}

bool run_scatter(TouchedCall& call, const Tensor& self) {
  const Tensor index = call.tensor(2);
  const int64_t asked = call[1].toInt(), dims = self.dim();
  if (dims == 0 || index.dim() != dims || asked < -dims || asked >= dims || !is_index(index) ||
      !pays(index.numel(), self.numel(), self))
    return false;
  const int64_t dim = at::maybe_wrap_dim(asked, dims);
  const auto at = within(index, self.size(dim), /*wraps=*/false);
  if (!at) return false;
  Tensor source = call[3].isTensor() ? call.tensor(3) : Tensor(), flat = at->clone();
  if (source.defined() && source.dim() != dims) return false;
  int64_t stride = 1; // in a contiguous tensor of self's sizes
  for (int64_t d = dims; d-- > 0;) {
    const int64_t n = index.size(d);
    if ((d != dim && n > self.size(d)) || (source.defined() && n > source.size(d))) return false;
    c10::DimVector sizes(dims, 1);
    sizes[d] = n;
    if (d == dim) {
      flat.add_(*at, stride - 1);
    } else {
      flat.add_(at::arange(n, at->options()).view(sizes), stride);
    }
    if (source.defined()) source = source.narrow(d, 0, n);
    stride *= self.size(d);
  }
  call[1] = int64_t{0};
  if (source.defined()) call[3] = source.reshape({-1});
  return run_flat(call, self, flat.reshape({-1}), 2);
}

// The indices of index_put: one tensor for each indexed dimension.
struct Subscript {
  c10::DimVector dims;
  std::vector<Tensor> indices; // broadcast to one size
  c10::DimVector sizes;        // that size

  // Reads the indices; returns whether they are valid in PyTorch.
  bool read(const c10::IValue& list, const Tensor& self) {
    int64_t d = 0;
    for (const std::optional<Tensor>& t : list.toOptionalTensorVector()) {
      if (!t || !t->defined()) {
        ++d;
        continue;
      }
      const bool mask =
          t->scalar_type() == c10::ScalarType::Bool || t->scalar_type() == c10::ScalarType::Byte;
      if (is_format_tensor(*t) || !computes(t->device()) || (mask && t->dim() == 0) ||
          (!mask && !is_index(*t)))
        return false;
      const int64_t taken = mask ? t->dim() : 1;
      if (d + taken > self.dim()) return false;
      if (mask && t->sizes() != self.sizes().slice(d, taken)) return false;
      const std::vector<Tensor> parts = mask ? t->nonzero().unbind(1) : std::vector<Tensor>{*t};
      for (const Tensor& part : parts) {
        const auto at = within(part, self.size(d), /*wraps=*/true);
        if (!at) return false;
        dims.push_back(d++);
        indices.push_back(*at);
      }
    }
    for (const Tensor& t : indices) {
      if (!at::are_expandable(sizes, t.sizes())) return false;
      sizes = at::infer_size_dimvector(sizes, t.sizes());
    }
    return !dims.empty();
  }

  bool adjacent() const {
    return dims.back() - dims.front() + 1 == static_cast<int64_t>(dims.size());
  }
};

bool run_index_put(TouchedCall& call, const Tensor& self) {
  const FormatEntry& entry = entry_of(self);
  Subscript at;
  if (self.numel() == 0 || !at.read(call[1], self)) return false;
  int64_t places = 1, count = 1;
  for (const int64_t d : at.dims) places *= self.size(d);
  for (const int64_t n : at.sizes) count *= n;
  if (!pays(count, places, self)) return false;
  // The indexed dimensions come first, then the rest; in the values too.
  c10::DimVector order = at.dims, shape, front;
  const int64_t first = at.adjacent() ? at.dims[0] : 0, own = static_cast<int64_t>(at.sizes.size());
  for (int64_t d = 0, rest = 0; d < self.dim(); ++d) {
    if (std::find(at.dims.begin(), at.dims.end(), d) != at.dims.end()) continue;
    order.push_back(d);
    shape.push_back(self.size(d));
    // The dimension's index among the values' dimensions.
    front.push_back(rest < first ? rest : rest + own);
    ++rest;
  }
  shape.insert(shape.begin() + first, at.sizes.begin(), at.sizes.end());
  Tensor values = call.tensor(2);
  if (!at::is_expandable_to(values.sizes(), shape)) return false;
  for (int64_t d = own; d-- > 0;) front.insert(front.begin(), first + d);
  values = values.expand(shape).permute(front);
  Tensor flat = at.indices[0].expand(at.sizes);
  for (size_t i = 1; i < at.dims.size(); ++i)
    flat = flat.mul(self.size(at.dims[i])).add(at.indices[i]);
  const Distinct where = distinct(flat);
  torch::List<std::optional<Tensor>> subscripts;
  int64_t below = places;
  for (const int64_t d : at.dims) {
    below /= self.size(d);
    subscripts.push_back(where.unique.div(below, "floor").remainder(self.size(d)));
  }
  call[0] = format_alias(bits_alias(self).permute(order).index(subscripts).contiguous(), entry);
  torch::List<std::optional<Tensor>> single;
  single.push_back(where.inverse);
  call[1] = single;
  call[2] = values;
  const Tensor lines = call.run(entry);
  if (!lines.defined()) return false;
  const Tensor codes = target_of(call, self);
  codes.permute(order).index_put_(subscripts, lines);
  return call.finish(codes, self, entry);
}

bool run_embedding_backward(TouchedCall& call, const Tensor& grad) {
  const FormatEntry& entry = entry_of(grad);
  const Tensor indices = call.tensor(1);
  const int64_t rows = call[2].toInt(), padding = call[3].toInt();
  if (grad.dim() == 0 || rows < 1 || !is_index(indices) || 4 * indices.numel() > rows ||
      !zero_is_code_zero(entry.format))
    return false;
  const auto at = within(indices, rows, /*wraps=*/false);
  if (!at) return false;
  const Distinct where = distinct(*at);
  const Tensor padded = where.unique.eq(padding).nonzero();
  call[1] = where.inverse;
  call[2] = where.unique.numel();
  call[3] = padded.numel() > 0 ? padded[0].item<int64_t>() : int64_t{-1};
  const Tensor lines = call.run(entry);
  if (!lines.defined()) return false;
  c10::DimVector sizes(lines.sizes());
  sizes[0] = rows;
  const Tensor result = empty_format(sizes, entry, grad.device());
  Tensor codes = bits_alias(result);
  codes.zero_().index_copy_(0, where.unique, lines);
  return call.finish(codes, grad, entry);
}

template <bool (*run)(TouchedCall& call, const Tensor& self)>
bool run_on_touched(const c10::OperatorHandle& op, const Plan& plan, Stack* stack) {
  const size_t base = stack->size() - plan.arguments.size();
  const c10::IValue& first = (*stack)[base];
  if (!first.isTensor() || !is_format_tensor(first.toTensor())) return false;
  const Tensor self = first.toTensor();
  if (!computes(self.device()) || at::has_internal_overlap(self) == at::MemOverlap::Yes)
    return false;
  bool apart = true; // shares no memory with operands, which are on the same device
  for (size_t i = 1; i < plan.arguments.size(); ++i) {
    each_tensor(plan.arguments[i].slot, (*stack)[base + i], [&](const Tensor& t) {
      apart = apart && (!t.defined() || (t.device() == self.device() && !t.is_alias_of(self)));
    });
  }
  if (!apart) return false;
  const at::AutoDispatchBelowADInplaceOrView guard;
  TouchedCall call(op, plan, stack);
  return run(call, self);
}

} // namespace

bool run_on_lines(const c10::OperatorHandle& op, const Plan& plan, Stack* stack) {
  return run_on_touched<&run_index_lines>(op, plan, stack);
}
bool run_on_elements(const c10::OperatorHandle& op, const Plan& plan, Stack* stack) {
  return run_on_touched<&run_put>(op, plan, stack);
}
bool run_on_places(const c10::OperatorHandle& op, const Plan& plan, Stack* stack) {
  return run_on_touched<&run_scatter>(op, plan, stack);
}
bool run_on_indexed(const c10::OperatorHandle& op, const Plan& plan, Stack* stack) {
  return run_on_touched<&run_index_put>(op, plan, stack);
}
bool run_on_rows(const c10::OperatorHandle& op, const Plan& plan, Stack* stack) {
  return run_on_touched<&run_embedding_backward>(op, plan, stack);
}

} // namespace at::formats
