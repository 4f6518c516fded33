// Dot products on raw memory: DotProducts.cpp's loops, which take sizes and pointers and know no
// tensor.
#pragma once
#include <ATen/native/formats/sums/StepSums.h>

namespace at::formats {

// Values of a format in the machine type T. a, start, present and present_rows may be nullptr; see
// DotProducts.h.
template <typename T>
struct DotOperands {
  int64_t batches, m, k, n;
  const T* a;     // [batches, m, k]
  const T* b;     // [batches, k, n]; exact_dots(): [batches, n, k]
  const T* start; // [batches, m, n]
  const uint8_t* present;      // as b
  const uint8_t* present_rows; // [batches, m, k]; exact_dots(): none
  int64_t divisor;
};

// Each fills codes: [batches, m, n] of the result's format.
template <typename T>
void step_dots(const CpuKernels& kernels, const DotOperands<T>& dots, const StepFormats& formats,
               const Accumulation& policy, char* codes);
void exact_dots(const DotOperands<double>& dots, const Format& f, const Format& result,
                const RandomWords& words, char* codes, const Recorder& seen);
// The same for n sums of the parts' numbers at one index. All are multiples of 2^last, and 127 bits
// hold the sums.
void exact_codes(const std::vector<const double*>& parts, int last, int64_t n, int64_t divisor,
                 const Format& result, const RandomWords& words, char* codes, const Recorder& seen);

// The sums of the first 1, 2, ... k rows of values, [batches, k, n], as codes of the same sizes.
template <typename T>
void running_step_sums(const CpuKernels& kernels, const T* values, int64_t batches, int64_t k,
                       int64_t n, const StepFormats& formats, const Accumulation& policy,
                       char* codes);
void running_exact_sums(const double* values, int64_t batches, int64_t k, int64_t n,
                        const Format& f, const Format& result, const RandomWords& words,
                        char* codes, const Recorder& seen);

} // namespace at::formats
