// The GPU's kernels over codes and machine numbers: raw pointers to device memory, contiguous, and a stream. Nothing here knows a tensor or
// includes a header of PyTorch; each gives back 0 or the CUDA runtime's error of its launch, and does not wait for its end.
//
// Results have the CPU's bits: element i takes word first + i * step of the seed, whatever the grid.
#pragma once
#include <ATen/native/formats/cpu/Kernels.h>
#include <ATen/native/formats/cuda/Launch.h>

namespace at::formats::cuda {

// What the steps of a sum are rounded to (docs/numerics.md, "Accumulation").
struct StepPolicy {
  Format product, sum, result;
  bool fused{false}, kahan{false};
  int64_t chunk{0};            // terms; 0: all in one
  bool chunks_in_float{false}; // chunks are added in float32
  int64_t divisor{1};          // of the finished sum, before its last rounding
  uint64_t seed{0};
};

// Dot products, all of m * n in each batch, over k terms in their order.
struct DotShape {
  int64_t batches, m, k, n;
};

struct CudaKernels {
  Status (*decode_float)(const Format&, const void* codes, float* values, int64_t n, Stream);
  Status (*decode_double)(const Format&, const void* codes, double* values, int64_t n, Stream);
  Status (*encode_float)(const Format&, const float* values, void* codes, int64_t n, const RandomWords&, Stream);
  Status (*encode_double)(const Format&, const double* values, void* codes, int64_t n, const RandomWords&, Stream);
  Status (*encode_int64)(const Format&, const int64_t* values, void* codes, int64_t n, const RandomWords&, Stream);
  Status (*encode_uint64)(const Format&, const uint64_t* values, void* codes, int64_t n, const RandomWords&, Stream);
  // Numbers to the format's numbers, rounded once, without codes in memory.
  Status (*chop_float)(const Format&, const float* values, float* results, int64_t n, const RandomWords&, Stream);
  Status (*chop_double)(const Format&, const double* values, double* results, int64_t n, const RandomWords&, Stream);

  // Codes to codes of one format, correctly rounded. For formats with arithmetic_in_double(); out may be an operand.
  Status (*binary)(const Format&, BinaryOp, const void* a, const void* b, void* out, int64_t n, const RandomWords&, Stream);
  Status (*ternary)(const Format&, TernaryOp, const void* a, const void* b, const void* c, double s, void* out, int64_t n, const RandomWords&,
                    Stream);
  Status (*sqrt)(const Format&, const void* a, void* out, int64_t n, const RandomWords&, Stream);

  // Sums of products a[batch, m, k] * b[batch, k, n] (codes), or of b alone where a is nullptr and m is 1, every step rounded; start: what
  // the accumulators hold first [batch, m, n], or nullptr. Where a byte of present[batch, k, n] or present_rows[batch, m, k] is 0, the term is not
  // there.
  Status (*steps)(const Format& operands, const StepPolicy&, const DotShape&, const void* a, const void* b, const void* start, const uint8_t* present,
                  const uint8_t* present_rows, void* out, Stream);
  // The same with one rounding of the exact sum, divided by `divisor`.
  Status (*exact)(const Format& operands, const Format& result, const DotShape&, const void* a, const void* b, const void* start,
                  const uint8_t* present, const uint8_t* present_rows, int64_t divisor, void* out, const RandomWords&, Stream);
};

const CudaKernels& cuda_kernels();

// What each file contributes.
void fill_codec(CudaKernels&);
void fill_arithmetic(CudaKernels&);
void fill_sums(CudaKernels&);

} // namespace at::formats::cuda
