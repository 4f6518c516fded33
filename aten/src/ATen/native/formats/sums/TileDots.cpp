#include <ATen/native/formats/sums/TileDots.h>

#include <ATen/Parallel.h>
#include <ATen/native/formats/cpu/StepKernel.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

namespace at::formats {
namespace {

template <typename T>
bool is_product_exact(const Format& left, const Format& right) {
  const auto serves = [](const Format& f) {
    return std::is_same_v<T, float> ? f.arithmetic_in_float() : f.arithmetic_in_double();
  };
  return serves(left) && serves(right) &&
      left.significand_bits() + right.significand_bits() <= c10::formats::Machine<T>::fraction + 1;
}

// How the kernels add up, if the policy is one of theirs.
template <typename T>
std::optional<StepSums> kind_of_sums(const DotOperands<T>& dots, const StepFormats& formats,
                                     const Format& product, const Accumulation& policy) {
  using Numbers = c10::formats::MagicNumbers<T>;
  const Format& sum = formats.sum;
  if (policy.fused || policy.kahan || policy.instructions ||
      policy.order != Accumulation::Order::Sequential || formats.seen_products ||
      formats.seen_sums || c10::formats::is_stochastic(formats.result.rounding))
    return std::nullopt;
  const bool chunked = policy.kind == Accumulation::Kind::Chunked;
  if (chunked && (policy.outer || dots.present || dots.present_rows)) return std::nullopt;
  if (!is_product_exact<T>(formats.left, formats.right)) return std::nullopt;
  const bool in_machine = std::is_same_v<T, float> && c10::formats::is_binary32(sum),
             exact = policy.exact_product || !dots.a;
  if (in_machine && chunked) return std::nullopt;
  if (in_machine && exact) return StepSums::ExactMachine;
  if (policy.exact_product || !Numbers::serves(product)) return std::nullopt;
  if (in_machine) return StepSums::Machine;
  if (!Numbers::serves(sum) || !Numbers::serves_sums(sum)) return std::nullopt;
  if (product == sum) return StepSums::OneFormat;
  // Products must have no more digits than sums (as serves_sums() takes for granted), and be
  // multiples of their smallest number, so that no sum becomes -0.
  const bool holds = product.significand_bits() <= sum.significand_bits() &&
      product.lsb_exponent() >= sum.lsb_exponent();
  return holds ? std::optional(StepSums::TwoFormats) : std::nullopt;
}

// Computes the undecided sums among n of one row step by step. place: of the first in the result.
template <typename T>
void decide(SteppedSums<T>& steps, const DotOperands<T>& dots, int64_t place, int64_t n, T* sums) {
  const int64_t row = place / dots.n, first = row / dots.m * dots.k * dots.n + place % dots.n;
  int64_t lanes[kLanes], count = 0;
  for (int64_t j = 0; j < n; ++j)
    if (std::isnan(sums[j])) lanes[count++] = j;
  if (count == 0) return;
  const bool all = 2 * count > n; // then it does not pay to gather them
  if (all) count = n;
  T terms[kLanes];
  uint8_t present[kLanes];
  const auto gather = [&]<typename V>(const V* from, V* to) -> const V* {
    if (all) return from;
    for (int64_t i = 0; i < count; ++i) to[i] = from[lanes[i]];
    return to;
  };
  // Random words do not matter: no mode here draws any.
  steps.begin(dots.start ? gather(dots.start + place, terms) : nullptr, count, place,
              dots.batches * dots.m * dots.n);
  for (int64_t i = 0; i < dots.k; ++i) {
    if (dots.present_rows && !dots.present_rows[row * dots.k + i]) continue;
    const int64_t at = first + i * dots.n;
    const T* b = gather(dots.b + at, terms);
    if (dots.a) {
      steps.add_product(dots.a[row * dots.k + i], b,
                        dots.present ? gather(dots.present + at, present) : nullptr);
    } else {
      steps.add(b);
    }
  }
  steps.finish(terms);
  for (int64_t i = 0; i < count; ++i) sums[all ? i : lanes[i]] = terms[i];
}

} // namespace

template <typename T>
bool tile_dots(const CpuKernels& kernels, const DotOperands<T>& dots, const StepFormats& formats,
               const Accumulation& policy, char* codes) {
  using Numbers = c10::formats::MagicNumbers<T>;
  // Sums have no products, but the kernels multiply by 1.
  Format product = formats.product;
  if (!dots.a) {
    product = formats.right;
    product.rounding = Rounding::NearestEven;
  }
  const std::optional<StepSums> kind = kind_of_sums(dots, formats, product, policy);
  if (!kind) return false;
  const StepKernels& loops = step_kernels(kernels.name);
  const int64_t m = dots.m, k = dots.k, n = dots.n, width = formats.result.itemsize();
  const auto parts = [](int64_t all, int64_t some) { return (all + some - 1) / some; };
  const int64_t rows = parts(m, kStepRows);
  int64_t columns = std::min(kStepColumns, kLanes);
  while (columns > 32 && dots.batches * rows * parts(n, columns) < at::get_num_threads())
    columns /= 2;
  const int64_t blocks = parts(n, columns);
  // Small blocks are not worth a second thread.
  const int64_t work = std::max<int64_t>(1, k * std::min(m, kStepRows) * std::min(n, columns)),
                grain = std::max<int64_t>(1, (1 << 17) / work);
  at::parallel_for(0, dots.batches * rows * blocks, grain, [&](int64_t begin, int64_t end) {
    const auto sums = std::make_unique_for_overwrite<T[]>(kStepRows * kStepColumns);
    std::unique_ptr<SteppedSums<T>> steps;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t batch = task / (rows * blocks), row = task / blocks % rows * kStepRows,
                    column = task % blocks * columns;
      const StepBlock block{row, column, std::min(kStepRows, m - row),
                            std::min(columns, n - column)};
      loops.block(
          StepDots<T>{
              .m = m,
              .k = k,
              .n = n,
              .a = dots.a ? dots.a + batch * m * k : nullptr,
              .b = dots.b + batch * k * n,
              .start = dots.start ? dots.start + batch * m * n : nullptr,
              .present = dots.present ? dots.present + batch * k * n : nullptr,
              .present_rows = dots.present_rows ? dots.present_rows + batch * m * k : nullptr,
              .sums = *kind,
              .product = Numbers(product),
              .sum = Numbers(formats.sum),
              .chunk = policy.kind == Accumulation::Kind::Chunked ? policy.chunk : 0,
              .chunks_in_float = formats.chunks_in_float},
          block, sums.get());
      for (int64_t r = 0; r < block.rows; ++r) {
        T* of_row = sums.get() + r * kStepColumns;
        const int64_t place = (batch * m + row + r) * n + column;
        if (std::any_of(of_row, of_row + block.columns, [](T sum) { return std::isnan(sum); })) {
          if (!steps) steps = std::make_unique<SteppedSums<T>>(kernels, formats, policy);
          decide(*steps, dots, place, block.columns, of_row);
        }
        encode_result(kernels, formats.result, of_row, dots.divisor, codes + place * width,
                      block.columns, {formats.seed, 0}, formats.seen);
      }
    }
  });
  return true;
}

template bool tile_dots(const CpuKernels&, const DotOperands<float>&, const StepFormats&,
                        const Accumulation&, char*);
template bool tile_dots(const CpuKernels&, const DotOperands<double>&, const StepFormats&,
                        const Accumulation&, char*);

} // namespace at::formats
