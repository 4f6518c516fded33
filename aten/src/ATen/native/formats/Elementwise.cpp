#include <ATen/native/formats/Elementwise.h>

#include <ATen/FormatRounding.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Observation.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>
#include <ATen/native/formats/DeviceKernels.h>
#include <ATen/native/formats/GpuElementwise.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_to_copy_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/resize_ops.h>
#include <c10/formats/FastBinary32.h>
#include <c10/formats/MixedArithmetic.h>
#include <c10/formats/NanSigns.h>
#include <c10/formats/ZeroSums.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

namespace at::formats {

Operand Operand::of(const at::Tensor& t) {
  // A stock tensor without dimensions is a number like any other, on meta one that nobody knows. Integers of 2^53 and more round to float64 first.
  if (!is_format_tensor(t)) {
    if (t.dim() == 0) return {at::Tensor(), t.is_meta() ? 0 : t.item().toDouble()};
    return {at::_ops::_to_copy::call(t, c10::ScalarType::Double, {}, {}, {}, false, {}), 0};
  }
  return {t, 0};
}

bool number_fits_float(double x) {
  return x == 0 || (static_cast<double>(static_cast<float>(x)) == x && std::abs(x) >= 0x1p-16 && std::abs(x) <= 0x1p16);
}

bool addcmul_fits_float(const Format& format, double s) {
  if (format.significand_bits() > 12) return false;
  return s == 1 || (number_fits_float(s) && std::abs(s) <= std::ldexp(1.0, 125 - 2 * format.max_exponent()));
}

bool number_is_mixed(double x) {
  return std::abs(x) >= 1 / c10::formats::kLargestMixed && std::abs(x) <= c10::formats::kLargestMixed;
}

namespace {

constexpr int64_t kBlock = 1024;

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
      k.decode(*format, from, values, distinct);
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
  Seed seed;
  const Recorder& seen;

  RandomWords words(const char* at) const {
    const int64_t width = format.itemsize();
    return {seed, static_cast<uint64_t>((at - origin) / width), static_cast<uint64_t>(stride / width)};
  }
};

// ---- operators, on blocks of their operands' values in the machine type T ----
//
// Each says when float32 is enough for it, and when float32 values with one float64 number are, and has
//   compute(k, x, out, n)               results rounded to odd
//   compute_mixed(k, x, out, n)         the same of float32 values and the number; false: undecided
//   compute_wide(k, f, x, codes, n, w)  codes, for formats whose results float64 does not decide
//   sign_zeros(mode, x, out, n)         of sums
//   launch(gpu, e)                      the whole call on a GPU
// What float32 needs of the formats is run()'s to say.

template <typename T>
using Blocks = const T (*)[kBlock];

struct BinaryBlocks {
  BinaryOp op;
  const Operand &a, &b;
  bool number_first = !a.tensor.defined(), number_second = !b.tensor.defined();
  double number = number_first ? a.number : b.number;
  bool in_float = true;
  bool mixed = number_first != number_second && number_is_mixed(number);

  template <typename T>
  void compute(const CpuKernels& k, Blocks<T> x, T* out, int64_t n) const {
    k.binary(op, x[0], x[1], out, n);
  }
  bool compute_mixed(const CpuKernels& k, Blocks<float> x, float* out, int64_t n) const {
    return k.binary_mixed(op, number_first ? nullptr : x[0], number_first ? x[1] : nullptr, number, out, n);
  }
  void compute_wide(const CpuKernels& k, const Format& f, Blocks<double> x, char* codes, int64_t n, const RandomWords& words) const {
    k.binary_wide(f, op, x[0], x[1], codes, n, words);
  }
  cuda::Status launch(const Gpu& gpu, const cuda::Elementwise& e) const { return gpu->binary(e, op, gpu.stream()); }
  template <typename T>
  void sign_zeros(Rounding mode, Blocks<T> x, T* sums, int64_t n) const {
    if (op != BinaryOp::Add && op != BinaryOp::Sub) return;
    c10::formats::sign_zero_sums(mode, sums, n, [&](int64_t i) { return !std::signbit(x[0][i]) && std::signbit(x[1][i]) == (op == BinaryOp::Sub); });
  }
};

struct TernaryBlocks {
  TernaryOp op;
  double s;
  bool in_float, mixed;
  double number; // the one beside float32 values

  template <typename T>
  void compute(const CpuKernels& k, Blocks<T> x, T* out, int64_t n) const {
    k.ternary(op, x[0], x[1], x[2], static_cast<T>(s), out, n);
  }
  bool compute_mixed(const CpuKernels& k, Blocks<float> x, float* out, int64_t n) const {
    return k.ternary_mixed(op, x[0], x[1], x[2], number, out, n);
  }
  void compute_wide(const CpuKernels& k, const Format& f, Blocks<double> x, char* codes, int64_t n, const RandomWords& words) const {
    k.ternary_wide(f, op, x[0], x[1], x[2], s, codes, n, words);
  }
  cuda::Status launch(const Gpu& gpu, const cuda::Elementwise& e) const { return gpu->ternary(e, op, s, gpu.stream()); }
  template <typename T>
  void sign_zeros(Rounding mode, Blocks<T> x, T* sums, int64_t n) const {
    c10::formats::sign_zero_sums(mode, sums, n, [&](int64_t i) { return terms_are_positive(op, x[0][i], x[1][i], x[2][i], static_cast<T>(s)); });
  }
};

struct RootBlocks {
  bool in_float = true;
  bool mixed = false;

  template <typename T>
  void compute(const CpuKernels& k, Blocks<T> x, T* out, int64_t n) const {
    k.sqrt(x[0], out, n);
  }
  bool compute_mixed(const CpuKernels&, Blocks<float>, float*, int64_t) const { return false; }
  void compute_wide(const CpuKernels& k, const Format& f, Blocks<double> x, char* codes, int64_t n, const RandomWords& words) const {
    k.sqrt_wide(f, x[0], codes, n, words);
  }
  cuda::Status launch(const Gpu& gpu, const cuda::Elementwise& e) const { return gpu->sqrt(e, gpu.stream()); }
  template <typename T>
  void sign_zeros(Rounding, Blocks<T>, T*, int64_t) const {}
};

// ---- the loop ----

// What one call computes with. Mixed: float32 values and one float64 number, and blocks that it leaves undecided in float64. Binary32: two
// operands of float32's own codes, rounded randomly, in one pass.
enum class Way : uint8_t { InFloat, Mixed, InDouble, Wide, Binary32 };

template <typename T, typename Operator>
void encode_results(const CpuKernels& k, const Sink& sink, const Operator& op, Blocks<T> blocks, T* results, char* codes, int64_t n,
                    const RandomWords& words) {
  const Format& f = sink.format;
  op.sign_zeros(f.rounding, blocks, results, n);
  c10::formats::drop_nan_signs(f, results, n);
  k.encode(f, results, codes, n, words);
  if (sink.seen) sink.seen.codes(results, codes, n);
}

template <typename T, typename Operator>
void compute_block(const CpuKernels& k, const Sink& sink, const Operator& op, Blocks<T> blocks, char* codes, int64_t n, const RandomWords& words) {
  alignas(64) T results[kBlock];
  op.compute(k, blocks, results, n);
  encode_results(k, sink, op, blocks, results, codes, n, words);
}

template <size_t N, typename Operator>
void compute_mixed_block(const CpuKernels& k, const Sink& sink, const Operator& op, const std::array<Source, N>& sources, Blocks<float> blocks,
                         char* codes, int64_t n, const RandomWords& words) {
  alignas(64) float results[kBlock];
  if (op.compute_mixed(k, blocks, results, n)) return encode_results(k, sink, op, blocks, results, codes, n, words);
  alignas(64) double wide[N][kBlock];
  for (size_t j = 0; j < N; ++j) {
    if (sources[j].data) std::copy_n(blocks[j], n, wide[j]);
    else std::fill_n(wide[j], n, sources[j].number);
  }
  compute_block<double>(k, sink, op, wide, codes, n, words);
}

// The results themselves are nowhere: float64's stand for them.
template <typename Operator>
void count_wide(const CpuKernels& k, const Sink& sink, const Operator& op, Blocks<double> blocks, const char* codes, int64_t n) {
  alignas(64) double results[kBlock];
  op.compute(k, blocks, results, n);
  sink.seen.codes(results, codes, n);
}

template <typename T, Way way, size_t N, typename Operator>
void run_blocks(const CpuKernels& k, const std::array<Source, N>& sources, const Sink& sink, int64_t n, const Operator& op) {
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

// The same where values are codes: nothing is decoded, and what lies at other strides than its width is gathered first.
template <size_t N, typename Operator>
void run_binary32(const CpuKernels& k, const std::array<Source, N>& sources, const Sink& sink, int64_t n, const Operator& op) {
  if constexpr (N == 2) {
    constexpr int width = sizeof(float);
    alignas(64) float blocks[N][kBlock];
    alignas(64) uint32_t packed[kBlock];
    const bool direct = sink.stride == width;
    for (int64_t first = 0; first < n; first += kBlock) {
      const int64_t m = std::min(kBlock, n - first);
      const float* x[N] = {};
      for (size_t j = 0; j < N; ++j) {
        if (!sources[j].data) continue;
        x[j] = reinterpret_cast<const float*>(sources[j].data + first * sources[j].stride);
        if (sources[j].stride == width) continue;
        if (sources[j].stride == 0) std::fill_n(blocks[j], m, *x[j]);
        else gather(width, sources[j].data + first * sources[j].stride, sources[j].stride, reinterpret_cast<char*>(blocks[j]), m);
        x[j] = blocks[j];
      }
      char* to = sink.data + first * sink.stride;
      uint32_t* codes = direct ? reinterpret_cast<uint32_t*>(to) : packed;
      k.binary_binary32(sink.format, op.op, x[0], x[1], static_cast<float>(op.number), codes, m, sink.words(to));
      if (!direct) scatter(width, reinterpret_cast<const char*>(packed), to, sink.stride, m);
    }
  }
}

// Whether that is how a call runs, but for its operands' formats.
template <typename Operator>
bool runs_as_binary32(const Operator&, const Format&) {
  return false;
}
bool runs_as_binary32(const BinaryBlocks& op, const Format& f) {
  const bool number = op.number_first || op.number_second;
  if (number && (op.number_first == op.number_second || static_cast<double>(static_cast<float>(op.number)) != op.number)) return false;
  return ((f.rounding == Rounding::Stochastic && f.random_bits == 0) || f.rounding == Rounding::UpDown) && c10::formats::is_binary32(f);
}

// Broadcasts, allocates, splits over threads: TensorIterator's work, on the codes as integers.
template <size_t N, typename Operator>
at::Tensor run(const std::array<const Operand*, N>& operands, const Target& target, const Operator& op) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const Format out_format = rounding_format(target.entry);
  // Float32's results, rounded to odd, have bits to spare over narrow formats alone: errors are measured on float64's of others.
  const bool short_of_bits = observing() && out_format.significand_bits() > 12;
  bool in_float = op.in_float && out_format.arithmetic_in_float() && !short_of_bits;
  bool mixed = op.mixed && out_format.arithmetic_in_float() && !(short_of_bits && N < 3);
  // In one pass there are no exact results at hand to count: the other ways draw the same words.
  bool binary32 = runs_as_binary32(op, out_format) && !observing();
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(true).check_all_same_dtype(false).resize_outputs(false);
  c10::Device device = c10::kCPU;
  for (const Operand* o : operands) {
    if (o->tensor.defined() && !o->tensor.device().is_cpu()) device = o->tensor.device();
  }
  expect_kernels(device, "arithmetic"); // an error before any work
  binary32 = binary32 && !on_gpu(device);
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
    binary32 = binary32 && ours && c10::formats::is_binary32(entry_of(o->tensor).format);
    config.add_owned_const_input(ours ? bits_alias(o->tensor) : o->tensor);
  }
  TORCH_INTERNAL_ASSERT(any_tensor);
  const Way way = binary32                ? Way::Binary32
      : in_float                          ? Way::InFloat
      : mixed                             ? Way::Mixed
      : out_format.arithmetic_in_double() ? Way::InDouble
                                          : Way::Wide;
  at::TensorIterator iterator = config.build();
  const auto result = [&] { return target.existing.defined() ? target.existing : format_alias(iterator.output(), target.entry); };
  if (device.is_meta()) return result();
  const Seed seed = next_words(out_format, {}, device).seed;
  if (on_gpu(device)) {
    const Gpu gpu(device, "arithmetic");
    gpu.expect(out_format);
    for (const Operand* o : operands) {
      if (o->tensor.defined() && is_format_tensor(o->tensor)) gpu.expect(entry_of(o->tensor).format);
    }
    const auto computing = way == Way::InFloat ? cuda::Arithmetic::Float : way == Way::Mixed ? cuda::Arithmetic::Mixed : cuda::Arithmetic::Double;
    expect_narrow(way != Way::Wide, target.entry);
    gpu.check(op.launch(gpu, gpu_elementwise(iterator, operands, out_format, computing, seed)));
    return result();
  }
  const CpuKernels& k = kernels(device, "arithmetic");
  const char* origin = static_cast<const char*>(iterator.data_ptr(0));
  // Whose states an optimizer computes with says whose results they are.
  const bool updating = observing() && observed_thread().updating && operands[0]->tensor.defined();
  const void* read = updating ? operands[0]->tensor.unsafeGetTensorImpl()->data() : nullptr;
  const Recorder seen = recorder(target.entry.format, origin, read);
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
    const Sink sink{out_format, data[0], strides[0], origin, seed, seen};
    switch (way) {
      case Way::InFloat: return run_blocks<float, Way::InFloat>(k, sources, sink, n, op);
      case Way::Mixed: return run_blocks<float, Way::Mixed>(k, sources, sink, n, op);
      case Way::InDouble: return run_blocks<double, Way::InDouble>(k, sources, sink, n, op);
      case Way::Wide: return run_blocks<double, Way::Wide>(k, sources, sink, n, op);
      case Way::Binary32: return run_binary32(k, sources, sink, n, op);
    }
  };
  iterator.for_each(loop);
  return result();
}

// The operands with numbers in the place of tensors without dimensions that lie on the CPU, beside tensors of another device; nothing where there are
// none.
std::optional<std::vector<Operand>> beside_device(at::ArrayRef<const Operand*> operands) {
  const auto elsewhere = [](const Operand* o) { return o->tensor.defined() && !o->tensor.device().is_cpu(); };
  if (std::none_of(operands.begin(), operands.end(), elsewhere)) return {};
  const auto number = [](const Operand* o) { return is_format_tensor(o->tensor) && o->tensor.device().is_cpu() && o->tensor.dim() == 0; };
  if (std::none_of(operands.begin(), operands.end(), number)) return {};
  std::vector<Operand> moved;
  for (const Operand* o : operands) moved.push_back(number(o) ? Operand{at::Tensor(), o->tensor.item().toDouble()} : *o);
  return moved;
}

} // namespace

at::Tensor elementwise(BinaryOp op, const Operand& a, const Operand& b, const Target& target) {
  if (const auto moved = beside_device({&a, &b})) return elementwise(op, (*moved)[0], (*moved)[1], target);
  return run<2>({&a, &b}, target, BinaryBlocks{op, a, b});
}

at::Tensor elementwise(TernaryOp op, const Operand& a, const Operand& b, const Operand& c, double s, const Target& target) {
  if (const auto moved = beside_device({&a, &b, &c})) return elementwise(op, (*moved)[0], (*moved)[1], (*moved)[2], s, target);
  // Two roundings in a row are as good as one only if the first loses nothing: a product of short values, no quotient and no difference.
  const bool product = op == TernaryOp::Fma || op == TernaryOp::Addcmul;
  const bool by_s = op == TernaryOp::Addcmul || op == TernaryOp::Addcdiv;
  const bool short_factors = a.tensor.defined() && b.tensor.defined(); // a number has more digits, which s == 1 leaves to the one fused operation
  const Operand* scalar = op == TernaryOp::Fma ? &a : op == TernaryOp::Lerp ? &c : nullptr;
  const double number = scalar ? scalar->number : s;
  bool mixed = number_is_mixed(number) && (by_s || s == 1);
  for (const Operand* o : {&a, &b, &c}) mixed = mixed && o->tensor.defined() == (o != scalar);
  return run<3>({&a, &b, &c}, target,
                TernaryBlocks{
                    .op = op,
                    .s = s,
                    .in_float = product && (s == 1 || short_factors) && addcmul_fits_float(target.entry.format, s),
                    .mixed = mixed,
                    .number = number,
                });
}

at::Tensor elementwise_sqrt(const Operand& a, const Target& target) {
  return run<1>({&a}, target, RootBlocks{});
}

at::Tensor& store(const at::Tensor& result, at::Tensor& out, at::ArrayRef<at::Tensor> operands) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  TORCH_CHECK(c10::canCast(is_format_tensor(result) ? c10::kFloat : result.scalar_type(), is_format_tensor(out) ? c10::kFloat : out.scalar_type()),
              "result type ", is_format_tensor(result) ? entry_of(result).name : c10::toString(result.scalar_type()),
              " can't be cast to the desired output type ", is_format_tensor(out) ? entry_of(out).name : c10::toString(out.scalar_type()));
  TORCH_CHECK(out.device() == result.device(), "expected out= on the same device as the operands, ", result.device(), ", but got one on ",
              out.device());
  if (out.sizes() != result.sizes()) {
    if (out.numel() != 0) at::native::resize_output_check(out, result.sizes());
    at::_ops::resize_::call(out, c10::fromIntArrayRefSlow(result.sizes()), {});
  }
  at::assert_no_internal_overlap(out);
  for (const at::Tensor& t : operands) at::assert_no_partial_overlap(out, t);
  return at::_ops::copy_::call(out, result, false);
}

} // namespace at::formats
