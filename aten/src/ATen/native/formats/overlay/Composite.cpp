// Composite operators whose stock code reads or allocates by the container's type. They are written
// anew from operators that keep the format, and are differentiable through them.
#include <ATen/FormatLibrary.h>
#include <ATen/native/formats/elementwise/Elementwise.h>
#include <ATen/native/formats/elementwise/FillInfinity.h>
#include <ATen/native/formats/operators/autograd/CastAutograd.h>
#include <ATen/native/formats/operators/boxed/StockFormula.h>

#include <ATen/WrapDimUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/PythonFallbackKernel.h>
#include <ATen/core/VariableHooksInterface.h>
#include <ATen/ops/_batch_norm_impl_index_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/_pad_circular_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/alpha_dropout_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/bincount_ops.h>
#include <ATen/ops/channel_shuffle_ops.h>
#include <ATen/ops/combinations_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/dropout_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/feature_alpha_dropout_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/feature_dropout_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/float_power.h>
#include <ATen/ops/linalg_cond_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/linalg_eigvalsh_ops.h>
#include <ATen/ops/linalg_slogdet_ops.h>
#include <ATen/ops/linalg_svdvals_ops.h>
#include <ATen/ops/log_sigmoid_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/new_zeros_ops.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/tensor_split_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/to_ops.h>
#include <ATen/ops/unflatten_dense_tensors_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/where.h>
#include <ATen/ops/where_compositeimplicitautograd_dispatch.h>

namespace at::formats {
namespace {

using at::Tensor;
using c10::Scalar;

// ---- where with a number: stock code makes it a tensor of the container's type ----

// A complex number makes the result complex. Then the tensor is cast to that type first, so that
// its gradient comes back real.
std::pair<Tensor, Tensor> alike(const Tensor& self, const Scalar& number) {
  const FormatEntry& entry = *entry_beneath(self);
  if (!number.isComplex()) return {self, encoded_number(number, entry)};
  const c10::ScalarType type = c10::toComplexType(entry.compute);
  const Tensor values = at::_ops::to_dtype::call(self, type, false, false, {});
  const at::AutoDispatchBelowADInplaceOrView guard;
  return {values, at::scalar_tensor(number, at::TensorOptions().device(self.device()).dtype(type))};
}

void expect_condition(const Tensor& condition) {
  const FormatEntry* entry = entry_beneath(condition);
  TORCH_CHECK(!entry, "where: expected a condition of bool, but got ", entry->name);
}

Tensor where_scalar_self(const Tensor& condition, const Scalar& self, const Tensor& other) {
  expect_condition(condition);
  if (!entry_beneath(other)) return at::compositeimplicitautograd::where(condition, self, other);
  const auto [tensor, number] = alike(other, self);
  return at::where(condition, number, tensor);
}
Tensor where_scalar_other(const Tensor& condition, const Tensor& self, const Scalar& other) {
  expect_condition(condition);
  if (!entry_beneath(self)) return at::compositeimplicitautograd::where(condition, self, other);
  const auto [tensor, number] = alike(self, other);
  return at::where(condition, tensor, number);
}

// ---- dropout with p = 1: stock code multiplies by a zero made from the operand's options ----

template <Tensor (*stock)(const Tensor&, double, bool)>
Tensor drop_out(const Tensor& input, double p, bool train) {
  const bool all = train && p == 1 && input.numel() != 0 && entry_beneath(input);
  return all ? at::_ops::mul_Tensor::call(input, encoded_number(0, *entry_beneath(input)))
             : stock(input, p, train);
}
template <Tensor& (*stock)(Tensor&, double, bool)>
Tensor& dropping_(Tensor& self, double p, bool train) {
  const bool all = train && p == 1 && self.numel() != 0 && entry_beneath(self);
  return all ? at::_ops::mul__Tensor::call(self, encoded_number(0, *entry_beneath(self)))
             : stock(self, p, train);
}

// ---- batch normalisation without elements: stock code needs the container's accumulation type
// ----

using BatchNorm = std::tuple<Tensor, Tensor, Tensor, Tensor, int64_t>;

BatchNorm batch_norm_impl_index(const Tensor& input, const std::optional<Tensor>& weight,
                                const std::optional<Tensor>& bias,
                                const std::optional<Tensor>& mean, const std::optional<Tensor>& var,
                                bool training, double momentum, double eps, bool cudnn) {
  const FormatEntry* entry = entry_beneath(input);
  if (!entry || input.numel() != 0) {
    return at::compositeimplicitautograd::_batch_norm_impl_index(input, weight, bias, mean, var,
                                                                 training, momentum, eps, cudnn);
  }
  // A clone, because the input's node in the graph belongs to another operator. Parameters get a
  // gradient of zeros through it.
  Tensor out = input.clone();
  if (weight && weight->defined()) out = at::_ops::mul_Tensor::call(out, weight->select(0, 0));
  if (bias && bias->defined()) out = at::_ops::add_Tensor::call(out, bias->select(0, 0), 1);
  const auto statistics = at::TensorOptions().device(input.device()).dtype(entry->compute);
  const Tensor none = at::empty({input.dim() > 1 ? input.size(1) : 0}, statistics);
  return {out, none, none.clone(), at::empty({0}, statistics.dtype(at::kByte)), 0};
}

// ---- out= of composites that allocate by the operand's options: stores the functional result ----

void refuse_derivative(const char* op, at::ArrayRef<Tensor> tensors) {
  if (!at::GradMode::is_enabled()) return;
  for (const Tensor& t : tensors) {
    TORCH_CHECK(!t.requires_grad(), op,
                "(): functions with out=... arguments don't support automatic differentiation, but "
                "one of the "
                "arguments requires grad.");
  }
}

Tensor& eigvalsh_out(const Tensor& self, c10::string_view triangle, Tensor& out) {
  refuse_derivative("linalg_eigvalsh", {self, out});
  return store(at::_ops::linalg_eigvalsh::call(self, triangle), out, {});
}
Tensor& svdvals_out(const Tensor& self, std::optional<c10::string_view> driver, Tensor& out) {
  refuse_derivative("linalg_svdvals", {self, out});
  return store(at::_ops::linalg_svdvals::call(self, driver), out, {});
}
Tensor& log_sigmoid_out(const Tensor& self, Tensor& out) {
  refuse_derivative("log_sigmoid", {self, out});
  return store(at::_ops::log_sigmoid::call(self), out, {self});
}
std::tuple<Tensor&, Tensor&> slogdet_out(const Tensor& self, Tensor& sign, Tensor& logabsdet) {
  refuse_derivative("linalg_slogdet", {self, sign, logabsdet});
  const auto [s, l] = at::_ops::linalg_slogdet::call(self);
  return {store(s, sign, {}), store(l, logabsdet, {})};
}

// ---- float_power, which computes in float64: wide formats have that container, and stock code
// would keep the format ----

Tensor cast_to_double(const Tensor& t) {
  const ExplicitDtypeGuard guard;
  return entry_beneath(t) ? at::_ops::to_dtype::call(t, at::kDouble, false, false, {}) : t;
}

Tensor float_power(const Tensor& self, const Tensor& exponent) {
  return at::float_power(cast_to_double(self), cast_to_double(exponent));
}
Tensor float_power_number(const Tensor& self, const Scalar& exponent) {
  return at::float_power(cast_to_double(self), exponent);
}
Tensor float_power_of_number(const Scalar& self, const Tensor& exponent) {
  return at::float_power(self, cast_to_double(exponent));
}

[[noreturn]] void refuse_float_power_in_place(const Tensor& self) {
  const FormatEntry* entry = entry_beneath(self);
  TORCH_CHECK(false, "float_power_: expected a base of float64, but got ",
              entry ? entry->name : self.dtype().name(),
              ". Use torch.float_power, whose result is float64.");
}
Tensor& float_power_(Tensor& self, const Tensor& exponent) {
  if (!entry_beneath(self)) return self.float_power_(cast_to_double(exponent));
  refuse_float_power_in_place(self);
}
Tensor& float_power_number_(Tensor& self, const Scalar&) {
  refuse_float_power_in_place(self);
}

// Checks out=, because the stock error would name the container.
Tensor& float64_of(Tensor& out) {
  const FormatEntry* entry = entry_beneath(out);
  TORCH_CHECK(!entry, "float_power: expected out of float64, but got torch.", entry->name,
              ". Omit out= and convert the result.");
  return out;
}
Tensor& float_power_out(const Tensor& self, const Tensor& exponent, Tensor& out) {
  return at::float_power_outf(cast_to_double(self), cast_to_double(exponent), float64_of(out));
}
Tensor& float_power_number_out(const Tensor& self, const Scalar& exponent, Tensor& out) {
  return at::float_power_outf(cast_to_double(self), exponent, float64_of(out));
}
Tensor& float_power_of_number_out(const Scalar& self, const Tensor& exponent, Tensor& out) {
  return at::float_power_outf(self, cast_to_double(exponent), float64_of(out));
}

// ---- tensor_split by a tensor, whose stock error would name the container ----

std::vector<Tensor> tensor_split(const Tensor& self, const Tensor& indices, int64_t dim) {
  const FormatEntry* entry = entry_beneath(indices);
  TORCH_CHECK(!entry, "tensor_split: expected tensor_indices_or_sections of int64, but got torch.",
              entry->name, ". Convert it with .long().");
  return at::compositeimplicitautograd::tensor_split(self, indices, dim);
}

// ---- combinations of no elements, which stock code makes from the operand's options ----

Tensor combinations(const Tensor& self, int64_t r, bool with_replacement) {
  if (r == 0 && self.dim() == 1) return self.new_empty({0});
  return at::compositeimplicitautograd::combinations(self, r, with_replacement);
}

// ---- parts without elements, which stock code makes from the operand's options ----

std::vector<Tensor> unflatten_dense_tensors(const Tensor& flat, at::TensorList tensors) {
  std::vector<Tensor> parts = at::compositeimplicitautograd::unflatten_dense_tensors(flat, tensors);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].numel() == 0) parts[i] = flat.new_empty(tensors[i].sizes());
  }
  return parts;
}

// ---- condition numbers: stock code stores infinities that no user wrote ----

template <typename Stock>
Tensor by_values(const Tensor& self, Stock&& stock) {
  const FormatEntry& entry = *entry_beneath(self);
  const ExplicitDtypeGuard guard;
  const Tensor zeros = stock(at::_ops::to_dtype::call(self, entry.compute, false, false, {}));
  return at::_ops::to_dtype::call(zeros, c10::formats::scalar_type(entry), false, false, {});
}

template <auto stock, typename Norm>
Tensor condition(const Tensor& self, Norm p) {
  return !entry_beneath(self)
      ? stock(self, p)
      : by_values(self, [&](const Tensor& values) { return stock(values, p); });
}

// ---- bincount: stock code adds weights of other dtypes than float32 in float64 ----

Tensor bincount(const Tensor& self, const std::optional<Tensor>& weights, c10::SymInt minlength) {
  const bool ours = weights && weights->defined() && entry_beneath(*weights);
  TORCH_CHECK(!is_format_tensor(self),
              "bincount: expected integers to count, but got a tensor of torch.",
              entry_of(self).name, ". Convert it with .long().");
  // A recorded cast, so that backward raises: there is no derivative.
  return at::_ops::bincount::call(self, ours ? cast_to_double(*weights) : weights, minlength);
}

// ---- torch.sparse.mm of two dense tensors: stock code adds a zero made from their options ----

Tensor sparse_mm(const Tensor& a, const Tensor& b) {
  return at::_ops::mm::call(a, b);
}

// ---- native_channel_shuffle: stock composite code has a size of -1, which is undefined without
// elements; PyTorch's CPU kernel has no such size ----

Tensor native_channel_shuffle(const Tensor& self, c10::SymInt groups) {
  return at::_ops::channel_shuffle::call(self, std::move(groups));
}

// ---- max, min, sort, topk, ...: the gradient goes to the selected elements ----

Tensor value_selecting_reduction_backward(const Tensor& grad, int64_t dim, const Tensor& indices,
                                          c10::SymIntArrayRef sizes, bool keepdim) {
  const bool unsqueeze = !keepdim && !sizes.empty();
  const Tensor source = unsqueeze ? grad.unsqueeze(dim) : grad;
  const Tensor index = unsqueeze ? indices.unsqueeze(dim) : indices;
  return at::scatter(at::_ops::new_zeros::call(grad, sizes, {}, {}, {}, {}), dim, index, source);
}

// ---- stock code makes its result from the input's options ----

Tensor pad_circular(const Tensor& self, c10::SymIntArrayRef pad) {
  const CompositeGuard stock_code;
  return at::compositeimplicitautograd::_pad_circular_symint(self, pad);
}

// ---- Tensor::backward in C++ and scripts: the engine takes a gradient of the container for a
// format tensor ----

void backward(const Tensor& self, at::TensorList inputs, const std::optional<Tensor>& gradient,
              std::optional<bool> retain_graph, bool create_graph) {
  std::optional<Tensor> own = gradient;
  if (own) own = gradient_of_dtype(*own, dtype_number(self));
  const BackwardGuard guard;
  at::impl::GetVariableHooks()->_backward(self, inputs, own, retain_graph, create_graph);
}

// The operator called by name; torch.promote_types does not use it. PyTorch looks both numbers up
// in a table that ends before a format's.
c10::ScalarType promote_types(c10::ScalarType a, c10::ScalarType b) {
  for (const c10::ScalarType type : {a, b}) {
    const auto number = static_cast<int>(type);
    TORCH_CHECK_TYPE(number >= 0 && number < static_cast<int>(c10::ScalarType::Undefined),
                     "promote_types: expected two stock dtypes, but got number ", number,
                     ". Use torch.promote_types.");
  }
  return c10::promoteTypes(a, b);
}

void register_composites(torch::Library& m) {
  namespace stock = at::compositeimplicitautograd;
  m.impl("dropout", &drop_out<&stock::dropout>);
  m.impl("alpha_dropout", &drop_out<&stock::alpha_dropout>);
  m.impl("feature_dropout", &drop_out<&stock::feature_dropout>);
  m.impl("feature_alpha_dropout", &drop_out<&stock::feature_alpha_dropout>);
  m.impl("dropout_", &dropping_<&stock::dropout_>);
  m.impl("alpha_dropout_", &dropping_<&stock::alpha_dropout_>);
  m.impl("feature_dropout_", &dropping_<&stock::feature_dropout_>);
  m.impl("feature_alpha_dropout_", &dropping_<&stock::feature_alpha_dropout_>);
  m.impl("_batch_norm_impl_index", &batch_norm_impl_index);
  m.impl("linalg_eigvalsh.out", &eigvalsh_out);
  m.impl("linalg_svdvals.out", &svdvals_out);
  m.impl("log_sigmoid.out", &log_sigmoid_out);
  m.impl("linalg_slogdet.out", &slogdet_out);
  m.impl("slogdet.out", &slogdet_out);
  m.impl("float_power.Tensor_Tensor", &float_power);
  m.impl("float_power.Tensor_Scalar", &float_power_number);
  m.impl("float_power.Scalar", &float_power_of_number);
  m.impl("float_power.Tensor_Tensor_out", &float_power_out);
  m.impl("float_power.Tensor_Scalar_out", &float_power_number_out);
  m.impl("float_power.Scalar_out", &float_power_of_number_out);
  m.impl("tensor_split.tensor_indices_or_sections", &tensor_split);
  m.impl("float_power_.Tensor", &float_power_);
  m.impl("float_power_.Scalar", &float_power_number_);
  m.impl("bincount", &bincount);
  m.impl("native_channel_shuffle", &native_channel_shuffle);
  m.impl("combinations", &combinations);
  m.impl("unflatten_dense_tensors", &unflatten_dense_tensors);
  using Order = const std::optional<Scalar>&;
  m.impl("linalg_cond",
         &condition<static_cast<Tensor (*)(const Tensor&, Order)>(&stock::linalg_cond), Order>);
  m.impl("linalg_cond.p_str",
         &condition<static_cast<Tensor (*)(const Tensor&, c10::string_view)>(&stock::linalg_cond),
                    c10::string_view>);
  m.impl("where.ScalarSelf", &where_scalar_self);
  m.impl("where.ScalarOther", &where_scalar_other);
  m.impl("value_selecting_reduction_backward", &value_selecting_reduction_backward);
  m.impl("_sparse_mm", &sparse_mm);
  m.impl("_pad_circular", &pad_circular);
  m.impl("_backward", &backward);
}

} // namespace

TD_REGISTER_COMPOSITE(register_composites)

// Operators without tensors take this key.
TORCH_LIBRARY_IMPL(aten, BackendSelect, m) {
  m.impl("promote_types", &promote_types);
}

} // namespace at::formats
