#include <ATen/native/formats/sums/InstructionDots.h>

#include <ATen/Parallel.h>
#include <ATen/native/formats/cpu/InstructionKernel.h>

namespace at::formats {

bool rounds_instructions(const Format& result, const Accumulation& policy) {
  return policy.instructions && c10::formats::is_binary32(result) && result.random_bits == 0 &&
      (result.rounding == Rounding::Stochastic || result.rounding == Rounding::UpDown) &&
      !observing();
}

void instruction_dots(const CpuKernels& kernels, const DotOperands<float>& dots,
                      const Format& result, const Accumulation& policy, uint64_t seed, float* out) {
  const InstructionKernels& loops = instruction_kernels(kernels.name);
  const int64_t m = dots.m, k = dots.k, n = dots.n;
  const auto parts = [](int64_t all, int64_t some) { return (all + some - 1) / some; };
  const int64_t rows = parts(m, kInstructionRows);
  int64_t columns = kInstructionColumns;
  while (columns > 32 && dots.batches * rows * parts(n, columns) < at::get_num_threads())
    columns /= 2;
  const int64_t blocks = parts(n, columns);
  at::parallel_for(0, dots.batches * rows * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t batch = task / (rows * blocks), row = task / blocks % rows;
      loops.block({.m = m,
                   .k = k,
                   .n = n,
                   .a = dots.a ? dots.a + batch * m * k : nullptr,
                   .b = dots.b + batch * k * n,
                   .start = dots.start ? dots.start + batch * m * n : nullptr,
                   .present = dots.present ? dots.present + batch * k * n : nullptr,
                   .out = out + batch * m * n,
                   .seed = c10::formats::random_word(seed, static_cast<uint64_t>(batch)),
                   .moves = result.rounding == Rounding::UpDown,
                   // Sums have no products.
                   .apart = !policy.fused && dots.a},
                  row * kInstructionRows, task % blocks * columns, columns);
    }
  });
}

} // namespace at::formats
