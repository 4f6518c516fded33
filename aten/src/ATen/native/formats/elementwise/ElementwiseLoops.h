// The CPU's loops of elementwise operators: blocks of operands' values, computed and rounded to
// codes. Included by Elementwise.cpp alone.
#pragma once
#include <ATen/Observation.h>
#include <ATen/native/formats/elementwise/Elementwise.h>
#include <ATen/native/formats/elementwise/Tile.h>
#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/native/formats/stock/StockArithmetic.h>
#include <c10/formats/arithmetic/MixedArithmetic.h>
#include <c10/formats/arithmetic/NanSigns.h>
#include <c10/formats/sums/ZeroSums.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace at::formats::elementwise_loops {

// Copies elements of `width` bytes from a stride to contiguous memory, and back.
template <int Width>
void gather_as(const char* from, int64_t stride, char* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * Width, from + i * stride, Width);
}
template <int Width>
void scatter_as(const char* from, char* to, int64_t stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * stride, from + i * Width, Width);
}
inline void gather(int width, const char* from, int64_t stride, char* to, int64_t n) {
  switch (width) {
    case 1: return gather_as<1>(from, stride, to, n);
    case 2: return gather_as<2>(from, stride, to, n);
    case 4: return gather_as<4>(from, stride, to, n);
    default: return gather_as<8>(from, stride, to, n);
  }
}
inline void scatter(int width, const char* from, char* to, int64_t stride, int64_t n) {
  switch (width) {
    case 1: return scatter_as<1>(from, to, stride, n);
    case 2: return scatter_as<2>(from, to, stride, n);
    case 4: return scatter_as<4>(from, to, stride, n);
    default: return scatter_as<8>(from, to, stride, n);
  }
}

// The values of one operand in one loop.
struct Source {
  const Format* format; // nullptr: float64 values, or the number
  const char* data;     // nullptr: the number
  int64_t stride;
  double number;

  // Loads n values from element `first` on into a block.
  template <typename T>
  void load(const CpuKernels& k, int64_t first, int64_t n, T* values) const {
    if (!data) {
      std::fill_n(values, n, static_cast<T>(number));
      return;
    }
    const char* from = data + first * stride;
    const int width = format ? format->itemsize() : 8;
    alignas(64) char packed[kTile * 8];
    const int64_t distinct = stride == 0 ? 1 : n;
    if (stride != width && stride != 0) {
      gather(width, from, stride, packed, n);
      from = packed;
    }
    if (format) {
      k.decode(*format, from, values, distinct);
    } else {
      const auto* doubles = reinterpret_cast<const double*>(from);
      std::transform(doubles, doubles + distinct, values,
                     [](double x) { return static_cast<T>(x); });
    }
    if (distinct != n) std::fill_n(values, n, values[0]);
  }
};

// The destination of one loop's results. An element's random word depends on its place in the
// output's memory, so neither threads nor the order of loops change it.
struct Sink {
  const Format& format;
  char* data;
  int64_t stride;
  const char* origin; // the start of the whole output
  Seed seed;
  const Recorder& seen;

  RandomWords words(const char* at) const {
    const int64_t width = format.itemsize();
    return {seed, static_cast<uint64_t>((at - origin) / width),
            static_cast<uint64_t>(stride / width)};
  }
};

// ---- operators, on blocks of their operands' values in the machine type T ----
//
// Each has flags: whether float32 is enough for it, whether float32 values with one float64 number
// are, and whether it adds or halves logarithms. It also has functions.
//   compute(k, x, out, n)               results rounded to odd
//   to_codes(k, f, x, codes, n)         codes at once, from float32 values; false: not this format
//   compute_mixed(k, x, out, n)         the same for float32 and the number; false: undecided
//   compute_wide(k, f, x, codes, n, w)  codes, for formats whose results float64 does not decide
//   sign_zeros(mode, x, out, n)         the signs of sums that are 0
//   launch(gpu, e)                      the whole call on a GPU
//   by_stock(mode, x)                   compute and sign_zeros by stock operators, in float64
// run() checks the formats' conditions for float32.

template <typename T>
using Blocks = const T (*)[kTile];

struct BinaryBlocks {
  BinaryOp op;
  const Operand &a, &b;
  bool number_first = !a.tensor.defined(), number_second = !b.tensor.defined();
  double number = number_first ? a.number : b.number;
  bool in_float = true;
  bool mixed = number_first != number_second && number_is_mixed(number);
  bool on_logarithms = with_operation(op, [](auto f) { return f.kOnLogarithms; });

  template <typename T>
  void compute(const CpuKernels& k, Blocks<T> x, T* out, int64_t n) const {
    k.binary(op, x[0], x[1], out, n);
  }
  // Only if both are values of the format.
  bool to_codes(const CpuKernels& k, const Format& f, Blocks<float> x, char* codes,
                int64_t n) const {
    return !number_first && !number_second && k.binary_to_codes(f, op, x[0], x[1], codes, n);
  }
  bool compute_mixed(const CpuKernels& k, Blocks<float> x, float* out, int64_t n) const {
    return k.binary_mixed(op, number_first ? nullptr : x[0], number_first ? x[1] : nullptr, number,
                          out, n);
  }
  void compute_wide(const CpuKernels& k, const Format& f, Blocks<double> x, char* codes, int64_t n,
                    const RandomWords& words) const {
    k.binary_wide(f, op, x[0], x[1], codes, n, words);
  }
  cuda::Status launch(const Gpu& gpu, const cuda::Elementwise& e) const {
    return gpu->binary(e, op, gpu.stream());
  }
  at::Tensor by_stock(Rounding mode, const std::array<at::Tensor, 2>& x) const {
    return compute_by_stock(op, mode, x[0], x[1]);
  }
  template <typename T>
  void sign_zeros(Rounding mode, Blocks<T> x, T* sums, int64_t n) const {
    with_operation(op, [&](auto f) {
      if constexpr (requires { f.both_positive(T{}, T{}); }) {
        c10::formats::sign_zero_sums(mode, sums, n,
                                     [&](int64_t i) { return f.both_positive(x[0][i], x[1][i]); });
      }
    });
  }
};

struct TernaryBlocks {
  TernaryOp op;
  double s;
  bool in_float, mixed;
  double number; // the number operand of the mixed computation
  bool on_logarithms = false;

  template <typename T>
  void compute(const CpuKernels& k, Blocks<T> x, T* out, int64_t n) const {
    k.ternary(op, x[0], x[1], x[2], static_cast<T>(s), out, n);
  }
  bool compute_mixed(const CpuKernels& k, Blocks<float> x, float* out, int64_t n) const {
    return k.ternary_mixed(op, x[0], x[1], x[2], number, out, n);
  }
  void compute_wide(const CpuKernels& k, const Format& f, Blocks<double> x, char* codes, int64_t n,
                    const RandomWords& words) const {
    k.ternary_wide(f, op, x[0], x[1], x[2], s, codes, n, words);
  }
  cuda::Status launch(const Gpu& gpu, const cuda::Elementwise& e) const {
    return gpu->ternary(e, op, s, gpu.stream());
  }
  at::Tensor by_stock(Rounding mode, const std::array<at::Tensor, 3>& x) const {
    return compute_by_stock(op, mode, x[0], x[1], x[2], s);
  }
  template <typename T>
  void sign_zeros(Rounding mode, Blocks<T> x, T* sums, int64_t n) const {
    c10::formats::sign_zero_sums(mode, sums, n, [&](int64_t i) {
      return terms_are_positive(op, x[0][i], x[1][i], x[2][i], static_cast<T>(s));
    });
  }
};

struct UnaryBlocks {
  UnaryOp op;
  bool in_float = true;
  bool mixed = false;
  bool on_logarithms = with_operation(op, [](auto f) { return f.kOnLogarithms; });

  template <typename T>
  void compute(const CpuKernels& k, Blocks<T> x, T* out, int64_t n) const {
    k.unary(op, x[0], out, n);
  }
  bool compute_mixed(const CpuKernels&, Blocks<float>, float*, int64_t) const { return false; }
  void compute_wide(const CpuKernels& k, const Format& f, Blocks<double> x, char* codes, int64_t n,
                    const RandomWords& words) const {
    k.unary_wide(f, op, x[0], codes, n, words);
  }
  cuda::Status launch(const Gpu& gpu, const cuda::Elementwise& e) const {
    return gpu->unary(e, op, gpu.stream());
  }
  at::Tensor by_stock(Rounding, const std::array<at::Tensor, 1>& x) const {
    return root_by_stock(x[0]);
  }
  template <typename T>
  void sign_zeros(Rounding, Blocks<T>, T*, int64_t) const {}
};

// ---- the loop ----

// The path of one call. Mixed: float32 values and one float64 number; undecided blocks are computed
// again in float64. Binary32: two operands with float32's own codes, rounded randomly, in one pass.
enum class Way : uint8_t { InFloat, Mixed, InDouble, Wide, Binary32 };

template <typename T, typename Operator>
void encode_results(const CpuKernels& k, const Sink& sink, const Operator& op, Blocks<T> blocks,
                    T* results, char* codes, int64_t n, const RandomWords& words) {
  const Format& f = sink.format;
  op.sign_zeros(f.rounding, blocks, results, n);
  c10::formats::drop_nan_signs(f, results, n);
  k.encode(f, results, codes, n, words);
  if (sink.seen) sink.seen.codes(results, codes, n);
}

template <typename T, typename Operator>
void compute_block(const CpuKernels& k, const Sink& sink, const Operator& op, Blocks<T> blocks,
                   char* codes, int64_t n, const RandomWords& words) {
  if constexpr (std::is_same_v<T, float> &&
                requires { op.to_codes(k, sink.format, blocks, codes, n); }) {
    if (!sink.seen && op.to_codes(k, sink.format, blocks, codes, n)) return;
  }
  alignas(64) T results[kTile];
  op.compute(k, blocks, results, n);
  encode_results(k, sink, op, blocks, results, codes, n, words);
}

template <size_t N, typename Operator>
void compute_mixed_block(const CpuKernels& k, const Sink& sink, const Operator& op,
                         const std::array<Source, N>& sources, Blocks<float> blocks, char* codes,
                         int64_t n, const RandomWords& words) {
  alignas(64) float results[kTile];
  if (op.compute_mixed(k, blocks, results, n))
    return encode_results(k, sink, op, blocks, results, codes, n, words);
  alignas(64) double wide[N][kTile];
  for (size_t j = 0; j < N; ++j) {
    if (sources[j].data) std::copy_n(blocks[j], n, wide[j]);
    else std::fill_n(wide[j], n, sources[j].number);
  }
  compute_block<double>(k, sink, op, wide, codes, n, words);
}

// The exact results are not at hand: float64's are counted instead.
template <typename Operator>
void count_wide(const CpuKernels& k, const Sink& sink, const Operator& op, Blocks<double> blocks,
                const char* codes, int64_t n) {
  alignas(64) double results[kTile];
  op.compute(k, blocks, results, n);
  sink.seen.codes(results, codes, n);
}

template <typename T, Way way, size_t N, typename Operator>
void run_blocks(const CpuKernels& k, const std::array<Source, N>& sources, const Sink& sink,
                int64_t n, const Operator& op) {
  alignas(64) T blocks[N][kTile];
  alignas(64) char packed[kTile * 8];
  const int width = sink.format.itemsize();
  for (size_t j = 0; j < N; ++j) {
    // Numbers are loaded once for all blocks.
    if (!sources[j].data) sources[j].load(k, 0, std::min(n, kTile), blocks[j]);
  }
  for (int64_t first = 0; first < n; first += kTile) {
    const int64_t m = std::min(kTile, n - first);
    for (size_t j = 0; j < N; ++j) {
      if (sources[j].data) sources[j].load(k, first, m, blocks[j]);
    }
    char* to = sink.data + first * sink.stride;
    char* codes = sink.stride == width ? to : packed;
    if constexpr (way == Way::Wide) {
      op.compute_wide(k, sink.format, blocks, codes, m, sink.words(to));
      if (sink.seen) count_wide(k, sink, op, blocks, codes, m);
    } else if constexpr (way == Way::Mixed) {
      compute_mixed_block(k, sink, op, sources, blocks, codes, m, sink.words(to));
    } else {
      compute_block<T>(k, sink, op, blocks, codes, m, sink.words(to));
    }
    if (sink.stride != width) scatter(width, packed, to, sink.stride, m);
  }
}

// The same if values are codes: nothing is decoded. Operands at other strides than their width are
// gathered first.
template <size_t N, typename Operator>
void run_binary32(const CpuKernels& k, const std::array<Source, N>& sources, const Sink& sink,
                  int64_t n, const Operator& op) {
  if constexpr (N == 2) {
    constexpr int width = sizeof(float);
    alignas(64) float blocks[N][kTile];
    alignas(64) uint32_t packed[kTile];
    const bool direct = sink.stride == width;
    for (int64_t first = 0; first < n; first += kTile) {
      const int64_t m = std::min(kTile, n - first);
      const float* x[N] = {};
      for (size_t j = 0; j < N; ++j) {
        if (!sources[j].data) continue;
        x[j] = reinterpret_cast<const float*>(sources[j].data + first * sources[j].stride);
        if (sources[j].stride == width) continue;
        if (sources[j].stride == 0) std::fill_n(blocks[j], m, *x[j]);
        else
          gather(width, sources[j].data + first * sources[j].stride, sources[j].stride,
                 reinterpret_cast<char*>(blocks[j]), m);
        x[j] = blocks[j];
      }
      char* to = sink.data + first * sink.stride;
      uint32_t* codes = direct ? reinterpret_cast<uint32_t*>(to) : packed;
      k.binary_binary32(sink.format, op.op, x[0], x[1], static_cast<float>(op.number), codes, m,
                        sink.words(to));
      if (!direct) scatter(width, reinterpret_cast<const char*>(packed), to, sink.stride, m);
    }
  }
}

} // namespace at::formats::elementwise_loops
