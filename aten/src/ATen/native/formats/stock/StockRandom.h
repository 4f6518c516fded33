// The kernels' random words (Philox.h), by stock operations on integers.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/formats/NumberFormat.h>

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

  // Changes the words so that a fraction of 64 bits plus the word carries where a format with few
  // random bits rounds up. Then the fraction's last bit must be set if anything is cut off.
  void use_few_bits(const c10::formats::Format& format);

  const at::Tensor& high() const; // the high halves' bits, as int32; takes half the time of all()
  const at::Tensor& all() const; // as int64
  at::Tensor coins() const; // the highest bits, as bool
  // 1 where use_few_bits() has lowered the word by 1, so that a tie goes down.
  const at::Tensor& lowered() const;
  bool in_graph() const { return graph_seed_.defined(); }

 private:
  at::Tensor halves(int64_t stream) const;

  uint64_t seed_ = 0;
  at::Tensor graph_seed_;
  c10::SymInt n_ = 0;
  c10::Device device_ = at::kCPU;
  int few_bits_ = 0; // random bits that count; 0: all
  c10::formats::FewBits how_ = c10::formats::FewBits::A;
  mutable at::Tensor high_, all_, lowered_;
};

// Whether the mode `stochastic` rounds x to outer. float64 numbers; x lies between inner and outer.
// Its part of their distance is cut to 64 binary digits, as is the codec's (TableCodec.h).
at::Tensor draw_outer(const at::Tensor& x, const at::Tensor& inner, const at::Tensor& outer,
                      const StockWords& words);

} // namespace at::formats
