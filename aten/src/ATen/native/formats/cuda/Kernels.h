// The GPU's kernels over codes and machine numbers: raw pointers to device memory and a stream.
// Nothing here knows a tensor or includes a header of PyTorch; each gives back 0 or the CUDA
// runtime's error of its launch, and does not wait for its end.
//
// Results have the CPU's bits: element i takes word first + i * step of the seed, whatever the
// grid. Memory is contiguous where nothing else is said.
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

// Where elements lie: of the output and then of the inputs, in the order in which those with data
// come. Sizes from the fastest dimension on, strides in bytes. No dimensions: all are contiguous.
inline constexpr int kMaxDims = 16;
struct Layout {
  int dims{0};
  int64_t sizes[kMaxDims]{};
  int64_t strides[4][kMaxDims]{};
};

// Float, Double: in that type, rounded to odd. Mixed: float32 values with one float64 number
// (c10/formats/arithmetic/MixedArithmetic.h), in float64 where that leaves a result undecided.
enum class Arithmetic : uint8_t { Float, Mixed, Double };

// Correctly rounded where arithmetic that is rounded to odd serves the result's format. An
// element's random word has the number of its place in the output's memory; the output may be an
// input.
struct Elementwise {
  Format result;
  Arithmetic in{Arithmetic::Double};
  Input inputs[3];
  void* out{nullptr};
  int64_t n{0};
  Layout layout;
  Seed seed{};
};

// One program over the tensors of several runs, each dense and of one format, which rounds nothing
// at random.
struct Programs {
  static constexpr int kMostRuns = 56, kMostSteps = 12;

  Format format;
  int count{0}; // of steps
  int runs{0};
  uint32_t reads{0}; // which registers hold a tensor, by bits
  Instruction steps[kMostSteps];
  int64_t end[kMostRuns]; // of a run's elements among all of them
  char* at[kMostRuns][kTensors];
};

// ---- what is observed ----

// Of the numbers of each exponent, how many there are, their squares and those of the errors of
// that exponent; all zero at first.
struct CountTable {
  CountFlags flags;
  uint64_t counts[kCountBins], squares[kCountBins], errors[kCountBins];
};
// That belong together and are added up by whoever reads them.
inline constexpr int kCountCopies = 8;

// Counts what is rounded within sums, where there are tables.
struct StepCounts {
  CountLimits limits{};
  CountTable* tables{nullptr};
};

// Exact values beside what they became: codes of a format, which lie as the layout's first row
// says, or numbers of the same type (no format). All but such codes are contiguous.
struct Counting {
  CountLimits limits{};
  const void *exact, *rounded;
  bool wide; // float64, else float32
  const Format* format{nullptr};
  int64_t n;
  Layout layout{};
  CountTable* tables{nullptr};
};

// ---- sums ----

using c10::formats::HalfParts;
using c10::formats::SumOrder;

// What the steps of a sum are rounded to (docs/numerics.md, "Accumulation").
struct StepPolicy {
  // outer: of the sums of chunks, where they are rounded
  Format product{}, sum{}, outer{}, result{};
  bool fused{false}, kahan{false}, exact_product{false}, rounds_chunks{false};
  int64_t chunk{0}; // terms; 0: all in one
  bool chunks_in_float{false}; // chunks are added in float32
  SumOrder order{SumOrder::Sequential}; // where it is another, there are no chunks
  int64_t lanes{1};
  int64_t divisor{1}; // of the finished sum, before its last rounding
  Seed seed{};
  StepCounts seen_products{}, seen_sums{}, seen_outer{};

  bool is_seen() const { return seen_products.tables || seen_sums.tables || seen_outer.tables; }
};

// Whether an accumulator's sums are the machine's: float32's, to nearest.
inline bool sums_in_binary32(const StepPolicy& p) {
  return c10::formats::is_binary32(p.sum) && p.sum.rounding == c10::formats::Rounding::NearestEven;
}

// Sums of blocks of products, and what their registers are rounded to at the end.
struct BlockPolicy {
  c10::formats::BlockAdder adder;
  Format result{};
  int64_t divisor{1};
  Seed seed{};
  StepCounts seen{}; // of what registers are rounded to
};

// Dot products, all of m * n in each batch, over k terms in their order.
struct DotShape {
  int64_t batches, m, k, n;
};

// Sums of products a[batch, m, k] * b[batch, k, n], or of b alone where a is nullptr and m is 1;
// start: what the accumulators hold first [batch, m, n], or nullptr. Where a byte of present[batch,
// k, n] or present_rows[batch, m, k] is 0, the term is not there.
template <typename T>
struct Dots {
  DotShape shape;
  const T *a, *b, *start;
  const uint8_t *present, *present_rows;
};

// Blocks of the last dimension that share a power of two as scale: their size, and the dimension's
// length; careful: what is not 0 stays so however small the block makes it.
struct Blocks {
  c10::formats::BlockScale scale;
  int64_t size, length;
  bool careful;
};

// One of several casts that are launched together, of which there are at most so many.
struct Cast {
  const void* from;
  void* to;
  int64_t n;
};
inline constexpr int kMostCasts = 4;

// second: for two parts.
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
  // Numbers to the format's numbers, rounded once, without codes in memory; results may be the
  // values. Of a finite one's code then, with probability flip_prob, one bit is flipped, by the
  // word of flip_seed.
  Status (*chop)(const Format&, const T* values, T* results, int64_t n, const RandomWords&,
                 double flip_prob, const Seed& flip_seed, Stream);
  // Values of a format to codes, every step rounded. As float where all formats have
  // arithmetic_in_float(), but that of the sums where these are float32's (one running sum, not
  // fused, no compensation).
  Status (*steps)(const StepPolicy&, const Dots<T>&, void* out, Stream);
  // The sums of the first 1, 2, ... k rows of values [batch, k, n] (m is 1).
  Status (*running_steps)(const StepPolicy&, const DotShape&, const T* values, void* out, Stream);
};

struct CudaKernels {
  NumberKernels<float> on_float;
  NumberKernels<double> on_double;

  // Codes to the parts that find_half_parts() has found of the format, of two tensors.
  Status (*decode_parts)(const Format&, const HalfParts&, const PartsCast&, const PartsCast&,
                         Stream);
  // Codes to float32 and back, several tensors in one launch where the format has a codec for it;
  // nothing that draws random words.
  Status (*decode_floats)(const Format&, const Cast*, int count, Stream);
  Status (*encode_floats)(const Format&, const Cast*, int count, Stream);
  Status (*encode_int64)(const Format&, const int64_t* values, void* codes, int64_t n,
                         const RandomWords&, Stream);
  Status (*encode_uint64)(const Format&, const uint64_t* values, void* codes, int64_t n,
                          const RandomWords&, Stream);
  // The sums of float32 numbers, of a matrix of n in rows of so many columns, and the numbers of
  // one row of codes; of formats with fits_float().
  Status (*encode_with_row)(const Format&, const float* values, const void* row, int64_t columns,
                            void* codes, int64_t n, const RandomWords&, Stream);
  // Codes where numbers of the same format exceed the threshold or are NaN, elsewhere 0; out may be
  // either.
  Status (*gate)(const Format&, const void* codes, const void* numbers, double threshold, void* out,
                 int64_t n, Stream);
  // double to float, to odd, so that a stock cast to a still narrower type rounds once.
  Status (*narrow_to_odd)(const double* values, float* results, int64_t n, Stream);
  // Numbers, divided by their block's scale, to the element format's numbers, and times the scale
  // again. The former are left in `scaled` and the latter in `rounded`, where there are such.
  Status (*chop_blocks)(const Format&, const Blocks&, const float* values, float* results,
                        int64_t n, const Seed& seed, float* scaled, float* rounded, Stream);
  // table[code] for codes of 1 or 2 bytes; out may be the codes.
  Status (*look_up)(const void* table, const void* codes, int itemsize, void* out, int64_t n,
                    Stream);

  // The codes after these, from their values towards other numbers; of formats that are no tables.
  Status (*next_codes)(const Format&, const void* codes, const double* from, const double* towards,
                       void* out, int64_t n, Stream);

  Status (*unary)(const Elementwise&, UnaryOp, Stream);
  Status (*binary)(const Elementwise&, BinaryOp, Stream);
  Status (*ternary)(const Elementwise&, TernaryOp, double s, Stream);
  Status (*programs)(const Programs&, Stream);

  Status (*count)(const Counting&, Stream);

  // Values of a format to codes, as NumberKernels::steps, block by block.
  Status (*blocks)(const BlockPolicy&, const Dots<double>&, void* out, Stream);
  // The same with one rounding of the exact sum of values of `operands`, divided by `divisor`.
  Status (*exact)(const Format& operands, const Format& result, const Dots<double>&,
                  int64_t divisor, void* out, const RandomWords&, Stream);
  // As NumberKernels::running_steps, block by block, and with one rounding of each exact sum.
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

// What each file contributes, by its last function.
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

// Sums of every step rounded in other orders than one running sum.
template <typename T>
Status ordered_sums(const StepPolicy& policy, const Dots<T>& dots, void* out, Stream stream);

// Sums of every step rounded, several to a thread, and whether these are such ones.
Status tile_sums(const StepPolicy& policy, const Dots<float>& dots, void* out, Stream stream);
bool serves_tiles(const StepPolicy& policy, const Dots<float>& dots);

} // namespace at::formats::cuda
