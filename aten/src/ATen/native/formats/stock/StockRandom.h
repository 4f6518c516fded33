// The kernels' random words (Philox.h) by stock operations on integers.
#pragma once
#include <ATen/core/Tensor.h>

namespace at::formats {

// Words 0 to n - 1 of a seed, bit for bit random_word()'s, as int64.
at::Tensor random_words_by_stock(uint64_t seed, int64_t n, c10::Device device);

// Whether part / whole, cut to 64 binary digits, and the word as such a fraction make 1: what the
// mode `stochastic` asks. Integers, 0 <= part < whole < 2^62.
at::Tensor carries(const at::Tensor& words, const at::Tensor& part, const at::Tensor& whole);

} // namespace at::formats
