// Counts in device memory, to which all threads add.
#pragma once
#include <ATen/native/formats/cuda/Kernels.h>

namespace at::formats::cuda {

struct AddTo {
  TD_HOST_DEVICE void operator()(uint64_t more, uint64_t& all) const {
    if (more == 0) return;
#ifdef __CUDA_ARCH__
    atomicAdd(reinterpret_cast<unsigned long long*>(&all), static_cast<unsigned long long>(more));
#else
    __atomic_fetch_add(&all, more, __ATOMIC_RELAXED);
#endif
  }
};

// Counts x and its rounding error r by their exponents.
TD_HOST_DEVICE inline void count_exponents(CountTable& table, double x, double r) {
  using c10::formats::count_bin;
  using c10::formats::count_square;
  const AddTo add;
  add(1, table.counts[count_bin(x)]);
  if (count_bin(r) == kCountBins - 1) return; // infinite or NaN
  const double error = x - r;
  add(count_square(x), table.squares[count_bin(x)]);
  add(count_square(error), table.errors[count_bin(error)]);
}

// Counts one rounding within a sum. place: the index of the sum among all of them.
[[maybe_unused]] TD_HOST_DEVICE TD_NOINLINE static void count_step(const StepCounts& seen, double x,
                                                                   double r, int64_t place) {
  CountTable& table = seen.tables[place % kCountCopies];
  CountFlags flags;
  flags.count(seen.limits, x, r);
  count_exponents(table, x, r);
  flags.each(table.flags, AddTo());
}

} // namespace at::formats::cuda
