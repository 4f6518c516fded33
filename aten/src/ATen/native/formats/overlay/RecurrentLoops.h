// Loops over values of a format in float32, each result rounded to the nearest value. For formats
// with arithmetic_in_float().
#pragma once
#include <ATen/FormatTensor.h>
#include <ATen/Parallel.h>
#include <ATen/native/formats/elementwise/Tile.h>
#include <ATen/native/formats/gpu/DeviceKernels.h>

#include <algorithm>

namespace at::formats {

class RecurrentLoops {
 public:
  // format: with the mode that this thread rounds by.
  explicit RecurrentLoops(const Format& format) : f_(format), k_(host_kernels()) {}

  void decode(const void* codes, float* values, int64_t n) const {
    each_tile(n, [&](int64_t first, int64_t m) {
      k_.decode(f_, code_at(codes, first), values + first, m);
    });
  }
  void encode(const float* values, void* codes, int64_t n) const {
    each_tile(n, [&](int64_t first, int64_t m) {
      k_.encode(f_, values + first, code_at(codes, first), m, {});
    });
  }
  void round(float* values, int64_t n) const {
    each_tile(n, [&](int64_t first, int64_t m) {
      alignas(64) float exact[kTile];
      std::copy_n(values + first, m, exact);
      round_tile(exact, values + first, m);
    });
  }
  // out may be an operand.
  void binary(BinaryOp op, const float* a, const float* b, float* out, int64_t n) const {
    each_tile(n, [&](int64_t first, int64_t m) {
      alignas(64) float odd[kTile];
      k_.binary(op, a + first, b + first, odd, m);
      round_tile(odd, out + first, m);
    });
  }
  // sums += values, which are rounded first.
  void add_rounded(const float* values, float* sums, int64_t n) const {
    each_tile(n, [&](int64_t first, int64_t m) {
      alignas(64) float rounded[kTile], odd[kTile];
      round_tile(values + first, rounded, m);
      k_.binary(BinaryOp::Add, sums + first, rounded, odd, m);
      round_tile(odd, sums + first, m);
    });
  }
  // A function of values of the format, from a table by code. The operands may be rounded first.
  void look_up(const float* table, const float* values, float* out, int64_t n) const {
    each_tile(n, [&](int64_t first, int64_t m) {
      alignas(64) char codes[kTile * 2];
      k_.encode(f_, values + first, codes, m, {});
      k_.look_up(table, codes, f_.itemsize(), out + first, m);
    });
  }

 private:
  template <typename Each>
  static void each_tile(int64_t n, const Each& each) {
    constexpr int64_t kTilesOfThread = 32;
    at::parallel_for(0, (n + kTile - 1) / kTile, kTilesOfThread, [&](int64_t begin, int64_t end) {
      for (int64_t first = begin * kTile; first < std::min(n, end * kTile); first += kTile)
        each(first, std::min(kTile, n - first));
    });
  }
  const void* code_at(const void* codes, int64_t i) const {
    return static_cast<const char*>(codes) + i * f_.itemsize();
  }
  void* code_at(void* codes, int64_t i) const {
    return static_cast<char*>(codes) + i * f_.itemsize();
  }
  void round_tile(const float* exact, float* rounded, int64_t n) const {
    if (k_.round(f_, exact, rounded, n)) return;
    alignas(64) char codes[kTile * 2];
    k_.encode(f_, exact, codes, n, {});
    k_.decode(f_, codes, rounded, n);
  }

  Format f_;
  const CpuKernels& k_;
};

} // namespace at::formats
