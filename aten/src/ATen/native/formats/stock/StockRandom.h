// The kernels' random words (Philox.h), by stock operations on integers.
#pragma once
#include <ATen/core/Tensor.h>

#include <utility>

namespace at::formats {

// Words 0 to n - 1 of a seed, bit for bit as random_word() has them. They are computed at first
// use.
class StockWords {
 public:
  StockWords() = default; // of a mode that draws nothing
  StockWords(uint64_t seed, c10::SymInt n, c10::Device device)
      : seed_(seed),
        n_(std::move(n)),
        device_(device) {}
  // In a graph, where no number is known: the seed is an int64 of dimension 0.
  StockWords(at::Tensor seed, c10::SymInt n, c10::Device device)
      : graph_seed_(std::move(seed)),
        n_(std::move(n)),
        device_(device) {}

  const at::Tensor& high() const; // the high halves' bits, as int32; takes half the time of all()
  const at::Tensor& all() const; // as int64
  at::Tensor coins() const; // the highest bits, as bool
  bool in_graph() const { return graph_seed_.defined(); }

 private:
  at::Tensor halves(int64_t stream) const;

  uint64_t seed_ = 0;
  at::Tensor graph_seed_;
  c10::SymInt n_ = 0;
  c10::Device device_ = at::kCPU;
  mutable at::Tensor high_, all_;
};

// Whether part / whole, cut to 64 binary digits, plus the word as such a fraction is at least 1:
// then the mode `stochastic` rounds up. Integers, 0 <= part < whole < 2^62.
at::Tensor carries(const at::Tensor& words, const at::Tensor& part, const at::Tensor& whole);

} // namespace at::formats
