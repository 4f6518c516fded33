// The GPU's kernels as the host's compiler makes them, for ctypes: test_cuda_kernels.py. A format comes as its fields.
#include <ATen/native/formats/cuda/Kernels.h>

using namespace at::formats;
using namespace at::formats::cuda;
using namespace c10::formats;

namespace {

Format format_of(const int32_t* x) {
  Format f;
  f.kind = Kind(x[0]);
  f.bits = uint8_t(x[1]);
  f.exp_bits = uint8_t(x[2]);
  f.man_bits = uint8_t(x[3]);
  f.bias = int16_t(x[4]);
  f.subnormals = Subnormals(x[5]);
  f.specials = Specials(x[6]);
  f.overflow = Overflow(x[7]);
  f.underflow = Underflow(x[8]);
  f.infinity = Infinity(x[9]);
  f.is_signed = x[10];
  f.symmetric = x[11];
  f.rounding = Rounding(x[12]);
  return f;
}

} // namespace

extern "C" {

int decode_float(const int32_t* f, const void* codes, float* values, int64_t n) {
  return cuda_kernels().decode_float(format_of(f), codes, values, n, Stream{});
}
int decode_double(const int32_t* f, const void* codes, double* values, int64_t n) {
  return cuda_kernels().decode_double(format_of(f), codes, values, n, Stream{});
}
int encode_float(const int32_t* f, const float* values, void* codes, int64_t n, uint64_t seed) {
  return cuda_kernels().encode_float(format_of(f), values, codes, n, {seed}, Stream{});
}
int encode_double(const int32_t* f, const double* values, void* codes, int64_t n, uint64_t seed) {
  return cuda_kernels().encode_double(format_of(f), values, codes, n, {seed}, Stream{});
}
int encode_int64(const int32_t* f, const int64_t* values, void* codes, int64_t n, uint64_t seed) {
  return cuda_kernels().encode_int64(format_of(f), values, codes, n, {seed}, Stream{});
}
int encode_uint64(const int32_t* f, const uint64_t* values, void* codes, int64_t n, uint64_t seed) {
  return cuda_kernels().encode_uint64(format_of(f), values, codes, n, {seed}, Stream{});
}
int chop_float(const int32_t* f, const float* values, float* results, int64_t n, uint64_t seed) {
  return cuda_kernels().chop_float(format_of(f), values, results, n, {seed}, Stream{});
}
int chop_double(const int32_t* f, const double* values, double* results, int64_t n, uint64_t seed) {
  return cuda_kernels().chop_double(format_of(f), values, results, n, {seed}, Stream{});
}
int binary(const int32_t* f, int op, const void* a, const void* b, void* out, int64_t n, uint64_t seed) {
  return cuda_kernels().binary(format_of(f), BinaryOp(op), a, b, out, n, {seed}, Stream{});
}
int ternary(const int32_t* f, int op, const void* a, const void* b, const void* c, double s, void* out, int64_t n, uint64_t seed) {
  return cuda_kernels().ternary(format_of(f), TernaryOp(op), a, b, c, s, out, n, {seed}, Stream{});
}
int square_root(const int32_t* f, const void* a, void* out, int64_t n, uint64_t seed) {
  return cuda_kernels().sqrt(format_of(f), a, out, n, {seed}, Stream{});
}
int steps(const int32_t* f, const int32_t* product, const int32_t* sum, const int64_t* options, const int64_t* shape, const void* a, const void* b,
          const void* start, const uint8_t* present, const uint8_t* present_rows, void* out, uint64_t seed) {
  const StepPolicy policy{.product = format_of(product),
                          .sum = format_of(sum),
                          .result = format_of(f),
                          .fused = options[0] != 0,
                          .kahan = options[1] != 0,
                          .chunk = options[2],
                          .chunks_in_float = options[3] != 0,
                          .divisor = options[4],
                          .seed = seed};
  return cuda_kernels().steps(format_of(f), policy, {shape[0], shape[1], shape[2], shape[3]}, a, b, start, present, present_rows, out, Stream{});
}
int exact(const int32_t* f, const int64_t* shape, const void* a, const void* b, const void* start, const uint8_t* present,
          const uint8_t* present_rows, int64_t divisor, void* out, uint64_t seed) {
  const Format format = format_of(f);
  return cuda_kernels().exact(format, format, {shape[0], shape[1], shape[2], shape[3]}, a, b, start, present, present_rows, divisor, out, {seed},
                              Stream{});
}
}
