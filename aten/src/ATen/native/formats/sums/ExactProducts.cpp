// Exact products by stock matrix products, whose order of additions is unknown. No addition rounds
// if all products are multiples of one power of two, and their sums less than 2^53 times that.
// Operands with too many digits are cut into parts, as in Ozaki, Ogita, Oishi, Rump, "Error-free
// transformations of matrix multiplication", Numerical Algorithms 59(1), 2012. The products of the
// parts are added exactly.
#include <ATen/native/formats/sums/ExactProducts.h>

#include <ATen/Parallel.h>
#include <ATen/ops/bmm_ops.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

namespace at::formats {
namespace {

using c10::formats::Format;

constexpr int kDigits = 53, kMostProducts = 6;
constexpr int kMostDigits = 124; // of a sum's parts together, so that 128 bits hold it
// The number of terms from which several products, and their exact sum, beat the terms one by one.
constexpr int64_t kLeastTerms = 32;
// Products of powers of two up to this exponent, and magic numbers, are well within float64.
constexpr int kFarthest = 400;

// Describes numbers that are multiples of 2^last, of magnitudes up to 2^top. Zeros do not count.
struct Span {
  int top{-(1 << 20)}, last{1 << 20};

  bool empty() const { return last > top; }
  int digits() const { return empty() ? 0 : top - last; }
  bool near() const { return empty() || (top < kFarthest && last > -kFarthest); }
  Span with(const Span& other) const {
    return {std::max(top, other.top), std::min(last, other.last)};
  }
};

// The span of numbers on the CPU; nothing if one is not finite.
std::optional<Span> span_of(const at::Tensor& numbers) {
  const double* x = numbers.const_data_ptr<double>();
  struct Found {
    Span span;
    bool finite{true};
  };
  const Found all = at::parallel_reduce(
      0, numbers.numel(), 1 << 15, Found{},
      [&](int64_t begin, int64_t end, Found found) {
        for (int64_t i = begin; i < end; ++i) {
          const auto bits = std::bit_cast<uint64_t>(x[i]);
          const int field = static_cast<int>(bits >> 52 & 0x7ff);
          const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
          found.finite &= field != 0x7ff;
          if ((bits << 1) == 0) continue;
          // For a subnormal number this last place is wrong, but far below all that is used.
          const int zeros = std::countr_zero(fraction | uint64_t{1} << 52);
          found.span = found.span.with({field - 1022, field - 1075 + zeros});
        }
        return found;
      },
      [](const Found& a, const Found& b) {
        return Found{a.span.with(b.span), a.finite && b.finite};
      });
  return all.finite ? std::optional(all.span) : std::nullopt;
}

std::optional<Span> span_of(const at::Tensor& numbers, const Format& f) {
  if (numbers.is_cpu()) return span_of(numbers);
  return Span{f.max_exponent() + 1, f.lsb_exponent()}; // without waiting for the GPU
}

int share(int digits, int parts) {
  return (digits + parts - 1) / parts;
}

// Cuts numbers into parts, highest digits first; each part spans share(span.digits(), parts).
std::vector<at::Tensor> cut_into_parts(at::Tensor numbers, const Span& span, int parts) {
  std::vector<at::Tensor> all;
  for (int below = parts - 1; below > 0; --below) {
    // Adding and subtracting it rounds to that place.
    const double magic =
        std::ldexp(1.5, kDigits - 1 + span.last + below * share(span.digits(), parts));
    const at::Tensor high = numbers.add(magic).sub_(magic);
    numbers = numbers.sub(high);
    all.push_back(high);
  }
  all.push_back(numbers);
  return all;
}

struct Split {
  int left, right;
};

// The fewest products of parts that leave `spared` digits for the sums.
std::optional<Split> split_for(int left, int right, int spared) {
  for (int products = 1; products <= kMostProducts; ++products) {
    for (int i = 1; i <= products; ++i) {
      if (products % i == 0 && share(left, i) + share(right, products / i) + spared <= kDigits)
        return Split{i, products / i};
    }
  }
  return std::nullopt;
}

} // namespace

ExactParts exact_parts(const DotProducts& dots, const FormatEntry& entry) {
  if (dots.present.defined() || dots.present_rows.defined()) return {};
  const Format f = format_of_terms(dots, entry);
  const int64_t k = dots.b.size(1);
  const std::optional<Span> left = dots.a.defined() ? span_of(dots.a, f) : Span{1, 0},
                            right = span_of(dots.b, f);
  const std::optional<Span> first = dots.start.defined() ? span_of(dots.start, f) : Span{};
  if (!left || !right || !first || !left->near() || !right->near() || !first->near()) return {};
  const int carries = std::bit_width(static_cast<uint64_t>(k));
  const std::optional<Split> parts = split_for(left->digits(), right->digits(), carries);
  const bool seen = dots.b.is_cpu(); // else there may be an infinity, which a cut turns into NaN
  if (!parts ||
      (parts->left * parts->right > 1 && (k < kLeastTerms || (!seen && f.has_infinity()))))
    return {};
  const bool none = left->empty() || right->empty();
  const Span all =
      (none ? Span{} : Span{left->top + right->top + carries, left->last + right->last})
          .with(*first);
  if (all.digits() > kMostDigits) return {};

  ExactParts found{{}, all.empty() ? 0 : all.last};
  const std::vector<at::Tensor> lefts =
      dots.a.defined() ? cut_into_parts(dots.a, *left, parts->left) : std::vector<at::Tensor>(1);
  const std::vector<at::Tensor> rights = cut_into_parts(dots.b, *right, parts->right);
  for (const at::Tensor& a : lefts) {
    for (const at::Tensor& b : rights) {
      found.sums.push_back(a.defined() ? at::_ops::bmm::call(a, b) : b.sum(1, /*keepdim=*/true));
    }
  }
  if (dots.start.defined()) found.sums.push_back(dots.start);
  return found;
}

} // namespace at::formats
