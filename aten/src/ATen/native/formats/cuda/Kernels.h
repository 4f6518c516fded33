// The GPU's kernels over codes and machine numbers: raw pointers to device memory and a stream.
// They know no tensor and include no header of PyTorch. Each returns 0 or the CUDA runtime's error
// of its launch, and does not wait for its end.
//
// Results have the CPU's bits: element i takes word first + i * step of the seed, whatever the
// grid. Memory is contiguous unless a comment says otherwise.
#pragma once
#include <ATen/native/formats/cpu/Instructions.h>
#include <ATen/native/formats/cpu/Kernels.h>
#include <ATen/native/formats/cuda/Launch.h>
#include <c10/formats/BlockScale.h>
#include <c10/formats/codec/FastBinary32.h>
#include <c10/formats/codec/HalfParts.h>
#include <c10/formats/sums/BlockSum.h>
#include <c10/formats/sums/SumOrder.h>

#include <type_traits>

namespace at::formats::cuda {

// ---- elementwise ----

// Codes of a format, float64 numbers (no format), or one number for all elements (no data).
struct Input {
  const void* data{nullptr};
  const Format* format{nullptr};
  double number{0};
};

// Strides of the elements: the output's, then those of the inputs with data, in order. Sizes begin
// with the fastest dimension; strides are in bytes. No dimensions: all operands are contiguous.
inline constexpr int kMaxDims = 16;
struct Layout {
  int dims{0};
  int64_t sizes[kMaxDims]{};
  int64_t strides[4][kMaxDims]{};
};

// The type that computes, rounded to odd. Mixed: float32 values with one float64 number
// (c10/formats/arithmetic/MixedArithmetic.h); a result that is undecided there is computed in
// float64.
enum class Arithmetic : uint8_t { Float, Mixed, Double };

// One elementwise operation, correctly rounded if arithmetic rounded to odd serves the result's
// format. An element's random word has the index of its place in the output's memory. The output
// may be an input.
struct Elementwise {
  Format result;
  Arithmetic in{Arithmetic::Double};
  Input inputs[3];
  void* out{nullptr};
  int64_t n{0};
  Layout layout;
  Seed seed{};
};

// One program over the tensors of several runs. Each tensor is dense; all have one format, and no
// result is rounded at random.
struct Programs {
  static constexpr int kMostRuns = 56, kMostSteps = 12;

  Format format;
  int count{0}; // steps
  int runs{0};
  uint32_t reads{0}; // bit r is set if register r holds a tensor
  Instruction steps[kMostSteps];
  int64_t end[kMostRuns]; // the index behind a run's last element, among all elements
  char* at[kMostRuns][kTensors];
};

// ---- observation ----

// Counts by exponent: numbers, their squares, and the squares of errors with that exponent. All
// zero at first.
struct CountTable {
  CountFlags flags;
  uint64_t counts[kCountBins], squares[kCountBins], errors[kCountBins];
};
// Copies of a table; the reader adds them up.
inline constexpr int kCountCopies = 8;

// Counts roundings within sums, if tables is set.
struct StepCounts {
  CountLimits limits{};
  CountTable* tables{nullptr};
};

// Exact values and their roundings: codes of a format, at the layout's first row of strides, or
// numbers of the same type (no format). All but such codes are contiguous.
struct Counting {
  CountLimits limits{};
  const void *exact, *rounded;
  bool wide; // true: float64, false: float32
  const Format* format{nullptr};
  int64_t n;
  Layout layout{};
  CountTable* tables{nullptr};
};

// ---- sums ----

using c10::formats::HalfParts;
using c10::formats::SumOrder;

// The formats that steps of a sum are rounded to (docs/numerics.md, "Accumulation").
struct StepPolicy {
  // outer: the format of the chunks' sums, if they are rounded
  Format product{}, sum{}, outer{}, result{};
  bool fused{false}, kahan{false}, exact_product{false}, rounds_chunks{false};
  int64_t chunk{0}; // terms a chunk; 0: all in one
  bool chunks_in_float{false}; // the chunks' sums are added in float32
  SumOrder order{SumOrder::Sequential}; // any other order has no chunks
  int64_t lanes{1};
  int64_t divisor{1}; // divides the finished sum before its last rounding
  Seed seed{};
  StepCounts seen_products{}, seen_sums{}, seen_outer{};

  bool is_seen() const { return seen_products.tables || seen_sums.tables || seen_outer.tables; }
};

// Whether the accumulator's sums are the machine's: float32, to nearest.
inline bool sums_in_binary32(const StepPolicy& p) {
  return c10::formats::is_binary32(p.sum) && p.sum.rounding == c10::formats::Rounding::NearestEven;
}

// Sums of blocks of products, and the format that the final registers are rounded to.
struct BlockPolicy {
  c10::formats::BlockAdder adder;
  Format result{};
  int64_t divisor{1};
  Seed seed{};
  StepCounts seen{}; // counts the roundings of registers
};

// Dot products: m * n in each batch, each over k terms in order.
struct DotShape {
  int64_t batches, m, k, n;
};

// Sums of products a[batch, m, k] * b[batch, k, n]; with a == nullptr and m == 1, sums of b alone.
// start: initial values of the accumulators [batch, m, n], or nullptr. A term is absent where a
// byte of present[batch, k, n] or present_rows[batch, m, k] is 0.
template <typename T>
struct Dots {
  DotShape shape;
  const T *a, *b, *start;
  const uint8_t *present, *present_rows;
};

// Blocks of the last dimension that share a power of two as their scale. size: of a block; length:
// of the dimension. careful: a nonzero number stays nonzero, however small the block makes it.
struct Blocks {
  c10::formats::BlockScale scale;
  int64_t size, length;
  bool careful;
};

// One of several casts in one launch; `kMostCasts` is their limit.
struct Cast {
  const void* from;
  void* to;
  int64_t n;
};
inline constexpr int kMostCasts = 4;

// second: written if there are two parts.
struct PartsCast {
  const void* codes;
  uint16_t *first, *second;
  int64_t n;
};

// Kernels over machine numbers of one type, float or double.
template <typename T>
struct NumberKernels {
  Status (*decode)(const Format&, const void* codes, T* values, int64_t n, Stream);
  Status (*encode)(const Format&, const T* values, void* codes, int64_t n, const RandomWords&,
                   Stream);
  // Rounds numbers once to the format's, without codes in memory; results may be the values. Then,
  // with probability flip_prob, flips one bit of a finite number's code, chosen by the word of
  // flip_seed.
  Status (*chop)(const Format&, const T* values, T* results, int64_t n, const RandomWords&,
                 double flip_prob, const Seed& flip_seed, Stream);
  // Sums of a format's values, every step rounded, as codes. Runs in float if all formats have
  // arithmetic_in_float(). The format of the sums need not have it if they are float32's own (one
  // running sum, not fused, no compensation).
  Status (*steps)(const StepPolicy&, const Dots<T>&, void* out, Stream);
  // The sums of the first 1, 2, ... k rows of values [batch, k, n] (m is 1).
  Status (*running_steps)(const StepPolicy&, const DotShape&, const T* values, void* out, Stream);
};

struct CudaKernels {
  NumberKernels<float> on_float;
  NumberKernels<double> on_double;

  // Codes of two tensors to the format's parts, as find_half_parts() gives them.
  Status (*decode_parts)(const Format&, const HalfParts&, const PartsCast&, const PartsCast&,
                         Stream);
  // Codes to float32 and back. Takes several tensors in one launch if the format has a codec for
  // it. Never draws random words.
  Status (*decode_floats)(const Format&, const Cast*, int count, Stream);
  Status (*encode_floats)(const Format&, const Cast*, int count, Stream);
  Status (*encode_int64)(const Format&, const int64_t* values, void* codes, int64_t n,
                         const RandomWords&, Stream);
  Status (*encode_uint64)(const Format&, const uint64_t* values, void* codes, int64_t n,
                          const RandomWords&, Stream);
  // Adds one row of codes to each row of a float32 matrix of n numbers, and encodes the sums. For
  // formats with fits_float().
  Status (*encode_with_row)(const Format&, const float* values, const void* row, int64_t columns,
                            void* codes, int64_t n, const RandomWords&, Stream);
  // Keeps codes where numbers of the same format exceed the threshold or are NaN, else writes 0.
  // out may be either input.
  Status (*gate)(const Format&, const void* codes, const void* numbers, double threshold, void* out,
                 int64_t n, Stream);
  // Narrows double to float, to odd, so that a stock cast to a still narrower type rounds once.
  Status (*narrow_to_odd)(const double* values, float* results, int64_t n, Stream);
  // Divides numbers by their block's scale, rounds them to the element format, and multiplies by
  // the scale again. Writes the quotients to `scaled` and the rounded ones to `rounded`, if these
  // are given.
  Status (*chop_blocks)(const Format&, const Blocks&, const float* values, float* results,
                        int64_t n, const Seed& seed, float* scaled, float* rounded, Stream);
  // table[code] for codes of 1 or 2 bytes; out may be the codes.
  Status (*look_up)(const void* table, const void* codes, int itemsize, void* out, int64_t n,
                    Stream);

  // The next codes, from their values towards other numbers. Not for tables.
  Status (*next_codes)(const Format&, const void* codes, const double* from, const double* towards,
                       void* out, int64_t n, Stream);

  Status (*unary)(const Elementwise&, UnaryOp, Stream);
  Status (*binary)(const Elementwise&, BinaryOp, Stream);
  Status (*ternary)(const Elementwise&, TernaryOp, double s, Stream);
  Status (*programs)(const Programs&, Stream);

  Status (*count)(const Counting&, Stream);

  // As NumberKernels::steps, but block by block.
  Status (*blocks)(const BlockPolicy&, const Dots<double>&, void* out, Stream);
  // The same with one rounding of the exact sum, divided by `divisor`. The values are of the format
  // `operands`.
  Status (*exact)(const Format& operands, const Format& result, const Dots<double>&,
                  int64_t divisor, void* out, const RandomWords&, Stream);
  // As NumberKernels::running_steps: block by block, and with one rounding of each exact sum.
  Status (*running_blocks)(const BlockPolicy&, const DotShape&, const double* values, void* out,
                           Stream);
  Status (*running_exact)(const Format& operands, const Format& result, const DotShape&,
                          const double* values, void* out, const RandomWords&, Stream);

  template <typename T>
  const NumberKernels<T>& of() const {
    if constexpr (std::is_same_v<T, float>) return on_float;
    else return on_double;
  }
};

const CudaKernels& cuda_kernels();

// The files of kernels; each ends with a function that fills the table.
#define AT_FORALL_CUDA_KERNEL_FILES(_) \
  _(codec)                             \
  _(parts)                             \
  _(arithmetic)                        \
  _(programs)                          \
  _(fused)                             \
  _(blocks)                            \
  _(count)                             \
  _(sums)                              \
  _(block_sums)
#define TD_DECLARE(file) void fill_##file(CudaKernels&);
AT_FORALL_CUDA_KERNEL_FILES(TD_DECLARE)
#undef TD_DECLARE

// Sums with every step rounded, in other orders than one running sum.
template <typename T>
Status ordered_sums(const StepPolicy& policy, const Dots<T>& dots, void* out, Stream stream);

// Sums with every step rounded, several results a thread; and whether that takes this policy.
Status tile_sums(const StepPolicy& policy, const Dots<float>& dots, void* out, Stream stream);
bool serves_tiles(const StepPolicy& policy, const Dots<float>& dots);

} // namespace at::formats::cuda
