#include <ATen/native/formats/GpuSums.h>

#include <ATen/native/formats/ExactProducts.h>
#include <ATen/native/formats/GpuKernels.h>
#include <ATen/native/formats/StepSums.h>
#include <ATen/ops/stack.h>

namespace at::formats {
namespace {

template <typename T>
const T* data_or_null(const at::Tensor& t) {
  return t.defined() ? t.const_data_ptr<T>() : nullptr;
}

template <typename T>
cuda::Dots<T> operands(const DotProducts& dots) {
  return {
      .shape = {dots.b.size(0), dots.a.defined() ? dots.a.size(1) : 1, dots.b.size(1), dots.b.size(2)},
      .a = data_or_null<T>(dots.a),
      .b = dots.b.const_data_ptr<T>(),
      .start = data_or_null<T>(dots.start),
      .present = data_or_null<uint8_t>(dots.present),
      .present_rows = data_or_null<uint8_t>(dots.present_rows),
  };
}

cuda::StepPolicy step_policy(const FormatEntry& entry, const Accumulation& policy, const Format& result, int64_t divisor, c10::Device device) {
  const StepFormats formats(entry, policy, device);
  return {
      .product = formats.product,
      .sum = formats.sum,
      .outer = formats.outer,
      .result = result,
      .fused = policy.fused,
      .kahan = policy.kahan,
      .exact_product = policy.exact_product,
      .rounds_chunks = policy.outer != nullptr,
      .chunk = policy.kind == Accumulation::Kind::Chunked ? policy.chunk : 0,
      .chunks_in_float = formats.chunks_in_float,
      .order = policy.order,
      .lanes = policy.lanes,
      .divisor = divisor,
      .seed = formats.seed,
  };
}

void expect_formats(const Gpu& gpu, const cuda::StepPolicy& steps) {
  for (const Format& f : {steps.product, steps.sum, steps.result}) gpu.expect(f);
  if (steps.rounds_chunks) gpu.expect(steps.outer);
}

// Calls body with the type of decoded values.
template <typename Body>
void with_type(const at::Tensor& values, const Body& body) {
  values.scalar_type() == c10::ScalarType::Float ? body(float{}) : body(double{});
}

} // namespace

void dot_products_on_gpu(const DotProducts& dots, const FormatEntry& entry, const Accumulation& policy, const Format& result, const at::Tensor& out) {
  const Gpu gpu(out.device(), "dot products");
  gpu.expect(entry.format);
  void* codes = out.mutable_data_ptr();
  if (policy.kind == Accumulation::Kind::Exact) {
    const RandomWords words = next_words(result, {}, out.device());
    if (const ExactParts parts = exact_parts(dots, entry); !parts.sums.empty()) {
      const at::Tensor terms = at::stack(parts.sums);
      const cuda::Dots<double> sums{{1, 1, terms.size(0), out.numel()}, nullptr, terms.const_data_ptr<double>(), nullptr, nullptr, nullptr};
      return gpu.check(gpu->exact(c10::formats::float_format(11, 52), result, sums, dots.divisor, codes, words, gpu.stream()));
    }
    return gpu.check(gpu->exact(format_of_terms(dots, entry), result, operands<double>(dots), dots.divisor, codes, words, gpu.stream()));
  }
  const cuda::StepPolicy steps = step_policy(entry, policy, result, dots.divisor, out.device());
  expect_formats(gpu, steps);
  with_type(dots.b, [&](auto number) { gpu.check(gpu->steps(steps, operands<decltype(number)>(dots), codes, gpu.stream())); });
}

void block_sums_on_gpu(const DotProducts& dots, const BlockJob& job, const at::Tensor& out) {
  const Gpu gpu(out.device(), "sums by blocks of products");
  for (const Format& f : {job.left, job.right, job.result.format}) gpu.expect(f);
  const cuda::BlockPolicy policy{job.adder, job.result.format, dots.divisor, job.result.seed};
  gpu.check(gpu->blocks(policy, operands<double>(dots), out.mutable_data_ptr(), gpu.stream()));
}

void running_block_sums_on_gpu(const at::Tensor& values, const BlockJob& job, const at::Tensor& out) {
  const Gpu gpu(out.device(), "sums by blocks of products");
  for (const Format& f : {job.left, job.result.format}) gpu.expect(f);
  const cuda::BlockPolicy policy{.adder = job.adder, .result = job.result.format, .seed = job.result.seed};
  const cuda::DotShape shape{values.size(0), 1, values.size(1), values.size(2)};
  gpu.check(gpu->running_blocks(policy, shape, values.const_data_ptr<double>(), out.mutable_data_ptr(), gpu.stream()));
}

void running_sums_on_gpu(const at::Tensor& values, const FormatEntry& entry, const Accumulation& policy, const at::Tensor& out) {
  const Gpu gpu(out.device(), "running sums");
  gpu.expect(entry.format);
  void* codes = out.mutable_data_ptr();
  const cuda::DotShape shape{values.size(0), 1, values.size(1), values.size(2)};
  if (policy.kind == Accumulation::Kind::Exact) {
    const Format result = rounding_format(entry);
    const RandomWords words = next_words(result, {}, out.device());
    return gpu.check(gpu->running_exact(entry.format, result, shape, values.const_data_ptr<double>(), codes, words, gpu.stream()));
  }
  const cuda::StepPolicy steps = step_policy(entry, policy, rounding_format(entry), 1, out.device());
  expect_formats(gpu, steps);
  with_type(values,
            [&](auto number) { gpu.check(gpu->running_steps(steps, shape, values.const_data_ptr<decltype(number)>(), codes, gpu.stream())); });
}

} // namespace at::formats
