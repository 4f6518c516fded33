// Composite contractions (einsum, tensordot, vecdot, linear) under a policy that no stock kernel
// obeys. Each becomes one matrix product, whatever the layout of its operands and the length of its
// sums.
//
// Stock code multiplies element by element if there is one term or vectors are strided, adds up
// afterwards, and adds a strided batch's bias separately. Those are roundings that the policy does
// not have.
#include <ATen/native/formats/sums/Contractions.h>

#include <ATen/Accumulation.h>
#include <ATen/FormatLibrary.h>
#include <ATen/native/formats/elementwise/Elementwise.h>

#include <ATen/WrapDimUtils.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/conv_tbc_backward_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/convolution_backward_ops.h>
#include <ATen/ops/dot_ops.h>
#include <ATen/ops/einsum_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/ger_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/linear_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/matmul_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mul_ops.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <numeric>
#include <set>

namespace at::formats {
namespace {

namespace stock = at::compositeimplicitautograd;
using at::Tensor;
using Dims = c10::SmallVector<int64_t, 8>;

// The policy of operands that all have one format.
std::optional<Accumulation> one_policy(at::ArrayRef<Tensor> operands) {
  const FormatEntry* entry = one_format(operands);
  return entry ? std::optional(accumulation_of(*entry)) : std::nullopt;
}

// Whether the operands' policy needs this package's kernels.
bool by_own_kernels(at::ArrayRef<Tensor> operands) {
  const auto policy = one_policy(operands);
  return policy && policy->own_kernels();
}

int64_t product_of(c10::IntArrayRef sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

// ---- contractions by labels ----

struct Labelled {
  Tensor tensor;
  Dims labels; // one for each dimension, none twice
};

// Returns t with its dimensions in the order of `wanted`, and with new ones of size 1 for missing
// labels.
Tensor arrange(const Labelled& t, c10::IntArrayRef wanted) {
  Dims order;
  Tensor x = t.tensor;
  for (const int64_t label : wanted) {
    const auto found = std::find(t.labels.begin(), t.labels.end(), label);
    if (found == t.labels.end()) x = x.unsqueeze(-1);
    order.push_back(found == t.labels.end() ? x.dim() - 1 : found - t.labels.begin());
  }
  return x.permute(order);
}

bool has(const Labelled& t, int64_t label) {
  return std::find(t.labels.begin(), t.labels.end(), label) != t.labels.end();
}

// One batch of matrix products over the labels that both operands have and no one needs later.
// Labels of a single operand are summed up first.
Labelled contract_pair(Labelled a, Labelled b, const std::set<int64_t>& needed) {
  for (auto [t, other] : {std::pair{&a, &b}, {&b, &a}}) {
    for (size_t d = t->labels.size(); d-- > 0;) {
      if (has(*other, t->labels[d]) || needed.count(t->labels[d])) continue;
      t->tensor = t->tensor.sum(static_cast<int64_t>(d));
      t->labels.erase(t->labels.begin() + static_cast<int64_t>(d));
    }
  }
  Dims batch, left, right, summed;
  for (const int64_t label : a.labels) {
    Dims& shared = needed.count(label) ? batch : summed;
    (has(b, label) ? shared : left).push_back(label);
  }
  for (const int64_t label : b.labels) {
    if (!has(a, label)) right.push_back(label);
  }
  std::sort(summed.begin(), summed.end());
  const auto sizes = [](const Tensor& x, size_t first, size_t count) {
    return x.sizes().slice(first, count);
  };
  const auto join = [](std::initializer_list<c10::IntArrayRef> parts) {
    Dims all;
    for (const c10::IntArrayRef part : parts) all.append(part.begin(), part.end());
    return all;
  };
  Tensor x = arrange(a, join({batch, left, summed})), y = arrange(b, join({batch, summed, right}));
  // A size of 1 is broadcast to any other.
  Dims common, terms;
  for (size_t i = 0; i < batch.size(); ++i)
    common.push_back(x.size(i) == 1 ? y.size(i) : x.size(i));
  for (size_t i = 0; i < summed.size(); ++i) {
    const int64_t n = x.size(batch.size() + left.size() + i);
    terms.push_back(n == 1 ? y.size(batch.size() + i) : n);
  }
  const Dims rows(sizes(x, batch.size(), left.size())),
      columns(sizes(y, batch.size() + summed.size(), right.size()));
  const int64_t batches = product_of(common), m = product_of(rows), k = product_of(terms),
                n = product_of(columns);
  Labelled result{{}, join({batch, left, right})};
  if (left.empty() && right.empty() && summed.empty()) {
    result.tensor = at::_ops::mul_Tensor::call(x, y); // elementwise: there is nothing to add up
  } else {
    x = x.expand(join({common, rows, terms})).reshape({batches, m, k});
    y = y.expand(join({common, terms, columns})).reshape({batches, k, n});
    const Tensor z =
        batches == 1 ? at::_ops::mm::call(x.squeeze(0), y.squeeze(0)) : at::_ops::bmm::call(x, y);
    result.tensor = z.reshape(join({common, rows, columns}));
  }
  return result;
}

// ---- einsum ----

// Labels of the ellipsis's dimensions, counted from the last. The label of a letter is its code.
constexpr int64_t kEllipsis = 1000;

struct Equation {
  std::vector<Labelled> operands;
  Dims result;
};

// Whether the equation fits the operands; if not, the stock operator raises.
bool parse(const std::string& equation, at::TensorList tensors, Equation& parsed) {
  std::string text;
  std::copy_if(equation.begin(), equation.end(), std::back_inserter(text),
               [](char c) { return c != ' '; });
  const size_t arrow = text.find("->");
  std::string left = text.substr(0, arrow);
  int64_t widest = -1; // dimensions of the ellipsis
  std::map<int64_t, int64_t> sizes, counts;
  // The labels of one part: an operand's, or the result's (dims: -1).
  const auto labels_of = [&](const std::string& part, int64_t dims, Dims& labels) {
    const size_t dots = part.find("...");
    const std::string letters =
        dots == std::string::npos ? part : part.substr(0, dots) + part.substr(dots + 3);
    if (!std::all_of(letters.begin(), letters.end(),
                     [](unsigned char c) { return std::isalpha(c); }))
      return false;
    const int64_t own =
        dims < 0 ? std::max<int64_t>(widest, 0) : dims - static_cast<int64_t>(letters.size());
    if (own < 0 || (dots == std::string::npos && dims >= 0 && own != 0)) return false;
    for (size_t i = 0; i <= letters.size(); ++i) {
      if (i == dots) {
        for (int64_t e = own; e-- > 0;) labels.push_back(kEllipsis + e);
      }
      if (i < letters.size()) labels.push_back(static_cast<unsigned char>(letters[i]));
    }
    if (dims >= 0 && dots != std::string::npos) widest = std::max(widest, own);
    return true;
  };
  for (size_t i = 0; i < tensors.size(); ++i) {
    const size_t comma = left.find(',');
    if ((comma == std::string::npos) != (i + 1 == tensors.size())) return false;
    Labelled t{tensors[i], {}};
    if (!labels_of(left.substr(0, comma), t.tensor.dim(), t.labels)) return false;
    left = comma == std::string::npos ? "" : left.substr(comma + 1);
    for (size_t d = 0; d < t.labels.size(); ++d) {
      const int64_t size = t.tensor.size(static_cast<int64_t>(d));
      int64_t& seen = sizes.emplace(t.labels[d], size).first->second;
      if (seen != size && seen != 1 && size != 1) return false;
      seen = seen == 1 ? size : seen;
      ++counts[t.labels[d]];
    }
    for (size_t d = 0; d < t.labels.size(); ++d) { // a label that occurs twice means the diagonal
      for (size_t e = t.labels.size(); e-- > d + 1;) {
        if (t.labels[e] != t.labels[d]) continue;
        if (t.tensor.size(d) != t.tensor.size(e)) return false;
        const int64_t label = t.labels[d];
        t.tensor = t.tensor.diagonal(0, static_cast<int64_t>(d), static_cast<int64_t>(e))
                       .movedim(-1, static_cast<int64_t>(d));
        t.labels.erase(t.labels.begin() + static_cast<int64_t>(e));
        TORCH_INTERNAL_ASSERT(t.labels[d] == label);
      }
    }
    parsed.operands.push_back(std::move(t));
  }
  if (arrow == std::string::npos) {
    for (int64_t e = widest; e-- > 0;) parsed.result.push_back(kEllipsis + e);
    for (const auto& [label, count] : counts) {
      if (label < kEllipsis && count == 1) parsed.result.push_back(label);
    }
    return true;
  }
  if (!labels_of(text.substr(arrow + 2), -1, parsed.result)) return false;
  const std::set<int64_t> distinct(parsed.result.begin(), parsed.result.end());
  return distinct.size() == parsed.result.size() &&
      std::all_of(distinct.begin(), distinct.end(),
                  [&](int64_t l) { return counts.count(l) != 0; });
}

// Contracts pair by pair, in the order of the path, else from the left.
Tensor einsum(c10::string_view equation, at::TensorList tensors, at::OptionalIntArrayRef path) {
  Equation parsed;
  const bool fits = tensors.size() > 1 && by_own_kernels(tensors) &&
      (!path || path->size() == 2 * (tensors.size() - 1)) &&
      parse(std::string(equation), tensors, parsed);
  if (!fits) return stock::einsum(equation, tensors, path);
  std::vector<Labelled>& left = parsed.operands;
  for (size_t step = 0; left.size() > 1; ++step) {
    int64_t i = 0, j = 1;
    if (path) std::tie(i, j) = std::minmax((*path)[2 * step], (*path)[2 * step + 1]);
    if (i < 0 || i == j || j >= static_cast<int64_t>(left.size()))
      return stock::einsum(equation, tensors, path);
    const Labelled a = left[i], b = left[j];
    left.erase(left.begin() + j);
    left.erase(left.begin() + i);
    std::set<int64_t> needed(parsed.result.begin(), parsed.result.end());
    for (const Labelled& other : left) needed.insert(other.labels.begin(), other.labels.end());
    left.insert(path ? left.end() : left.begin(), contract_pair(a, b, needed));
  }
  return arrange(left[0], parsed.result);
}

// ---- other contractions, by labels ----

std::optional<Tensor> tensordot_by_labels(const Tensor& self, const Tensor& other,
                                          at::IntArrayRef dims_self, at::IntArrayRef dims_other) {
  if (dims_self.size() != dims_other.size()) return std::nullopt;
  Labelled a{self, {}}, b{other, {}};
  // The lower labels are contracted, in their order.
  int64_t label = static_cast<int64_t>(dims_self.size());
  std::set<int64_t> needed;
  a.labels.resize(self.dim(), -1);
  b.labels.resize(other.dim(), -1);
  for (size_t i = 0; i < dims_self.size(); ++i) {
    const int64_t d = at::maybe_wrap_dim(dims_self[i], self.dim()),
                  e = at::maybe_wrap_dim(dims_other[i], other.dim());
    const bool meet = self.dim() > 0 && other.dim() > 0 &&
        (self.size(d) == other.size(e) || self.size(d) == 1 || other.size(e) == 1);
    if (!meet || a.labels[d] >= 0 || b.labels[e] >= 0) return std::nullopt;
    a.labels[d] = b.labels[e] = static_cast<int64_t>(i);
  }
  for (Labelled* t : {&a, &b}) {
    for (int64_t& own : t->labels) {
      if (own < 0) needed.insert(own = label++);
    }
  }
  return contract_pair(a, b, needed).tensor;
}

// Contracts all dimensions of tensors with gaps. Stock code multiplies, rounds and then adds up;
// without gaps it takes one dot product.
std::optional<Tensor> whole_dot(const Tensor& self, const Tensor& other, at::IntArrayRef dims_self,
                                at::IntArrayRef dims_other) {
  const auto dims = static_cast<int64_t>(dims_self.size());
  if (self.dim() != dims || other.dim() != dims || dims_other.size() != dims_self.size() ||
      (self.is_contiguous() && other.is_contiguous()))
    return std::nullopt;
  const Tensor x = self.permute(dims_self), y = other.permute(dims_other);
  if (x.sizes() != y.sizes()) return std::nullopt;
  return at::_ops::dot::call(x.reshape(-1), y.reshape(-1));
}

std::optional<Tensor> vecdot_by_matmul(const Tensor& x, const Tensor& y, int64_t dim) {
  if (x.dim() == 0 || y.dim() == 0) return std::nullopt;
  const int64_t d = at::maybe_wrap_dim(dim, x.dim()), e = at::maybe_wrap_dim(dim, y.dim());
  if (x.size(d) != y.size(e)) return std::nullopt;
  return at::_ops::matmul::call(x.movedim(d, -1).unsqueeze(-2), y.movedim(e, -1).unsqueeze(-1))
      .squeeze(-1)
      .squeeze(-1);
}

Tensor linear(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias) {
  const bool own = bias && bias->defined() && by_own_kernels({input, weight, *bias}) &&
      linear_is_one_sum(input, weight, *bias);
  return own ? linear_as_sum(input, weight, *bias) : stock::linear(input, weight, bias);
}

// The gradient of mv's matrix: products of one term each, as in mm's gradient.
Tensor ger(const Tensor& self, const Tensor& other) {
  const Tensor operands[] = {self, other};
  const bool in_derivative = torch::autograd::get_current_node() != nullptr;
  if (!in_derivative || self.dim() != 1 || other.dim() != 1 || !by_own_kernels(operands))
    return stock::ger(self, other);
  return at::_ops::mm::call(self.unsqueeze(1), other.unsqueeze(0));
}

// Stock code adds up by kernel positions, and rounds after each.
std::tuple<Tensor, Tensor, Tensor> conv_tbc_backward(const Tensor& grad, const Tensor& input,
                                                     const Tensor& weight, const Tensor& bias,
                                                     int64_t pad) {
  const Tensor operands[] = {grad, input, weight};
  if (!by_own_kernels(operands)) return stock::conv_tbc_backward(grad, input, weight, bias, pad);
  const auto channels_second = [](const Tensor& t) { return t.permute({1, 2, 0}); };
  const int64_t ones[] = {1}, padding[] = {pad}, none[] = {0}, biases[] = {bias.numel()};
  const auto [of_input, of_weight, of_bias] = at::_ops::convolution_backward::call(
      channels_second(grad), channels_second(input), weight.permute({2, 1, 0}),
      c10::fromIntArrayRefSlow(biases), c10::fromIntArrayRefSlow(ones),
      c10::fromIntArrayRefSlow(padding), c10::fromIntArrayRefSlow(ones), false,
      c10::fromIntArrayRefSlow(none), 1, {true, true, true});
  return {of_input.permute({2, 0, 1}).contiguous(), of_weight.permute({2, 1, 0}).contiguous(),
          of_bias};
}

void register_contractions(torch::Library& m) {
  m.impl("conv_tbc_backward", &conv_tbc_backward);
  m.impl("einsum", &einsum);
  m.impl("linear", &linear);
  m.impl("ger", &ger);
}

} // namespace

const FormatEntry* one_format(at::ArrayRef<Tensor> operands) {
  const FormatEntry* entry = nullptr;
  for (const Tensor& t : operands) {
    const FormatEntry* own = entry_beneath(t);
    if (!own || (entry && own != entry)) return nullptr;
    entry = own;
  }
  return entry;
}

bool linear_is_one_sum(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const auto policy = one_policy({input, weight, bias});
  const bool fits = policy && bias.dim() <= 1 && weight.dim() == 2 && input.dim() > 0 &&
      input.size(-1) == weight.size(1);
  return fits &&
      (policy->own_kernels() || (bias.dim() == 1 && (input.dim() <= 2 || input.is_contiguous())));
}

Tensor linear_as_sum(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const c10::IntArrayRef leading = input.sizes().slice(0, input.dim() - 1);
  Dims sizes(leading);
  sizes.push_back(weight.size(0));
  const Tensor rows = input.reshape({product_of(leading), input.size(-1)});
  return at::_ops::addmm::call(bias, rows, weight.t(), 1, 1).reshape(sizes);
}

bool run_contraction(const std::string& name, torch::jit::Stack* stack) {
  const bool dots = name == "aten::tensordot", lines = name == "aten::linalg_vecdot";
  const bool writes = lines && !stack->empty() && stack->back().isTensor(); // out=
  const size_t count = dots || writes ? 4 : 3;
  if (!(dots || lines) || stack->size() < count) return false;
  const c10::IValue* arguments = stack->data() + stack->size() - count;
  if (!arguments[0].isTensor() || !arguments[1].isTensor()) return false;
  const Tensor a = arguments[0].toTensor(), b = arguments[1].toTensor();
  Tensor out = writes ? arguments[3].toTensor() : Tensor();
  const auto policy = writes ? one_policy({a, b, out}) : one_policy({a, b});
  const bool recorded = at::GradMode::is_enabled() &&
      (a.requires_grad() || b.requires_grad() || (writes && out.requires_grad()));
  if (!policy || (writes && recorded)) return false; // the stock operator raises
  const auto contract = policy->own_kernels() ? &tensordot_by_labels : &whole_dot;
  const auto result = dots ? contract(a, b, arguments[2].toIntVector(), arguments[3].toIntVector())
                           : vecdot_by_matmul(a, b, arguments[2].toInt());
  if (!result) return false;
  torch::jit::drop(*stack, count);
  stack->emplace_back(writes ? store(*result, out, {a, b}) : *result);
  return true;
}

TD_REGISTER_COMPOSITE(register_contractions)

} // namespace at::formats
