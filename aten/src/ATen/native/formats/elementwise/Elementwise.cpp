#include <ATen/native/formats/elementwise/Elementwise.h>

#include <ATen/FormatRounding.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Observation.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>
#include <ATen/native/formats/elementwise/CpuCall.h>
#include <ATen/native/formats/elementwise/ElementwiseLoops.h>
#include <ATen/native/formats/elementwise/ResizeOutput.h>
#include <ATen/native/formats/gpu/DeviceKernels.h>
#include <ATen/native/formats/gpu/GpuElementwise.h>
#include <ATen/native/formats/gpu/GpuObservation.h>
#include <ATen/native/formats/stock/Backend.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_to_copy_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <c10/formats/arithmetic/MixedArithmetic.h>
#include <c10/formats/codec/ExactCodec.h>
#include <c10/formats/codec/FastBinary32.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

namespace at::formats {

Operand Operand::of(const at::Tensor& t) {
  // A stock tensor without dimensions is a number; on meta its value is unknown. Integers of 2^53
  // and more round to float64 first.
  if (!is_format_tensor(t)) {
    if (t.dim() == 0) return {at::Tensor(), t.is_meta() ? 0 : t.item().toDouble()};
    return {at::_ops::_to_copy::call(t, c10::ScalarType::Double, {}, {}, {}, false, {}), 0};
  }
  return {t, 0};
}

bool number_fits_float(double x) {
  return x == 0 ||
      (static_cast<double>(static_cast<float>(x)) == x && std::abs(x) >= 0x1p-16 &&
       std::abs(x) <= 0x1p16);
}

bool addcmul_fits_float(const Format& format, double s) {
  if (format.significand_bits() > 12) return false;
  return s == 1 ||
      (number_fits_float(s) && std::abs(s) <= std::ldexp(1.0, 125 - 2 * format.max_exponent()));
}

bool number_is_mixed(double x) {
  return std::abs(x) >= 1 / c10::formats::kLargestMixed &&
      std::abs(x) <= c10::formats::kLargestMixed;
}

namespace {

using namespace elementwise_loops;
using c10::formats::operations::Place;

// Whether a call takes the path Binary32, apart from its operands' formats.
template <typename Operator>
bool runs_as_binary32(const Operator&, const Format&) {
  return false;
}
bool runs_as_binary32(const BinaryBlocks& op, const Format& f) {
  const bool number = op.number_first || op.number_second;
  if (number &&
      (op.number_first == op.number_second ||
       static_cast<double>(static_cast<float>(op.number)) != op.number))
    return false;
  return ((f.rounding == Rounding::Stochastic && f.random_bits == 0) ||
          f.rounding == Rounding::UpDown) &&
      c10::formats::is_binary32(f);
}

bool has_number(Format f, double x) {
  f.rounding = Rounding::NearestEven;
  return c10::formats::to_double(
             c10::formats::decode(f, c10::formats::encode(f, c10::formats::unpack(x)))) == x;
}

// Whether all operands are numbers of one logarithmic table, in any mode.
template <size_t N>
bool are_logarithms(const std::array<const Operand*, N>& operands, const Format& f) {
  return c10::formats::is_logarithmic(f) &&
      std::all_of(operands.begin(), operands.end(), [&](const Operand* o) {
           if (!o->tensor.defined()) return has_number(f, o->number);
           return is_format_tensor(o->tensor) && entry_of(o->tensor).format.table == f.table;
         });
}

// A GPU's results before they are rounded, by the format of float32 or of float64, which leaves
// them unchanged. They are contiguous.
template <typename Operator>
at::Tensor exact_results(const Gpu& gpu, const Operator& op, cuda::Elementwise e,
                         c10::Device device) {
  const bool narrow = e.in == cuda::Arithmetic::Float;
  const at::Tensor exact =
      at::empty({e.n},
                at::TensorOptions()
                    .dtype(narrow ? c10::ScalarType::Float : c10::ScalarType::Double)
                    .device(device));
  if (!narrow) e.in = cuda::Arithmetic::Double;
  e.result = narrow ? c10::formats::float_format(8, 23) : c10::formats::float_format(11, 52);
  e.out = exact.mutable_data_ptr();
  int64_t stride = e.result.itemsize();
  for (int d = 0; d < e.layout.dims; ++d) {
    e.layout.strides[0][d] = stride;
    stride *= e.layout.sizes[d];
  }
  gpu.check(op.launch(gpu, e));
  return exact;
}

void expect_near_one(double number, const Target& target, c10::Device device) {
  const double size = std::abs(number);
  TORCH_CHECK_NOT_IMPLEMENTED(
      size == 0 || !(size < 0x1p-400 || size > 0x1p400) || std::isinf(size), "arithmetic in ",
      target.entry.name, ": expected a number from 2^-400 to 2^400 for ",
      "stock operators, but got ", number, ". ", advice_without_stock(device));
}

// Decodes operands to float64, runs stock operators on them, and encodes the results.
template <size_t N, typename Operator>
at::Tensor run_by_stock(const std::array<const Operand*, N>& operands, const Target& target,
                        const Operator& op, const Format& out_format, c10::Device device) {
  TORCH_CHECK_NOT_IMPLEMENTED(out_format.arithmetic_in_double(), "arithmetic in ",
                              target.entry.name,
                              ": expected a format whose arithmetic float64 can do by stock "
                              "operators, but got another. ",
                              advice_without_stock(device));
  if constexpr (requires { op.s; }) expect_near_one(op.s, target, device);
  if (target.existing.defined()) at::assert_no_internal_overlap(target.existing);
  std::array<at::Tensor, N> x;
  for (size_t j = 0; j < N; ++j) {
    const Operand& o = *operands[j];
    if (!o.tensor.defined()) {
      expect_near_one(o.number, target, device);
      x[j] = at::scalar_tensor(o.number,
                               at::TensorOptions().dtype(c10::ScalarType::Double).device(device));
      continue;
    }
    if (target.existing.defined()) at::assert_no_partial_overlap(target.existing, o.tensor);
    x[j] = is_format_tensor(o.tensor) ? decoded(o.tensor, c10::ScalarType::Double) : o.tensor;
  }
  at::Tensor exact = op.by_stock(out_format.rounding, x);
  if (c10::formats::shows_nan_signs(out_format)) {
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    exact = at::where(exact.isnan(), at::scalar_tensor(nan, exact.options()), exact);
  }
  if (!target.existing.defined()) return encoded(exact, target.entry);
  encode_into(target.existing, exact);
  return target.existing;
}

// TensorIterator broadcasts, allocates and splits over threads, with the codes as integers.
template <size_t N, typename Operator>
at::Tensor run(const std::array<const Operand*, N>& operands, const Target& target,
               const Operator& op) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  Format out_format = rounding_format(target.entry);
  const bool logarithms = op.on_logarithms && are_logarithms(operands, out_format);
  if (logarithms) out_format = c10::formats::on_logarithms(out_format);
  c10::Device device = c10::kCPU;
  for (const Operand* o : operands) {
    if (o->tensor.defined() && !o->tensor.device().is_cpu()) device = o->tensor.device();
  }
  if (by_stock(device)) {
    const LogarithmGuard rounds_logarithms(logarithms);
    return run_by_stock<N>(operands, target, op, out_format, device);
  }
  // Results rounded to odd in float32 have spare bits only for narrow formats. For other formats
  // errors are measured from float64 results.
  const bool short_of_bits = observing() && out_format.significand_bits() > 12;
  bool in_float = op.in_float && out_format.arithmetic_in_float() && !short_of_bits;
  bool mixed = op.mixed && out_format.arithmetic_in_float() && !short_of_bits;
  // One pass keeps no exact results to count. The other paths draw the same words.
  bool binary32 = runs_as_binary32(op, out_format) && !observing();
  expect_kernels(device, "arithmetic"); // an error before any work
  binary32 = binary32 && !on_gpu(device);
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
  }
  TORCH_INTERNAL_ASSERT(any_tensor);
  Way way = Way::Wide;
  if (binary32) way = Way::Binary32;
  else if (in_float) way = Way::InFloat;
  else if (mixed) way = Way::Mixed;
  else if (out_format.arithmetic_in_double()) way = Way::InDouble;
  if (on_host(device) && are_contiguous(operands, target))
    return run_contiguous(operands, target, op, out_format, way);
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(true).check_all_same_dtype(false).resize_outputs(false);
  config.declare_static_dtype_and_device(target.entry.bits, device);
  config.add_owned_output(target.existing.defined() ? bits_alias(target.existing) : at::Tensor());
  for (const Operand* o : operands) {
    if (o->tensor.defined())
      config.add_owned_const_input(is_format_tensor(o->tensor) ? bits_alias(o->tensor) : o->tensor);
  }
  at::TensorIterator iterator = config.build();
  const auto result = [&] {
    return target.existing.defined() ? target.existing
                                     : format_alias(iterator.output(), target.entry);
  };
  if (device.is_meta()) return result();
  if (c10::formats::is_stochastic(out_format.rounding) && target.existing.defined() &&
      !target.existing.is_non_overlapping_and_dense()) {
    // Random words depend on places in memory. If there is other memory between the result's
    // elements, they must draw as in a new tensor, from which they are copied. Then a graph that
    // computes new tensors instead, as torch.compile's do, draws the same words.
    bits_alias(target.existing).copy_(bits_alias(run(operands, Target{target.entry, {}}, op)));
    return target.existing;
  }
  const char* origin = static_cast<const char*>(iterator.data_ptr(0));
  if (on_gpu(device)) {
    const Gpu gpu(device, "arithmetic");
    gpu.expect(out_format);
    for (const Operand* o : operands) {
      if (o->tensor.defined() && is_format_tensor(o->tensor))
        gpu.expect(entry_of(o->tensor).format);
    }
    const auto not_in_float =
        way == Way::Mixed ? cuda::Arithmetic::Mixed : cuda::Arithmetic::Double;
    const auto computing = way == Way::InFloat ? cuda::Arithmetic::Float : not_in_float;
    expect_narrow(way != Way::Wide, target.entry);
    const Seed seed = next_words(out_format, {}, device).seed;
    const Recorder seen = recorder_of_call(target, origin, *operands[0]);
    const cuda::Elementwise e = gpu_elementwise(iterator, operands, out_format, computing, seed);
    // Before the launch, because results may overwrite operands.
    const at::Tensor exact = seen ? exact_results(gpu, op, e, device) : at::Tensor();
    gpu.check(op.launch(gpu, e));
    if (seen) count_codes_on_gpu(seen, exact, e.out, e.layout);
    return result();
  }
  CpuCall<N, Operator> call(operands, target, op, out_format, way, origin);
  iterator.for_each(
      [&](char** data, const int64_t* strides, int64_t n) { call.run(data, strides, n); });
  call.finish();
  return result();
}

// Allocates the result of a sum with a product. If the operands' dimensions differ in order, it has
// the addend's, as in stock PyTorch. (PyTorch's operators take the addend first, these kernels
// last.)
at::Tensor memory_of_sum(std::initializer_list<const Operand*> addend_first,
                         const FormatEntry& entry) {
  at::TensorIteratorConfig config;
  c10::Device device = c10::kCPU;
  for (const Operand* o : addend_first) {
    if (o->tensor.defined() && !o->tensor.device().is_cpu()) device = o->tensor.device();
  }
  config.check_all_same_dtype(false)
      .declare_static_dtype_and_device(entry.bits, device)
      .add_owned_output(at::Tensor());
  for (const Operand* o : addend_first) {
    if (o->tensor.defined())
      config.add_owned_const_input(is_format_tensor(o->tensor) ? bits_alias(o->tensor) : o->tensor);
  }
  return format_alias(config.build().output(), entry);
}

bool of_one_layout(std::initializer_list<const Operand*> operands) {
  const at::Tensor* first = nullptr;
  return std::all_of(operands.begin(), operands.end(), [&](const Operand* o) {
    if (!o->tensor.defined()) return true;
    if (!first) first = &o->tensor;
    return o->tensor.sizes() == first->sizes() && o->tensor.strides() == first->strides();
  });
}

// Replaces tensors without dimensions on the CPU by numbers, if another operand is on another
// device. Returns nothing if there is no such tensor.
std::optional<std::vector<Operand>> beside_device(at::ArrayRef<const Operand*> operands) {
  const auto elsewhere = [](const Operand* o) {
    return o->tensor.defined() && !o->tensor.device().is_cpu();
  };
  if (std::none_of(operands.begin(), operands.end(), elsewhere)) return {};
  const auto number = [](const Operand* o) {
    return is_format_tensor(o->tensor) && o->tensor.device().is_cpu() && o->tensor.dim() == 0;
  };
  if (std::none_of(operands.begin(), operands.end(), number)) return {};
  std::vector<Operand> moved;
  for (const Operand* o : operands)
    moved.push_back(number(o) ? Operand{at::Tensor(), o->tensor.item().toDouble()} : *o);
  return moved;
}

} // namespace

at::Tensor elementwise(UnaryOp op, const Operand& a, const Target& target) {
  return run<1>({&a}, target, UnaryBlocks{op});
}

at::Tensor elementwise(BinaryOp op, const Operand& a, const Operand& b, const Target& target) {
  if (const auto moved = beside_device({&a, &b}))
    return elementwise(op, (*moved)[0], (*moved)[1], target);
  return run<2>({&a, &b}, target, BinaryBlocks{op, a, b});
}

at::Tensor elementwise(TernaryOp op, const Operand& a, const Operand& b, const Operand& c, double s,
                       const Target& target) {
  if (const auto moved = beside_device({&a, &b, &c}))
    return elementwise(op, (*moved)[0], (*moved)[1], (*moved)[2], s, target);
  const bool adds_to_c = with_operation(op, [](auto f) { return f.kAddsToC; });
  if (adds_to_c && !target.existing.defined() && !of_one_layout({&a, &b, &c})) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return elementwise(op, a, b, c, s,
                       Target{target.entry, memory_of_sum({&c, &a, &b}, target.entry)});
  }
  // Two roundings equal one only if the first is exact: for a product of short values, but no
  // quotient or difference.
  const bool product = with_operation(op, [](auto f) { return f.kProduct; });
  const Place place = with_operation(op, [](auto f) { return f.kNumber; });
  // a number has more digits; with s == 1 one fused operation takes it
  const bool short_factors = a.tensor.defined() && b.tensor.defined();
  const Operand* scalar = nullptr;
  if (place == Place::A) scalar = &a;
  else if (place == Place::C) scalar = &c;
  const double number = scalar ? scalar->number : s;
  bool mixed = number_is_mixed(number) && (!scalar || s == 1);
  for (const Operand* o : {&a, &b, &c}) mixed = mixed && o->tensor.defined() == (o != scalar);
  return run<3>({&a, &b, &c}, target,
                TernaryBlocks{
                    .op = op,
                    .s = s,
                    .in_float = product && (s == 1 || short_factors) &&
                        addcmul_fits_float(target.entry.format, s),
                    .mixed = mixed,
                    .number = number,
                });
}

at::Tensor& store(const at::Tensor& result, at::Tensor& out, at::ArrayRef<at::Tensor> operands) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  TORCH_CHECK(
      c10::canCast(is_format_tensor(result) ? c10::kFloat : result.scalar_type(),
                   is_format_tensor(out) ? c10::kFloat : out.scalar_type()),
      "result type ",
      is_format_tensor(result) ? entry_of(result).name : c10::toString(result.scalar_type()),
      " can't be cast to the desired output type ",
      is_format_tensor(out) ? entry_of(out).name : c10::toString(out.scalar_type()));
  TORCH_CHECK(out.device() == result.device(), "expected out= on the same device as the operands, ",
              result.device(), ", but got one on ", out.device());
  const auto expect_apart = [&] {
    at::assert_no_internal_overlap(out);
    for (const at::Tensor& t : operands) at::assert_no_partial_overlap(out, t);
  };
  if (out.sizes() != result.sizes()) {
    if (std::any_of(operands.begin(), operands.end(),
                    [&](const at::Tensor& t) { return out.is_same(t); })) {
      expect_apart();
      // PyTorch's own error
      TORCH_CHECK(false, "output with shape ", out.sizes(), " doesn't match the broadcast shape ",
                  result.sizes());
    }
    if (out.numel() != 0) at::native::resize_output_check(out, result.sizes());
    resize_to_result(out, result);
  }
  expect_apart();
  return at::_ops::copy_::call(out, result, false);
}

} // namespace at::formats
