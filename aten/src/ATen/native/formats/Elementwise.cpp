#include <ATen/native/formats/Elementwise.h>

#include <ATen/FormatRounding.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_to_copy_ops.h>
#include <c10/formats/MixedArithmetic.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace at::formats {

Operand Operand::of(const at::Tensor& t) {
  // A stock tensor without dimensions is a number like any other. Integers of 2^53 and more round to float64 first.
  if (!is_format_tensor(t)) {
    if (t.dim() == 0) return {at::Tensor(), t.item().toDouble()};
    return {at::_ops::_to_copy::call(t, c10::ScalarType::Double, {}, {}, {}, false, {}), 0};
  }
  return {t, 0};
}

bool number_fits_float(double x) {
  return x == 0 || (static_cast<double>(static_cast<float>(x)) == x && std::abs(x) >= 0x1p-16 && std::abs(x) <= 0x1p16);
}

bool number_is_mixed(double x) {
  return std::abs(x) >= 1 / c10::formats::kLargestMixed && std::abs(x) <= c10::formats::kLargestMixed;
}

namespace {

constexpr int64_t kBlock = 1024;

void decode_block(const CpuKernels& k, const Format& f, const void* codes, float* values, int64_t n) {
  k.decode_float(f, codes, values, n);
}
void decode_block(const CpuKernels& k, const Format& f, const void* codes, double* values, int64_t n) {
  k.decode_double(f, codes, values, n);
}
void encode_block(const CpuKernels& k, const Format& f, const float* values, void* codes, int64_t n, const RandomWords& words) {
  k.encode_float(f, values, codes, n, words);
}
void encode_block(const CpuKernels& k, const Format& f, const double* values, void* codes, int64_t n, const RandomWords& words) {
  k.encode_double(f, values, codes, n, words);
}

// Elements of `width` bytes at a stride to contiguous ones, and back.
template <int Width>
void gather_as(const char* from, int64_t stride, char* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * Width, from + i * stride, Width);
}
template <int Width>
void scatter_as(const char* from, char* to, int64_t stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * stride, from + i * Width, Width);
}
void gather(int width, const char* from, int64_t stride, char* to, int64_t n) {
  switch (width) {
    case 1: return gather_as<1>(from, stride, to, n);
    case 2: return gather_as<2>(from, stride, to, n);
    case 4: return gather_as<4>(from, stride, to, n);
    default: return gather_as<8>(from, stride, to, n);
  }
}
void scatter(int width, const char* from, char* to, int64_t stride, int64_t n) {
  switch (width) {
    case 1: return scatter_as<1>(from, to, stride, n);
    case 2: return scatter_as<2>(from, to, stride, n);
    case 4: return scatter_as<4>(from, to, stride, n);
    default: return scatter_as<8>(from, to, stride, n);
  }
}

// One operand of one loop: where its values come from.
struct Source {
  const Format* format; // nullptr: float64 values, or the number
  const char* data;     // nullptr: the number
  int64_t stride;
  double number;

  // n values from element `first` on, into a block.
  template <typename T>
  void load(const CpuKernels& k, int64_t first, int64_t n, T* values) const {
    if (!data) {
      std::fill_n(values, n, static_cast<T>(number));
      return;
    }
    const char* from = data + first * stride;
    const int width = format ? format->itemsize() : 8;
    alignas(64) char packed[kBlock * 8];
    const int64_t distinct = stride == 0 ? 1 : n;
    if (stride != width && stride != 0) {
      gather(width, from, stride, packed, n);
      from = packed;
    }
    if (format) {
      decode_block(k, *format, from, values, distinct);
    } else {
      const auto* doubles = reinterpret_cast<const double*>(from);
      std::transform(doubles, doubles + distinct, values, [](double x) { return static_cast<T>(x); });
    }
    if (distinct != n) std::fill_n(values, n, values[0]);
  }
};

// Where the results of one loop go. An element's random word is numbered by its place in the output's memory, so that neither threads
// nor the order of loops change it.
struct Sink {
  const Format& format;
  char* data;
  int64_t stride;
  const char* origin; // of the whole output
  uint64_t seed;

  RandomWords words(const char* at) const {
    const int64_t width = format.itemsize();
    return {seed, static_cast<uint64_t>((at - origin) / width), static_cast<uint64_t>(stride / width)};
  }
};

// apply(kernels, format, operand blocks, codes, n, words): the operator and its encoding.
template <typename T, size_t N, typename Apply>
void run_blocks(const std::array<Source, N>& sources, const Sink& sink, int64_t n, const Apply& apply) {
  const CpuKernels& k = cpu_kernels();
  alignas(64) T blocks[N][kBlock];
  alignas(64) char packed[kBlock * 8];
  const int width = sink.format.itemsize();
  for (size_t j = 0; j < N; ++j) {
    if (!sources[j].data) sources[j].load(k, 0, std::min(n, kBlock), blocks[j]); // numbers: once for all blocks
  }
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t m = std::min(kBlock, n - first);
    for (size_t j = 0; j < N; ++j) {
      if (sources[j].data) sources[j].load(k, first, m, blocks[j]);
    }
    char* to = sink.data + first * sink.stride;
    apply(k, sink.format, blocks, sink.stride == width ? to : packed, m, sink.words(to));
    if (sink.stride != width) scatter(width, packed, to, sink.stride, m);
  }
}

// Sums by their signs: whether both terms of sum number i are positive, for the sign of a sum that is 0.
struct NoSum {};
template <typename Terms, typename T, typename Blocks>
void sign_zero_sums(const Terms& both_positive, const Blocks* blocks, T* sums, int64_t n) {
  if constexpr (!std::is_same_v<Terms, NoSum>) {
    for (int64_t i = 0; i < n; ++i) {
      if (sums[i] == 0) sums[i] = both_positive(blocks, i) ? T{0} : -T{0};
    }
  }
}

// Where a NaN has no code but the largest number's, its sign is seen, and that of an invalid operation (0/0) is the processor's: positive.
template <typename T>
void drop_signs_of_nan(const Format& f, T* results, int64_t n) {
  if (f.kind != c10::formats::Kind::Float || f.specials != c10::formats::Specials::None) return;
  for (int64_t i = 0; i < n; ++i) results[i] = results[i] != results[i] ? std::numeric_limits<T>::quiet_NaN() : results[i];
}

// From an operator on machine numbers to one that leaves codes. Rounding down, a sum that is 0 is -0 unless both terms are positive (IEEE
// 754-2019, section 6.3).
template <typename T, typename Apply, typename Terms>
auto encoding(const Apply& apply, const Terms& both_positive) {
  return [&apply, &both_positive](const CpuKernels& k, const Format& f, const auto* blocks, char* codes, int64_t n, const RandomWords& words) {
    alignas(64) T result[kBlock];
    apply(k, blocks, result, n);
    if (f.rounding == Rounding::Down) sign_zero_sums(both_positive, blocks, result, n);
    drop_signs_of_nan(f, result, n);
    encode_block(k, f, result, codes, n, words);
  };
}

// The same for float32 values with one float64 number, and where that is undecided in float64.
template <size_t N, typename Mixed, typename ApplyDouble, typename Terms>
auto encoding_mixed(const std::array<Source, N>& sources, const Mixed& mixed, const ApplyDouble& apply_double, const Terms& both_positive) {
  return [&](const CpuKernels& k, const Format& f, const float (*blocks)[kBlock], char* codes, int64_t n, const RandomWords& words) {
    alignas(64) float result[kBlock];
    if (mixed(k, blocks, result, n)) {
      if (f.rounding == Rounding::Down) sign_zero_sums(both_positive, blocks, result, n);
      drop_signs_of_nan(f, result, n);
      return encode_block(k, f, result, codes, n, words);
    }
    alignas(64) double wide[N][kBlock];
    for (size_t j = 0; j < N; ++j) {
      if (sources[j].data) std::copy_n(blocks[j], n, wide[j]);
      else std::fill_n(wide[j], n, sources[j].number);
    }
    encoding<double>(apply_double, both_positive)(k, f, wide, codes, n, words);
  };
}

// How an operator on float32 values takes one float64 number: (kernels, blocks, results, n) -> whether they are decided.
struct NotMixed {
  bool operator()(const CpuKernels&, const float (*)[kBlock], float*, int64_t) const { return false; }
};

// Broadcasts, allocates, splits over threads: TensorIterator's work, on the codes as integers.
template <size_t N, typename ApplyFloat, typename ApplyMixed, typename ApplyDouble, typename ApplyWide, typename Terms>
at::Tensor run(const std::array<const Operand*, N>& operands, const Target& target, bool in_float, bool mixed, ApplyFloat apply_float,
               ApplyMixed apply_mixed, ApplyDouble apply_double, ApplyWide apply_wide, Terms both_positive) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const Format out_format = rounding_format(target.entry);
  in_float = in_float && out_format.arithmetic_in_float();
  mixed = mixed && out_format.arithmetic_in_float();
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(true).check_all_same_dtype(false).resize_outputs(false);
  c10::Device device = c10::kCPU;
  for (const Operand* o : operands) {
    if (o->tensor.defined() && !o->tensor.device().is_cpu()) device = o->tensor.device();
  }
  TORCH_CHECK_NOT_IMPLEMENTED(device.is_cpu() || device.is_meta(), "expected CPU tensors, but got one on ", device,
                              ": this build of torch_dtypes has CPU kernels only. Move it with .cpu() first.");
  config.declare_static_dtype_and_device(target.entry.bits, device);
  config.add_owned_output(target.existing.defined() ? bits_alias(target.existing) : at::Tensor());
  bool any_tensor = false;
  for (const Operand* o : operands) {
    if (!o->tensor.defined()) {
      in_float = in_float && number_fits_float(o->number);
      continue;
    }
    any_tensor = true;
    const bool ours = is_format_tensor(o->tensor);
    const bool same = ours && &entry_of(o->tensor) == &target.entry;
    in_float = in_float && same;
    mixed = mixed && same;
    config.add_owned_const_input(ours ? bits_alias(o->tensor) : o->tensor);
  }
  TORCH_INTERNAL_ASSERT(any_tensor);
  at::TensorIterator iterator = config.build();
  const uint64_t seed = device.is_cpu() ? next_words(out_format).seed : 0;
  const char* origin = device.is_cpu() ? static_cast<const char*>(iterator.data_ptr(0)) : nullptr;
  const auto loop = [&](char** data, const int64_t* strides, int64_t n) {
    std::array<Source, N> sources;
    int argument = 1;
    for (size_t j = 0; j < N; ++j) {
      const Operand& o = *operands[j];
      if (!o.tensor.defined()) {
        sources[j] = {nullptr, nullptr, 0, o.number};
      } else {
        sources[j] = {is_format_tensor(o.tensor) ? &entry_of(o.tensor).format : nullptr, data[argument], strides[argument], 0};
        ++argument;
      }
    }
    const Sink sink{out_format, data[0], strides[0], origin, seed};
    if (in_float) {
      run_blocks<float>(sources, sink, n, encoding<float>(apply_float, both_positive));
    } else if (mixed) {
      run_blocks<float>(sources, sink, n, encoding_mixed(sources, apply_mixed, apply_double, both_positive));
    } else if (out_format.arithmetic_in_double()) {
      run_blocks<double>(sources, sink, n, encoding<double>(apply_double, both_positive));
    } else {
      run_blocks<double>(sources, sink, n, apply_wide);
    }
  };
  if (device.is_cpu()) iterator.for_each(loop);
  return target.existing.defined() ? target.existing : format_alias(iterator.output(), target.entry);
}

} // namespace

template <typename Terms>
static at::Tensor binary_by(BinaryOp op, const Operand& a, const Operand& b, const Target& target, Terms both_positive) {
  const bool first = !a.tensor.defined(), second = !b.tensor.defined();
  const double number = first ? a.number : b.number;
  return run<2>(
      {&a, &b}, target, true, first != second && number_is_mixed(number),
      [op](const CpuKernels& k, const float (*x)[kBlock], float* out, int64_t n) { k.binary_float(op, x[0], x[1], out, n); },
      [=](const CpuKernels& k, const float (*x)[kBlock], float* out, int64_t n) {
        return k.binary_mixed(op, first ? nullptr : x[0], first ? x[1] : nullptr, number, out, n);
      },
      [op](const CpuKernels& k, const double (*x)[kBlock], double* out, int64_t n) { k.binary_double(op, x[0], x[1], out, n); },
      [op](const CpuKernels& k, const Format& f, const double (*x)[kBlock], char* codes, int64_t n, const RandomWords& words) {
        k.binary_wide(f, op, x[0], x[1], codes, n, words);
      },
      both_positive);
}

at::Tensor elementwise(BinaryOp op, const Operand& a, const Operand& b, const Target& target) {
  switch (op) {
    case BinaryOp::Add: return binary_by(op, a, b, target, [](const auto* x, int64_t i) { return !std::signbit(x[0][i]) && !std::signbit(x[1][i]); });
    case BinaryOp::Sub: return binary_by(op, a, b, target, [](const auto* x, int64_t i) { return !std::signbit(x[0][i]) && std::signbit(x[1][i]); });
    default: return binary_by(op, a, b, target, NoSum{});
  }
}

at::Tensor elementwise(TernaryOp op, const Operand& a, const Operand& b, const Operand& c, double s, const Target& target) {
  // Two roundings in a row are as good as one only if the first is exact: a product of short values, no quotient and no difference.
  const bool exact_product = op == TernaryOp::Fma || op == TernaryOp::Addcmul;
  const bool in_float = number_fits_float(s) && target.entry.format.significand_bits() <= 12 && exact_product;
  const bool by_s = op == TernaryOp::Addcmul || op == TernaryOp::Addcdiv;
  const Operand* scalar = op == TernaryOp::Fma ? &a : op == TernaryOp::Lerp ? &c : nullptr;
  const double number = scalar ? scalar->number : s;
  bool mixed = number_is_mixed(number);
  for (const Operand* o : {&a, &b, &c}) mixed = mixed && o->tensor.defined() == (o != scalar);
  return run<3>(
      {&a, &b, &c}, target, in_float, mixed && (by_s || s == 1),
      [=](const CpuKernels& k, const float (*x)[kBlock], float* out, int64_t n) {
        k.ternary_float(op, x[0], x[1], x[2], static_cast<float>(s), out, n);
      },
      [=](const CpuKernels& k, const float (*x)[kBlock], float* out, int64_t n) { return k.ternary_mixed(op, x[0], x[1], x[2], number, out, n); },
      [=](const CpuKernels& k, const double (*x)[kBlock], double* out, int64_t n) { k.ternary_double(op, x[0], x[1], x[2], s, out, n); },
      [=](const CpuKernels& k, const Format& f, const double (*x)[kBlock], char* codes, int64_t n, const RandomWords& words) {
        k.ternary_wide(f, op, x[0], x[1], x[2], s, codes, n, words);
      },
      NoSum{});
}

at::Tensor elementwise_sqrt(const Operand& a, const Target& target) {
  return run<1>(
      {&a}, target, true, /*mixed=*/false, [](const CpuKernels& k, const float (*x)[kBlock], float* out, int64_t n) { k.sqrt_float(x[0], out, n); },
      NotMixed{}, [](const CpuKernels& k, const double (*x)[kBlock], double* out, int64_t n) { k.sqrt_double(x[0], out, n); },
      [](const CpuKernels& k, const Format& f, const double (*x)[kBlock], char* codes, int64_t n, const RandomWords& words) {
        k.sqrt_wide(f, x[0], codes, n, words);
      },
      NoSum{});
}

} // namespace at::formats
