#include <ATen/native/formats/Accumulate.h>

#include <ATen/FormatTensor.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/formats/ConvolutionDots.h>
#include <ATen/native/formats/DotProducts.h>
#include <ATen/native/formats/Elementwise.h>
#include <ATen/native/formats/overlay/BoxedCall.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/resize_ops.h>
#include <ATen/ops/to_ops.h>

#include <cmath>
#include <map>

namespace at::formats {
namespace {

using at::Tensor;
using torch::jit::Stack;

// The arguments of one call, read by their places in the schema.
struct Arguments {
  const Stack& stack;
  size_t base;
  const FormatEntry& entry;
  Accumulation policy;

  const c10::IValue& operator[](size_t i) const { return stack[base + i]; }
  Tensor tensor(size_t i) const { return (*this)[i].toTensor(); }
  Tensor optional_tensor(size_t i) const { return (*this)[i].isTensor() ? tensor(i) : Tensor(); }
  Tensor values(const Tensor& t) const { return decoded(t, dot_type(entry, policy)).contiguous(); }
  Tensor values(size_t i) const { return values(tensor(i)); }
};

void expect_dims(const Arguments& args, const char* op, std::initializer_list<int64_t> dims, size_t first = 0) {
  for (const int64_t d : dims) {
    TORCH_CHECK(args.tensor(first).dim() == d, op, ": expected argument ", first + 1, " with ", d, " dimensions, but got ", args.tensor(first).dim());
    ++first;
  }
}

Tensor shaped(const Tensor& t, c10::IntArrayRef sizes, const FormatEntry& entry) {
  return format_alias(bits_alias(t).reshape(sizes).contiguous(), entry);
}

// a [b, m, k] times b [b, k, n], both of the format.
Tensor product(const Arguments& args, const char* op, const Tensor& a, const Tensor& b, const Tensor& start = {}) {
  TORCH_CHECK(a.size(0) == b.size(0), op, ": expected batches of one size, but got ", a.size(0), " and ", b.size(0));
  TORCH_CHECK(a.size(2) == b.size(1), op, ": mat1 and mat2 shapes cannot be multiplied (", a.size(1), "x", a.size(2), " and ", b.size(1), "x",
              b.size(2), ")");
  DotProducts dots{args.values(a), args.values(b)};
  if (start.defined()) dots.start = args.values(start.expand({a.size(0), a.size(1), b.size(2)}));
  return dot_products(dots, args.entry, args.policy);
}

// beta * self + alpha * product. With both 1, self is what the accumulator starts with; else each operation rounds.
Tensor added(const Arguments& args, const char* op, const Tensor& a, const Tensor& b, size_t scalars, c10::IntArrayRef sizes) {
  const Tensor self = args.tensor(0);
  const double beta = args[scalars].toScalar().toDouble(), alpha = args[scalars + 1].toScalar().toDouble();
  c10::DimVector batched(sizes.begin(), sizes.end());
  if (batched.size() == 1) batched.push_back(1);
  if (batched.size() == 2) batched.insert(batched.begin(), 1);
  if (beta == 1 && alpha == 1) {
    const Tensor start = self.expand(sizes).reshape(batched);
    return shaped(product(args, op, a, b, start), sizes, args.entry);
  }
  Tensor result = shaped(product(args, op, a, b), sizes, args.entry);
  const Target target{args.entry, {}};
  if (alpha != 1) result = elementwise(BinaryOp::Mul, Operand::of(result), Operand::of(c10::Scalar(alpha)), target);
  if (beta == 0) return result;
  return elementwise(TernaryOp::Fma, Operand::of(c10::Scalar(beta)), Operand::of(self), Operand::of(result), 1, target);
}

Tensor mm(const Arguments& args) {
  expect_dims(args, "mm", {2, 2});
  return product(args, "mm", args.tensor(0).unsqueeze(0), args.tensor(1).unsqueeze(0)).squeeze(0);
}
Tensor bmm(const Arguments& args) {
  expect_dims(args, "bmm", {3, 3});
  return product(args, "bmm", args.tensor(0), args.tensor(1));
}
Tensor mv(const Arguments& args) {
  expect_dims(args, "mv", {2, 1});
  return product(args, "mv", args.tensor(0).unsqueeze(0), args.tensor(1).unsqueeze(0).unsqueeze(2)).squeeze(2).squeeze(0);
}
Tensor dot(const Arguments& args) {
  expect_dims(args, "dot", {1, 1});
  return product(args, "dot", args.tensor(0).view({1, 1, -1}), args.tensor(1).reshape({1, -1, 1})).squeeze();
}
Tensor addmm(const Arguments& args) {
  expect_dims(args, "addmm", {2, 2}, 1);
  const Tensor a = args.tensor(1), b = args.tensor(2);
  return added(args, "addmm", a.unsqueeze(0), b.unsqueeze(0), 3, {a.size(0), b.size(1)});
}
Tensor addmv(const Arguments& args) {
  expect_dims(args, "addmv", {2, 1}, 1);
  const Tensor a = args.tensor(1);
  return added(args, "addmv", a.unsqueeze(0), args.tensor(2).unsqueeze(0).unsqueeze(2), 3, {a.size(0)});
}
Tensor baddbmm(const Arguments& args) {
  expect_dims(args, "baddbmm", {3, 3}, 1);
  const Tensor a = args.tensor(1), b = args.tensor(2);
  return added(args, "baddbmm", a, b, 3, {a.size(0), a.size(1), b.size(2)});
}
// The batches' products are one sum: batch after batch.
Tensor addbmm(const Arguments& args) {
  expect_dims(args, "addbmm", {3, 3}, 1);
  const Tensor a = args.tensor(1), b = args.tensor(2);
  const Tensor rows = a.transpose(0, 1).reshape({1, a.size(1), -1}), columns = b.reshape({1, -1, b.size(2)});
  return added(args, "addbmm", rows, columns, 3, {a.size(1), b.size(2)});
}

// ---- sums ----

// The tensor to sum up: self, converted where dtype= names another format.
Tensor summand(const Arguments& args, size_t dtype) {
  if (!args[dtype].isInt()) return args.tensor(0);
  const FormatEntry* wanted = requested_format(static_cast<c10::ScalarType>(args[dtype].toInt()), args.entry);
  return wanted == &args.entry ? args.tensor(0) : to_format(args.tensor(0), *wanted);
}

Tensor reduced(const Arguments& args, const Tensor& self, c10::OptionalArrayRef<int64_t> dims, bool keep, bool mean) {
  const auto over = at::dim_list_to_bitset(dims.value_or(c10::IntArrayRef{}), self.dim());
  const bool all = !dims || dims->empty();
  c10::DimVector order, kept, sizes;
  int64_t count = 1, sums = 1;
  for (int64_t d = 0; d < self.dim(); ++d) {
    const bool sum = all || over[d];
    if (sum) {
      order.push_back(d);
      count *= self.size(d);
    } else {
      kept.push_back(d);
      sums *= self.size(d);
    }
    if (!sum || keep) sizes.push_back(sum ? 1 : self.size(d));
  }
  order.append(kept.begin(), kept.end());
  const FormatEntry& entry = entry_of(self);
  const Tensor b = decoded(self, dot_type(entry, args.policy)).permute(order).reshape({1, count, sums}).contiguous();
  DotProducts dots;
  dots.b = b;
  dots.divisor = mean ? count : 1;
  return shaped(dot_products(dots, entry, args.policy), sizes, entry);
}

c10::OptionalArray<int64_t> dims_of(const c10::IValue& v) {
  return v.isNone() ? c10::OptionalArray<int64_t>() : c10::OptionalArray<int64_t>(v.toIntVector());
}

template <bool mean>
Tensor reduce_all(const Arguments& args) {
  return reduced(args, summand(args, 1), {}, false, mean);
}
template <bool mean>
Tensor reduce_dims(const Arguments& args) {
  const auto dims = dims_of(args[1]);
  return reduced(args, summand(args, 3), dims.list ? c10::OptionalArrayRef<int64_t>(*dims.list) : c10::OptionalArrayRef<int64_t>(), args[2].toBool(),
                 mean);
}

Tensor cumsum(const Arguments& args) {
  const Tensor self = summand(args, 2);
  const FormatEntry& entry = entry_of(self);
  const int64_t dim = at::maybe_wrap_dim(args[1].toInt(), self.dim());
  if (self.dim() == 0) return self.clone();
  const int64_t k = self.size(dim);
  int64_t outer = 1, inner = 1;
  for (int64_t d = 0; d < self.dim(); ++d)
    if (d != dim) (d < dim ? outer : inner) *= self.size(d);
  const Tensor values = decoded(self, dot_type(entry, args.policy)).contiguous().view({outer, k, inner});
  return shaped(running_sums(values, entry, args.policy), self.sizes(), entry);
}

// ---- convolution ----

// Parameters from place `first` on: stride, padding, dilation, transposed, output_padding, groups.
Convolution convolution_of(const Arguments& args, size_t first, int64_t dims) {
  const auto list = [&](size_t i) {
    auto v = args[i].toIntVector();
    if (v.size() == 1) v.resize(dims, v[0]);
    TORCH_CHECK(static_cast<int64_t>(v.size()) == dims, "convolution: expected ", dims, " numbers in a parameter, but got ", v.size());
    return c10::SmallVector<int64_t, 3>(v.begin(), v.end());
  };
  return {list(first), list(first + 1), list(first + 2), list(first + 4), args[first + 3].toBool(), args[first + 5].toInt()};
}

Tensor convolution(const Arguments& args) {
  const Tensor x = args.tensor(0), w = args.tensor(1), bias = args.optional_tensor(2);
  TORCH_CHECK(x.dim() >= 3 && x.dim() == w.dim(), "convolution: expected input and weight of the same number of dimensions, but got ", x.sizes(),
              " and ", w.sizes());
  TORCH_CHECK(w.size(0) > 0 && w.size(1) > 0, "convolution: expected a weight with channels, but got one of size ", w.sizes());
  const Convolution conv = convolution_of(args, 3, x.dim() - 2);
  const int64_t channels = conv.transposed ? w.size(0) : w.size(1) * conv.groups;
  TORCH_CHECK(conv.groups > 0 && w.size(0) % conv.groups == 0 && x.size(1) == channels, "Given groups=", conv.groups, ", weight of size ", w.sizes(),
              ", expected input", x.sizes(), " to have ", channels, " channels, but got ", x.size(1), " channels instead");
  for (int64_t d = 2; d < x.dim(); ++d) {
    const int64_t stride = conv.stride[d - 2], dilation = conv.dilation[d - 2];
    TORCH_CHECK(stride > 0 && dilation > 0, "convolution: expected a stride and a dilation of at least 1, but got ", stride, " and ", dilation);
    TORCH_CHECK(conv.padding[d - 2] >= 0, "negative padding is not supported");
    TORCH_CHECK(!conv.transposed || (conv.output_padding[d - 2] >= 0 && conv.output_padding[d - 2] < std::max(stride, dilation)),
                "output padding must be smaller than either stride or dilation, but got ", conv.output_padding[d - 2]);
    TORCH_CHECK(conv.transposed || x.size(d) + 2 * conv.padding[d - 2] >= conv.dilation[d - 2] * (w.size(d) - 1) + 1,
                "Calculated padded input size is smaller than the kernel: input ", x.sizes(), ", weight ", w.sizes());
  }
  const int64_t outputs = conv.transposed ? w.size(1) * conv.groups : w.size(0);
  TORCH_CHECK(!bias.defined() || (bias.dim() == 1 && bias.size(0) == outputs), "convolution: expected a bias of ", outputs, " elements, but got ",
              bias.sizes());
  return convolution_dots(x, w, bias, conv, args.policy);
}

void convolution_backward(const Arguments& args, Stack& results) {
  const Tensor grad = args.tensor(0), x = args.tensor(1), w = args.tensor(2);
  const Convolution conv = convolution_of(args, 4, x.dim() - 2);
  const auto mask = args[10].toBoolList();
  Tensor input, weight, bias;
  if (mask[0]) input = convolution_input_dots(grad, w, x.sizes(), conv, args.policy);
  if (mask[1]) weight = convolution_weight_dots(grad, x, w.sizes(), conv, args.policy);
  if (mask[2]) {
    c10::DimVector dims{0};
    for (int64_t d = 2; d < grad.dim(); ++d) dims.push_back(d);
    bias = reduced(args, grad, c10::IntArrayRef(dims), false, false);
  }
  for (const Tensor& t : {input, weight, bias}) results.emplace_back(t);
}

// ---- attention ----

// softmax(scale * q k' + mask) v, each product by the policy; the scores are masked and normalised in the machine's type, which has the
// infinities that masks need. (The stock composite returns to the container's type.)
Tensor attention(const Arguments& args) {
  const Tensor q = args.tensor(0), v = args.tensor(2);
  Tensor k = args.tensor(1), values = v;
  if (args[7].toBool() && q.size(-3) != k.size(-3)) { // grouped queries
    k = k.repeat_interleave(q.size(-3) / k.size(-3), -3);
    values = v.repeat_interleave(q.size(-3) / v.size(-3), -3);
  }
  const double scale = args[6].isNone() ? 1 / std::sqrt(static_cast<double>(q.size(-1))) : args[6].toDouble();
  Tensor scores = q.matmul(k.transpose(-2, -1)).to(args.entry.compute).mul(scale);
  if (args[5].toBool()) {
    TORCH_CHECK(!args[3].isTensor(), "scaled_dot_product_attention: expected no attn_mask when is_causal=True");
    scores = scores.masked_fill(at::ones({q.size(-2), k.size(-2)}, scores.options().dtype(at::kBool)).tril().logical_not(), -INFINITY);
  } else if (args[3].isTensor()) {
    const Tensor mask = args.tensor(3);
    scores = mask.scalar_type() == at::kBool ? scores.masked_fill(mask.logical_not(), -INFINITY) : scores.add(mask.to(args.entry.compute));
  }
  Tensor weights = at::_safe_softmax(scores, -1, std::nullopt); // zeros for a row that is masked throughout
  if (args[4].toDouble() > 0) weights = at::dropout(weights, args[4].toDouble(), true);
  return at::_ops::to_dtype::call(weights, c10::formats::scalar_type(args.entry), false, false, {}).matmul(values);
}

// ---- the table ----

using Kernel = Tensor (*)(const Arguments&);

// By name and overload, without "out" and without the underscore of in-place ones.
const std::map<std::string, Kernel>& kernels() {
  static const std::map<std::string, Kernel> table = {{"mm", &mm},
                                                      {"bmm", &bmm},
                                                      {"mv", &mv},
                                                      {"dot", &dot},
                                                      {"vdot", &dot},
                                                      {"addmm", &addmm},
                                                      {"addmv", &addmv},
                                                      {"baddbmm", &baddbmm},
                                                      {"addbmm", &addbmm},
                                                      {"sum", &reduce_all<false>},
                                                      {"sum.dim_IntList", &reduce_dims<false>},
                                                      {"sum.IntList_out", &reduce_dims<false>},
                                                      {"mean", &reduce_all<true>},
                                                      {"mean.dim", &reduce_dims<true>},
                                                      {"mean.out", &reduce_dims<true>},
                                                      {"mean.dtype_out", &reduce_all<true>},
                                                      {"cumsum", &cumsum},
                                                      {"convolution", &convolution}};
  return table;
}

// Operators that add up products inside one stock kernel, for which there is no other.
bool is_refused(const std::string& name) {
  return name == "_native_multi_head_attention" || name == "_transformer_encoder_layer_fwd" || name == "_addmm_activation";
}

} // namespace

bool run_dot_operator(const c10::OperatorHandle& op, Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size(), base = stack->size() - count;
  const FormatEntry* entry = nullptr;
  for (size_t i = 0; i < count; ++i) {
    const c10::IValue& v = (*stack)[base + i];
    if (!v.isTensor() || !v.toTensor().defined() || schema.arguments()[i].name() == "attn_mask") continue;
    if (!is_format_tensor(v.toTensor())) return false;
    if (entry && entry != &entry_of(v.toTensor())) return false;
    entry = &entry_of(v.toTensor());
  }
  if (!entry) return false;
  const Accumulation policy = accumulation_of(*entry);
  if (!policy.own_kernels()) return false;
  const std::string name = base_name(schema.name());
  const std::string& overload = schema.overload_name();
  const bool in_place = schema.name().back() == '_';
  const bool other_dtype = overload.find("dtype") == 0 && name != "mean"; // products with out_dtype=
  TORCH_CHECK_NOT_IMPLEMENTED(
      !is_refused(name) && !other_dtype, schema.name(),
      ": expected the accumulation policy float32 or float64 for this fused operator, but got one that no stock kernel obeys. "
      "Turn the fused path off, for attention with torch.backends.mha.set_fastpath_enabled(False).");
  const Arguments args{*stack, base, *entry, policy};
  Stack results;
  if (name == "scaled_dot_product_attention") {
    results.emplace_back(attention(args));
  } else if (name == "convolution_backward") {
    if (!overload.empty()) return false;
    const at::AutoDispatchBelowADInplaceOrView guard;
    convolution_backward(args, results);
  } else {
    auto found = kernels().find(overload.empty() ? name : name + "." + overload);
    if (found == kernels().end() && overload == "out") found = kernels().find(name);
    if (found == kernels().end()) return false; // named dimensions
    const bool sums = name == "sum" || name == "mean" || name == "cumsum";
    if (sums) {
      const size_t dtype = count - 1 - (schema.is_mutable() && !in_place); // before out
      const c10::IValue& asked = args[dtype];
      if (args.tensor(0).numel() == 0) return false; // stock knows what nothing adds up to
      if (asked.isInt() && !requested_format(static_cast<c10::ScalarType>(asked.toInt()), *entry)) return false;
    }
    const at::AutoDispatchBelowADInplaceOrView guard;
    Tensor result = found->second(args);
    if (schema.is_mutable()) {
      Tensor out = args.tensor(!in_place ? count - 1 : 0);
      if (out.sizes() != result.sizes()) {
        TORCH_CHECK(!in_place, schema.name(), ": expected a tensor of size ", result.sizes(), ", but got ", out.sizes());
        at::_ops::resize_::call(out, c10::fromIntArrayRefSlow(result.sizes()), {});
      }
      at::_ops::copy_::call(out, result, false);
      result = out;
    }
    results.emplace_back(result);
  }
  torch::jit::drop(*stack, count);
  stack->insert(stack->end(), results.begin(), results.end());
  return true;
}

} // namespace at::formats
