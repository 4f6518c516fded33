#include <ATen/native/formats/gpu/GpuSums.h>

#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/native/formats/gpu/GpuObservation.h>
#include <ATen/native/formats/sums/ExactProducts.h>
#include <ATen/native/formats/sums/StepSums.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <optional>

namespace at::formats {
namespace {

template <typename T>
cuda::Dots<T> device_operands(const DotProducts& dots) {
  return {
      .shape = {dots.b.size(0), dots.a.defined() ? dots.a.size(1) : 1, dots.b.size(1),
                dots.b.size(2)},
      .a = data_or_null<T>(dots.a),
      .b = dots.b.const_data_ptr<T>(),
      .start = data_or_null<T>(dots.start),
      .present = data_or_null<uint8_t>(dots.present),
      .present_rows = data_or_null<uint8_t>(dots.present_rows),
  };
}

cuda::StepPolicy step_policy(const StepFormats& formats, const Accumulation& policy,
                             const Format& result, int64_t divisor, const GpuCounters& counters) {
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
      .seen_products = counters.of(formats.seen_products),
      .seen_sums = counters.of(formats.seen_sums),
      .seen_outer = counters.of(formats.seen_outer),
  };
}

GpuCounters counters_of(const StepFormats& formats, c10::Device device) {
  return {device, {&formats.seen_products, &formats.seen_sums, &formats.seen_outer}};
}

void expect_formats(const Gpu& gpu, const cuda::StepPolicy& steps) {
  for (const Format& f : {steps.product, steps.sum, steps.result}) gpu.expect(f);
  if (steps.rounds_chunks) gpu.expect(steps.outer);
}

// The same policy with float64 results, and without counting.
Format in_float64(const Format&) {
  return c10::formats::float_format(11, 52);
}
cuda::StepPolicy in_float64(cuda::StepPolicy steps) {
  steps.result = in_float64(steps.result);
  steps.seen_products = steps.seen_sums = steps.seen_outer = {};
  return steps;
}
cuda::BlockPolicy in_float64(cuda::BlockPolicy blocks) {
  blocks.result = in_float64(blocks.result);
  blocks.seen = {};
  return blocks;
}

// Fills out by launch(how, memory). If observed, a second launch computes the results before
// rounding, and these are counted.
template <typename How, typename Launch>
void fill_on_gpu(const at::Tensor& out, const Recorder& seen, const How& how,
                 const Launch& launch) {
  launch(how, out.mutable_data_ptr());
  if (!seen) return;
  const at::Tensor sums = at::empty(
      out.sizes(), at::TensorOptions().dtype(c10::ScalarType::Double).device(out.device()));
  launch(in_float64(how), sums.mutable_data_ptr());
  count_codes_on_gpu(seen, sums, out.const_data_ptr());
}

// Calls body with the type of the decoded values.
template <typename Body>
void with_type(const at::Tensor& values, const Body& body) {
  values.scalar_type() == c10::ScalarType::Float ? body(float{}) : body(double{});
}

} // namespace

void dot_products_on_gpu(const DotProducts& dots, const FormatEntry& entry,
                         const Accumulation& policy, const Format& result, const Recorder& seen,
                         const at::Tensor& out) {
  const Gpu gpu(out.device(), "dot products");
  gpu.expect(entry.format);
  if (policy.kind == Accumulation::Kind::Exact) {
    const RandomWords words = next_words(result, {}, out.device());
    const ExactParts parts = exact_parts(dots, entry);
    const at::Tensor terms = parts.sums.empty() ? at::Tensor() : at::stack(parts.sums);
    const Format format =
        terms.defined() ? c10::formats::float_format(11, 52) : format_of_terms(dots, entry);
    const cuda::Dots<double> sums = terms.defined()
        ? cuda::Dots<double>{{1, 1, terms.size(0), out.numel()},
                             nullptr,
                             terms.const_data_ptr<double>(),
                             nullptr,
                             nullptr,
                             nullptr}
        : device_operands<double>(dots);
    return fill_on_gpu(out, seen, result, [&](const Format& to, void* results) {
      gpu.check(gpu->exact(format, to, sums, dots.divisor, results, words, gpu.stream()));
    });
  }
  const StepFormats formats(entry, policy, out.device());
  std::optional<GpuCounters> counters(counters_of(formats, out.device()));
  const cuda::StepPolicy steps = step_policy(formats, policy, result, dots.divisor, *counters);
  expect_formats(gpu, steps);
  fill_on_gpu(out, seen, steps, [&](const cuda::StepPolicy& how, void* results) {
    with_type(dots.b, [&](auto number) {
      using T = decltype(number);
      gpu.check(gpu->of<T>().steps(how, device_operands<T>(dots), results, gpu.stream()));
    });
    counters.reset();
  });
}

void block_sums_on_gpu(const DotProducts& dots, const BlockJob& job, const at::Tensor& out) {
  const Gpu gpu(out.device(), "sums by blocks of products");
  for (const Format& f : {job.left, job.right, job.result.format}) gpu.expect(f);
  const Recorder seen = step_recorder(job.adder.reg);
  std::optional<GpuCounters> counters(std::in_place, out.device(),
                                      std::initializer_list<const Recorder*>{&seen});
  const cuda::BlockPolicy policy{job.adder, job.result.format, dots.divisor, job.result.seed,
                                 counters->of(seen)};
  fill_on_gpu(out, job.result.seen, policy, [&](const cuda::BlockPolicy& how, void* results) {
    gpu.check(gpu->blocks(how, device_operands<double>(dots), results, gpu.stream()));
    counters.reset();
  });
}

void running_block_sums_on_gpu(const at::Tensor& values, const BlockJob& job,
                               const at::Tensor& out) {
  const Gpu gpu(out.device(), "sums by blocks of products");
  for (const Format& f : {job.left, job.result.format}) gpu.expect(f);
  const Recorder seen = step_recorder(job.adder.reg);
  std::optional<GpuCounters> counters(std::in_place, out.device(),
                                      std::initializer_list<const Recorder*>{&seen});
  const cuda::BlockPolicy policy{.adder = job.adder,
                                 .result = job.result.format,
                                 .seed = job.result.seed,
                                 .seen = counters->of(seen)};
  const cuda::DotShape shape{values.size(0), 1, values.size(1), values.size(2)};
  fill_on_gpu(out, job.result.seen, policy, [&](const cuda::BlockPolicy& how, void* results) {
    gpu.check(
        gpu->running_blocks(how, shape, values.const_data_ptr<double>(), results, gpu.stream()));
    counters.reset();
  });
}

void running_sums_on_gpu(const at::Tensor& values, const FormatEntry& entry,
                         const Accumulation& policy, const at::Tensor& out) {
  const Gpu gpu(out.device(), "running sums");
  gpu.expect(entry.format);
  const Recorder seen = recorder(entry.format, out.const_data_ptr());
  const Format result = rounding_format(entry);
  const cuda::DotShape shape{values.size(0), 1, values.size(1), values.size(2)};
  if (policy.kind == Accumulation::Kind::Exact) {
    const RandomWords words = next_words(result, {}, out.device());
    return fill_on_gpu(out, seen, result, [&](const Format& to, void* results) {
      gpu.check(gpu->running_exact(entry.format, to, shape, values.const_data_ptr<double>(),
                                   results, words, gpu.stream()));
    });
  }
  const StepFormats formats(entry, policy, out.device());
  std::optional<GpuCounters> counters(counters_of(formats, out.device()));
  const cuda::StepPolicy steps = step_policy(formats, policy, result, 1, *counters);
  expect_formats(gpu, steps);
  fill_on_gpu(out, seen, steps, [&](const cuda::StepPolicy& how, void* results) {
    with_type(values, [&](auto number) {
      using T = decltype(number);
      gpu.check(gpu->of<T>().running_steps(how, shape, values.const_data_ptr<T>(), results,
                                           gpu.stream()));
    });
    counters.reset();
  });
}

} // namespace at::formats
