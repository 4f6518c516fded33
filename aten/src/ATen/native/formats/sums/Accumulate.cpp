#include <ATen/native/formats/sums/Accumulate.h>

#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/native/formats/elementwise/Elementwise.h>
#include <ATen/native/formats/sums/DotProducts.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/to_ops.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

namespace at::formats::accumulated {
namespace {

Tensor values(const Sums& sums, const Tensor& t) {
  return decoded(t, dot_type(sums.entry, sums.policy)).contiguous();
}

void expect_dims(
    const char* op,
    std::initializer_list<std::pair<std::reference_wrapper<const Tensor>, int64_t>> operands,
    int place = 1) {
  for (const auto& [t, dims] : operands) {
    TORCH_CHECK(t.get().dim() == dims, op, ": expected argument ", place, " with ", dims,
                " dimensions, but got ", t.get().dim());
    ++place;
  }
}

Tensor shaped(const Tensor& t, c10::IntArrayRef sizes, const FormatEntry& entry) {
  return format_alias(bits_alias(t).reshape(sizes).contiguous(), entry);
}

void expect_factors(const char* op, const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.size(0) == b.size(0), op, ": expected batches of one size, but got ", a.size(0),
              " and ", b.size(0));
  TORCH_CHECK(a.size(2) == b.size(1), op, ": mat1 and mat2 shapes cannot be multiplied (",
              a.size(1), "x", a.size(2), " and ", b.size(1), "x", b.size(2), ")");
}

// a [b, m, k] times b [b, k, n], both of the format.
Tensor product(const Sums& sums, const char* op, const Tensor& a, const Tensor& b,
               const Tensor& start = {}) {
  expect_factors(op, a, b);
  DotProducts dots{values(sums, a), values(sums, b)};
  if (start.defined()) dots.start = values(sums, start.expand({a.size(0), a.size(1), b.size(2)}));
  return dot_products(dots, sums.entry, sums.policy);
}

// Splits a number into numbers of `width` bits, leading bits first, that add up to it. 0 is one
// piece.
c10::SmallVector<double, 4> pieces_of(double number, int width) {
  c10::SmallVector<double, 4> pieces;
  do {
    int exponent = 0;
    const double fraction = std::frexp(number, &exponent),
                 piece = std::ldexp(std::trunc(std::ldexp(fraction, width)), exponent - width);
    pieces.push_back(piece);
    number -= piece;
  } while (number != 0);
  return pieces;
}

bool power_of_two(double number) {
  int exponent = 0;
  return std::isfinite(number) && std::abs(std::frexp(number, &exponent)) == 0.5;
}

// Splits number * t into exact multiples of t's values. If a value is not finite, all multiples but
// the first are 0 there.
std::vector<Tensor> multiples(const char* op, const char* name, const Tensor& t,
                              const Scalar& number, const FormatEntry& entry) {
  const double factor = number.toDouble();
  const int width = 53 - entry.format.significand_bits();
  const bool power = power_of_two(factor);
  TORCH_CHECK(std::isfinite(factor) && (width > 0 || power || factor == 0), "accumulate: ", op,
              " under \"exact\": expected finite ", name,
              width > 0 ? "" : " that is a power of two", ", but got ", factor,
              ". Multiply a tensor by it first.");
  const Tensor finite = t.isfinite();
  std::vector<Tensor> made;
  for (const double piece :
       power ? c10::SmallVector<double, 4>{factor} : pieces_of(factor, width)) {
    const Tensor product =
        made.empty() ? t.mul(piece) : t.mul(piece).masked_fill(finite.logical_not(), 0);
    // Below 2^-1022 a product would lose digits; above 2^1023 it overflows.
    const Tensor lost = finite.logical_and(t.ne(0)).logical_and(
        product.abs().lt(0x1p-1022).logical_or(product.isfinite().logical_not()));
    TORCH_CHECK(t.is_meta() || piece == 0 || !lost.any().item<bool>(), "accumulate: ", op,
                " under \"exact\": expected ", name,
                " whose products with the operand float64 holds exactly, but got ", factor,
                ". Multiply a tensor by it first.");
    made.push_back(product);
  }
  return made;
}

// The exact sum of beta * self and alpha * product, rounded once. Multiples that float64 does not
// hold at once become more terms.
Tensor add_exactly(const Sums& sums, const char* op, const Tensor& start, const Tensor& a,
                   const Tensor& b, const Scalar& beta, const Scalar& alpha) {
  const auto wide = [](const Tensor& t) { return decoded(t, c10::ScalarType::Double); };
  std::vector<Tensor> left = multiples(op, "alpha", wide(a), alpha, sums.entry), right{wide(b)};
  const Tensor finite_right = right[0].masked_fill(right[0].isfinite().logical_not(), 0);
  right.resize(left.size(), finite_right);
  std::vector<Tensor> starts;
  if (start.defined()) starts = multiples(op, "beta", wide(start).contiguous(), beta, sums.entry);
  // Further multiples of the start are terms, each times 1 in its column, some columns at a time.
  const int64_t n = b.size(2), step = starts.size() > 1 ? 64 : std::max<int64_t>(n, 1);
  const Tensor ones = at::eye(std::min(step, n), right[0].options());
  std::vector<Tensor> made;
  for (int64_t first = 0; first == 0 || first < n; first += step) {
    const int64_t columns = std::min(step, n - first);
    std::vector<Tensor> rows = left, some;
    for (const Tensor& t : right) some.push_back(t.narrow(2, first, columns));
    for (size_t i = 1; i < starts.size(); ++i) {
      rows.push_back(starts[i].narrow(2, first, columns));
      some.push_back(
          ones.narrow(0, 0, columns).narrow(1, 0, columns).expand({b.size(0), columns, columns}));
    }
    DotProducts dots{at::cat(rows, 2).contiguous(), at::cat(some, 1).contiguous()};
    if (!starts.empty()) dots.start = starts[0].narrow(2, first, columns).contiguous();
    dots.any_numbers = true;
    made.push_back(bits_alias(dot_products(dots, sums.entry, sums.policy)));
  }
  return format_alias(at::cat(made, 2), sums.entry);
}

// beta * self + alpha * product. With both 1, the accumulator starts at self. Otherwise the policy
// "exact" rounds the whole exact sum once. Under other policies the machine's type computes the
// rest from the accumulator's number, and the result is rounded once.
Tensor add_product(const Sums& sums, const char* op, const Tensor& self, const Tensor& a,
                   const Tensor& b, const Scalar& beta, const Scalar& alpha,
                   c10::IntArrayRef sizes) {
  c10::DimVector batched(sizes.begin(), sizes.end());
  if (batched.size() == 1) batched.push_back(1);
  if (batched.size() == 2) batched.insert(batched.begin(), 1);
  const bool starts = beta.toDouble() != 0;
  const Tensor start = starts ? self.expand(sizes).reshape(batched) : Tensor();
  if (alpha.toDouble() == 1 && (!starts || beta.toDouble() == 1))
    return shaped(product(sums, op, a, b, start), sizes, sums.entry);
  expect_factors(op, a, b);
  if (sums.policy.kind == Accumulation::Kind::Exact)
    return shaped(add_exactly(sums, op, start, a, b, beta, alpha), sizes, sums.entry);
  Tensor result =
      unrounded_dot_products({values(sums, a), values(sums, b)}, sums.entry, sums.policy)
          .mul(alpha.toDouble());
  if (starts) result = result.add(decoded(start, c10::ScalarType::Double).mul(beta.toDouble()));
  return shaped(encoded(result, sums.entry), sizes, sums.entry);
}

} // namespace

Tensor mm(const Sums& sums, const Tensor& a, const Tensor& b) {
  expect_dims("mm", {{a, 2}, {b, 2}});
  return product(sums, "mm", a.unsqueeze(0), b.unsqueeze(0)).squeeze(0);
}
Tensor bmm(const Sums& sums, const Tensor& a, const Tensor& b) {
  expect_dims("bmm", {{a, 3}, {b, 3}});
  return product(sums, "bmm", a, b);
}
Tensor mv(const Sums& sums, const Tensor& a, const Tensor& x) {
  expect_dims("mv", {{a, 2}, {x, 1}});
  return product(sums, "mv", a.unsqueeze(0), x.unsqueeze(0).unsqueeze(2)).squeeze(2).squeeze(0);
}
Tensor dot(const Sums& sums, const Tensor& x, const Tensor& y) {
  expect_dims("dot", {{x, 1}, {y, 1}});
  return product(sums, "dot", x.view({1, 1, -1}), y.reshape({1, -1, 1})).squeeze();
}
Tensor addmm(const Sums& sums, const Tensor& self, const Tensor& a, const Tensor& b,
             const Scalar& beta, const Scalar& alpha) {
  expect_dims("addmm", {{a, 2}, {b, 2}}, 2);
  return add_product(sums, "addmm", self, a.unsqueeze(0), b.unsqueeze(0), beta, alpha,
                     {a.size(0), b.size(1)});
}
Tensor addr(const Sums& sums, const Tensor& self, const Tensor& x, const Tensor& y,
            const Scalar& beta, const Scalar& alpha) {
  expect_dims("addr", {{x, 1}, {y, 1}}, 2);
  return add_product(sums, "addr", self, x.view({1, -1, 1}), y.view({1, 1, -1}), beta, alpha,
                     {x.size(0), y.size(0)});
}
Tensor addmv(const Sums& sums, const Tensor& self, const Tensor& a, const Tensor& x,
             const Scalar& beta, const Scalar& alpha) {
  expect_dims("addmv", {{a, 2}, {x, 1}}, 2);
  return add_product(sums, "addmv", self, a.unsqueeze(0), x.unsqueeze(0).unsqueeze(2), beta, alpha,
                     {a.size(0)});
}
Tensor baddbmm(const Sums& sums, const Tensor& self, const Tensor& a, const Tensor& b,
               const Scalar& beta, const Scalar& alpha) {
  expect_dims("baddbmm", {{a, 3}, {b, 3}}, 2);
  return add_product(sums, "baddbmm", self, a, b, beta, alpha, {a.size(0), a.size(1), b.size(2)});
}
// The products of all batches form one sum, batch after batch.
Tensor addbmm(const Sums& sums, const Tensor& self, const Tensor& a, const Tensor& b,
              const Scalar& beta, const Scalar& alpha) {
  expect_dims("addbmm", {{a, 3}, {b, 3}}, 2);
  const Tensor rows = a.transpose(0, 1).reshape({1, a.size(1), -1}),
               columns = b.reshape({1, -1, b.size(2)});
  return add_product(sums, "addbmm", self, rows, columns, beta, alpha, {a.size(1), b.size(2)});
}

Tensor product_into(const Sums& sums, const Tensor& a, const Tensor& b, const Tensor& start) {
  expect_dims("matmul", {{a, 3}, {b, 3}});
  TORCH_CHECK(a.size(0) == b.size(0) && a.size(2) == b.size(1),
              "matmul: expected factors of sizes [b, m, k] and [b, k, n], but got ", a.sizes(),
              " and ", b.sizes());
  const auto exact_values = [](const Tensor& t) {
    return decoded(t, c10::ScalarType::Double).contiguous();
  };
  DotProducts dots{exact_values(a), exact_values(b)};
  dots.left = &entry_of(a);
  dots.right = &entry_of(b);
  if (start.defined()) dots.start = exact_values(start.expand({a.size(0), a.size(1), b.size(2)}));
  return dot_products(dots, sums.entry, sums.policy);
}

Tensor subtract_product(const Sums& sums, const Tensor& start, const Tensor& a, const Tensor& b) {
  expect_factors("subtract_product", a, b);
  DotProducts dots{values(sums, a).neg(), values(sums, b)};
  dots.start = values(sums, start.expand({a.size(0), a.size(1), b.size(2)}));
  return dot_products(dots, sums.entry, sums.policy);
}

// ---- sums ----

namespace {

// The tensor to sum up: self, converted if dtype= names another format.
Tensor summand(const Sums& sums, const Tensor& self, std::optional<c10::ScalarType> dtype) {
  if (!dtype) return self;
  const FormatEntry* wanted = requested_format(*dtype, sums.entry);
  return wanted == &sums.entry ? self : to_format(self, *wanted);
}

Tensor reduce(const Sums& sums, const Tensor& self, c10::OptionalArrayRef<int64_t> dims, bool keep,
              Divided divided) {
  const auto over = at::dim_list_to_bitset(dims.value_or(c10::IntArrayRef{}), self.dim());
  const bool all = !dims || dims->empty();
  c10::DimVector order, kept, sizes;
  int64_t count = 1, results = 1;
  for (int64_t d = 0; d < self.dim(); ++d) {
    const bool sum = all || over[d];
    if (sum) {
      order.push_back(d);
      count *= self.size(d);
    } else {
      kept.push_back(d);
      results *= self.size(d);
    }
    if (!sum || keep) sizes.push_back(sum ? 1 : self.size(d));
  }
  order.append(kept.begin(), kept.end());
  const FormatEntry& entry = entry_of(self);
  const Tensor b = decoded(self, dot_type(entry, sums.policy))
                       .permute(order)
                       .reshape({1, count, results})
                       .contiguous();
  DotProducts dots;
  dots.b = b;
  dots.divisor = divided == Divided::ByCount ? count : 1;
  return shaped(dot_products(dots, entry, sums.policy), sizes, entry);
}

} // namespace

Tensor reduce_all(const Sums& sums, const Tensor& self, std::optional<c10::ScalarType> dtype,
                  Divided divided) {
  return reduce(sums, summand(sums, self, dtype), {}, false, divided);
}
Tensor reduce_dims(const Sums& sums, const Tensor& self, c10::OptionalArrayRef<int64_t> dims,
                   bool keep, std::optional<c10::ScalarType> dtype, Divided divided) {
  return reduce(sums, summand(sums, self, dtype), dims, keep, divided);
}

Tensor cumsum(const Sums& sums, const Tensor& tensor, int64_t along,
              std::optional<c10::ScalarType> dtype) {
  const Tensor self = summand(sums, tensor, dtype);
  const FormatEntry& entry = entry_of(self);
  const int64_t dim = at::maybe_wrap_dim(along, self.dim());
  if (self.dim() == 0) return self.clone();
  const int64_t k = self.size(dim);
  int64_t outer = 1, inner = 1;
  for (int64_t d = 0; d < self.dim(); ++d)
    if (d != dim) (d < dim ? outer : inner) *= self.size(d);
  const Tensor rows =
      decoded(self, dot_type(entry, sums.policy)).contiguous().view({outer, k, inner});
  return shaped(running_sums(rows, entry, sums.policy), self.sizes(), entry);
}

// ---- convolution ----

namespace {

// Repeats a single number for every dimension.
Convolution spread_parameters(Convolution conv, int64_t dims) {
  for (auto* list : {&conv.stride, &conv.padding, &conv.dilation, &conv.output_padding}) {
    if (list->size() == 1) list->resize(dims, (*list)[0]);
    TORCH_CHECK(static_cast<int64_t>(list->size()) == dims, "convolution: expected ", dims,
                " numbers in a parameter, but got ", list->size());
  }
  return conv;
}

} // namespace

Tensor convolution(const Sums& sums, const Tensor& x, const Tensor& w, const Tensor& bias,
                   const Convolution& parameters) {
  TORCH_CHECK(x.dim() >= 3 && x.dim() == w.dim(),
              "convolution: expected input and weight of the same number of dimensions, but got ",
              x.sizes(), " and ", w.sizes());
  TORCH_CHECK(w.size(0) > 0 && w.size(1) > 0,
              "convolution: expected a weight with channels, but got one of size ", w.sizes());
  const Convolution conv = spread_parameters(parameters, x.dim() - 2);
  const int64_t channels = conv.transposed ? w.size(0) : w.size(1) * conv.groups;
  TORCH_CHECK(conv.groups > 0 && w.size(0) % conv.groups == 0 && x.size(1) == channels,
              "Given groups=", conv.groups, ", weight of size ", w.sizes(), ", expected input",
              x.sizes(), " to have ", channels, " channels, but got ", x.size(1),
              " channels instead");
  for (int64_t d = 2; d < x.dim(); ++d) {
    const int64_t stride = conv.stride[d - 2], dilation = conv.dilation[d - 2];
    TORCH_CHECK(stride > 0 && dilation > 0,
                "convolution: expected a stride and a dilation of at least 1, but got ", stride,
                " and ", dilation);
    TORCH_CHECK(conv.padding[d - 2] >= 0, "negative padding is not supported");
    TORCH_CHECK(!conv.transposed ||
                    (conv.output_padding[d - 2] >= 0 &&
                     conv.output_padding[d - 2] < std::max(stride, dilation)),
                "output padding must be smaller than either stride or dilation, but got ",
                conv.output_padding[d - 2]);
    TORCH_CHECK(
        conv.transposed ||
            x.size(d) + 2 * conv.padding[d - 2] >= conv.dilation[d - 2] * (w.size(d) - 1) + 1,
        "Calculated padded input size is smaller than the kernel: input ", x.sizes(), ", weight ",
        w.sizes());
  }
  const int64_t outputs = conv.transposed ? w.size(1) * conv.groups : w.size(0);
  TORCH_CHECK(!bias.defined() || (bias.dim() == 1 && bias.size(0) == outputs),
              "convolution: expected a bias of ", outputs, " elements, but got ", bias.sizes());
  return convolution_dots(x, w, bias, conv, sums.policy);
}

std::array<Tensor, 3> convolution_backward(const Sums& sums, const Tensor& grad, const Tensor& x,
                                           const Tensor& w, const Convolution& parameters,
                                           const std::array<bool, 3>& wanted) {
  const Convolution conv = spread_parameters(parameters, x.dim() - 2);
  std::array<Tensor, 3> grads;
  if (wanted[0]) grads[0] = convolution_input_dots(grad, w, x.sizes(), conv, sums.policy);
  if (wanted[1]) grads[1] = convolution_weight_dots(grad, x, w.sizes(), conv, sums.policy);
  if (wanted[2]) {
    c10::DimVector dims{0};
    for (int64_t d = 2; d < grad.dim(); ++d) dims.push_back(d);
    grads[2] = reduce(sums, grad, c10::IntArrayRef(dims), false, Divided::ByOne);
  }
  return grads;
}

// ---- attention ----

// Casts to the compute type itself, even if that is the container. The guard also tells the cast
// from autocast's own.
static Tensor in_compute_type(const Tensor& t, const FormatEntry& entry) {
  const ExplicitDtypeGuard explicit_dtype;
  return at::_ops::to_dtype::call(t, entry.compute, false, false, {});
}

// Gives each group of the query's heads its own head of a key or value.
static Tensor repeat_heads(const Tensor& t, int64_t heads) {
  const int64_t own = t.size(-3);
  TORCH_CHECK_VALUE(own > 0 && heads % own == 0,
                    "expected a number of query heads that is a multiple of key's and value's with "
                    "enable_gqa=True, but got ",
                    heads, " and ", own, "; give heads that divide");
  return own == heads ? t : t.repeat_interleave(heads / own, -3);
}

// softmax(scale * q k' + mask) v, each product by the policy. Scores are masked and normalised in
// the machine's type, which has the infinities that masks need. (The stock composite would return
// to the container's type.)
Tensor attention(const Sums& sums, const Tensor& q, const Tensor& key, const Tensor& value,
                 const std::optional<Tensor>& mask, double dropout, bool causal,
                 std::optional<double> scaling, bool grouped) {
  const Tensor k = grouped ? repeat_heads(key, q.size(-3)) : key;
  const Tensor v = grouped ? repeat_heads(value, q.size(-3)) : value;
  const double scale = scaling ? *scaling : 1 / std::sqrt(static_cast<double>(q.size(-1)));
  Tensor scores = in_compute_type(q.matmul(k.transpose(-2, -1)), sums.entry).mul(scale);
  if (causal) {
    TORCH_CHECK(!mask, "scaled_dot_product_attention: expected no attn_mask when is_causal=True");
    scores = scores.masked_fill(
        at::ones({q.size(-2), k.size(-2)}, scores.options().dtype(at::kBool)).tril().logical_not(),
        -INFINITY);
  } else if (mask) {
    scores = mask->scalar_type() == at::kBool ? scores.masked_fill(mask->logical_not(), -INFINITY)
                                              : scores.add(in_compute_type(*mask, sums.entry));
  }
  // A fully masked row gives zeros.
  Tensor weights = at::_safe_softmax(scores, -1, std::nullopt);
  if (dropout > 0) weights = at::dropout(weights, dropout, true);
  return at::_ops::to_dtype::call(weights, c10::formats::scalar_type(sums.entry), false, false, {})
      .matmul(v);
}

} // namespace at::formats::accumulated
