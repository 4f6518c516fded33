// Counts in device memory what rounding did to numbers: c10/formats/RoundingCounts.h, one bin per
// exponent.
#include <ATen/native/formats/cuda/Codec.h>
#include <ATen/native/formats/cuda/CountTable.h>

namespace at::formats::cuda {
namespace {

// A thread counts its elements' flags in registers. All threads add numbers to the same bins. The
// bins have copies, so that threads wait less for each other.
constexpr int64_t kMostThreads = int64_t{1} << 17;

struct Count {
  CountLimits limits;
  const void *exact, *rounded;
  bool wide, coded;
  int width; // bytes of a code
  Decoder<double> decode;
  Layout layout;
  int64_t n, threads;
  CountTable* tables;

  TD_HOST_DEVICE double number(const void* numbers, int64_t i) const {
    return wide ? static_cast<const double*>(numbers)[i]
                : static_cast<double>(static_cast<const float*>(numbers)[i]);
  }
  TD_HOST_DEVICE double result(int64_t i) const {
    if (!coded) return number(rounded, i);
    int64_t offset = layout.dims == 0 ? i * width : 0;
    for (int d = 0; d < layout.dims; ++d) {
      const int64_t next = i / layout.sizes[d];
      offset += (i - next * layout.sizes[d]) * layout.strides[0][d];
      i = next;
    }
    return decode(code_at(static_cast<const char*>(rounded) + offset, width));
  }

  TD_HOST_DEVICE void operator()(int64_t thread) const {
    CountTable& table = tables[thread % kCountCopies];
    CountFlags flags;
    for (int64_t i = thread; i < n; i += threads) {
      const double x = number(exact, i), r = result(i);
      flags.count(limits, x, r);
      count_exponents(table, x, r);
    }
    flags.each(table.flags, AddTo());
  }
};

Status count(const Counting& c, Stream stream) {
  const Format any = c10::formats::float_format(11, 52); // used where nothing is decoded
  const int64_t threads = c.n < kMostThreads ? c.n : kMostThreads;
  const Count body{c.limits,
                   c.exact,
                   c.rounded,
                   c.wide,
                   c.format != nullptr,
                   c.format ? c.format->itemsize() : 0,
                   Decoder<double>(c.format ? *c.format : any),
                   c.layout,
                   c.n,
                   threads,
                   c.tables};
  return for_each(threads, stream, body);
}

} // namespace

void fill_count(CudaKernels& k) {
  k.count = &count;
}

} // namespace at::formats::cuda
