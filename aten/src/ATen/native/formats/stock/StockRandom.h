// The kernels' random words (Philox.h), by stock operations on integers.
#pragma once
#include <ATen/core/Tensor.h>

namespace at::formats {

// Words 0 to n - 1 of a seed, with the bits of random_word(), as int64.
at::Tensor random_words_by_stock(uint64_t seed, int64_t n, c10::Device device);

// Whether part / whole, cut to 64 binary digits, plus the word as such a fraction is at least 1:
// then the mode `stochastic` rounds up. Integers, 0 <= part < whole < 2^62.
at::Tensor carries(const at::Tensor& words, const at::Tensor& part, const at::Tensor& whole);

} // namespace at::formats
