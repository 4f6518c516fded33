// The CPU's loops over codes and machine numbers: raw pointers, contiguous memory, one thread. They
// know no tensor and include no header of PyTorch.
//
// Each kernel file is compiled once per vector unit (CPU_CAPABILITY), and cpu_kernels() chooses the
// widest that the processor has.
#pragma once
#include <c10/formats/RoundingCounts.h>
#include <c10/formats/arithmetic/FunctionEnds.h>
#include <c10/formats/arithmetic/Operations.h>
#include <c10/formats/codec/Philox.h>

#include <cstdint>
#include <type_traits>

namespace at::formats {

using c10::formats::BinaryOp;
using c10::formats::CountFlags;
using c10::formats::CountLimits;
using c10::formats::Format;
using c10::formats::FunctionEnds;
using c10::formats::kCountBins;
using c10::formats::RandomWords;
using c10::formats::Seed;
using c10::formats::TernaryOp;
using c10::formats::UnaryOp;

inline constexpr int kPairPadding = 3; // bytes that a gather of 4 may read behind the last one

// Counts made where numbers are rounded (c10/formats/RoundingCounts.h), in CountKernel.cpp.
inline constexpr int kTouchedBins = 64;
// The bit of a bin from which on it counts elements; squares of 24 bits are added below.
inline constexpr int kCountShift = 44;
inline constexpr int64_t kMaxCounted = int64_t{1} << 19; // between two times that bins are emptied
struct CountWork {
  CountFlags flags;
  // Two tables, so that neighbours of one exponent do not wait for each other.
  uint64_t exact[2][kCountBins], error[2][kCountBins];
  uint8_t touched[kCountBins / kTouchedBins]; // which stretches of bins are not all 0
};

// Loops over machine numbers of one type, float or double.
template <typename T>
struct NumberKernels {
  // Decodes to machine numbers, exactly. float: only formats with fits_float(), and tables, whose
  // values it rounds to float32.
  void (*decode)(const Format&, const void* codes, T* values, int64_t n);
  // Encodes machine numbers, rounded once by the format's rule. Stochastic modes take their bits
  // from the words.
  void (*encode)(const Format&, const T* values, void* codes, int64_t n, const RandomWords&);
  // Rounds machine numbers to values of the format, in other memory. Returns false if that needs
  // codes; then the results are undefined.
  bool (*round)(const Format&, const T* values, T* results, int64_t n);
  // Computes results rounded to odd (c10/formats/arithmetic/OddArithmetic.h); encoding then rounds
  // them correctly. out may be an input.
  void (*binary)(BinaryOp, const T* a, const T* b, T* out, int64_t n);
  void (*ternary)(TernaryOp, const T* a, const T* b, const T* c, T s, T* out, int64_t n);
  void (*unary)(UnaryOp, const T* a, T* out, int64_t n);
  // Counts exact and rounded values; n up to kMaxCounted since the bins were empty.
  void (*count)(const CountLimits&, const T* exact, const T* rounded, int64_t n, CountWork&);
};

struct CpuKernels {
  const char* name;
  NumberKernels<float> on_float;
  NumberKernels<double> on_double;

  // Encodes integers, as `encode` does machine numbers.
  void (*encode_int64)(const Format&, const int64_t* values, void* codes, int64_t n,
                       const RandomWords&);
  void (*encode_uint64)(const Format&, const uint64_t* values, void* codes, int64_t n,
                        const RandomWords&);

  // float32 values and one number of magnitude up to kLargestMixed, rounded to odd. The number
  // replaces the operand that is nullptr. In addcmul and addcdiv it is s; in the other ternary
  // operations it is fma's a or lerp's c. Returns false if a result is undecided; then out is
  // undefined.
  bool (*binary_mixed)(BinaryOp, const float* a, const float* b, double number, float* out,
                       int64_t n);
  bool (*ternary_mixed)(TernaryOp, const float* a, const float* b, const float* c, double number,
                        float* out, int64_t n);
  // From values of a format with arithmetic_in_float() to codes, in one pass, if results of float32
  // round to the format as exact ones do. Returns false if not, or for formats that it lacks.
  bool (*binary_to_codes)(const Format&, BinaryOp, const float* a, const float* b, void* codes,
                          int64_t n);
  // From operands to codes, for formats without arithmetic_in_double().
  void (*binary_wide)(const Format&, BinaryOp, const double* a, const double* b, void* codes,
                      int64_t n, const RandomWords&);
  void (*ternary_wide)(const Format&, TernaryOp, const double* a, const double* b, const double* c,
                       double s, void* codes, int64_t n, const RandomWords&);
  void (*unary_wide)(const Format&, UnaryOp, const double* a, void* codes, int64_t n,
                     const RandomWords&);
  // From operands to results, for formats with float32's codes, in the modes stochastic and
  // up_down. The number, a float32 one, replaces the operand that is nullptr. codes may be an
  // operand.
  void (*binary_binary32)(const Format&, BinaryOp, const float* a, const float* b, float number,
                          uint32_t* codes, int64_t n, const RandomWords&);
  // table[code] for codes of 1 or 2 bytes.
  void (*look_up)(const float* table, const void* codes, int itemsize, float* values, int64_t n);
  // Looks up two codes of 1 byte in a table of 256 * 256 codes, which is kPairPadding longer. out
  // may be an operand.
  void (*look_up_pair)(const uint8_t* table, const uint8_t* high, const uint8_t* low, uint8_t* out,
                       int64_t n);
  // Corrects a function's results in place, where float64 lacks the exact ones.
  void (*put_ends)(const FunctionEnds&, const double* operands, double* results, int64_t n);
  // Narrows double to float, to odd, so that a stock cast to a still narrower type rounds once.
  void (*narrow_to_odd)(const double* a, float* out, int64_t n);

  template <typename T>
  const NumberKernels<T>& of() const {
    if constexpr (std::is_same_v<T, float>) return on_float;
    else return on_double;
  }

  // The loops of NumberKernels, chosen by the type of their arguments.
  template <typename T>
  void decode(const Format& f, const void* codes, T* values, int64_t n) const {
    of<T>().decode(f, codes, values, n);
  }
  template <typename T>
  void encode(const Format& f, const T* values, void* codes, int64_t n,
              const RandomWords& w) const {
    of<T>().encode(f, values, codes, n, w);
  }
  template <typename T>
  bool round(const Format& f, const T* values, T* results, int64_t n) const {
    return of<T>().round(f, values, results, n);
  }
  template <typename T>
  void binary(BinaryOp op, const T* a, const T* b, T* out, int64_t n) const {
    of<T>().binary(op, a, b, out, n);
  }
  template <typename T>
  void ternary(TernaryOp op, const T* a, const T* b, const T* c, T s, T* out, int64_t n) const {
    of<T>().ternary(op, a, b, c, s, out, n);
  }
  template <typename T>
  void unary(UnaryOp op, const T* a, T* out, int64_t n) const {
    of<T>().unary(op, a, out, n);
  }
  template <typename T>
  void count(const CountLimits& l, const T* exact, const T* rounded, int64_t n,
             CountWork& w) const {
    of<T>().count(l, exact, rounded, n, w);
  }
};

// The kernel files of one vector unit; each ends with a function that fills the table.
#define AT_FORALL_KERNEL_FILES(_) \
  _(codec)                        \
  _(round)                        \
  _(arithmetic)                   \
  _(mixed)                        \
  _(binary32)                     \
  _(wide)                         \
  _(table)                        \
  _(count)                        \
  _(ends)

// The CPU's table, for code without tensors. ATen/native/formats/gpu/DeviceKernels.h finds tables
// by device.
const CpuKernels& cpu_kernels();

} // namespace at::formats
