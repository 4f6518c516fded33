// Optimizers' steps over many small tensors in one launch. One thread runs an element's whole
// program, in float64 rounded to odd, each result rounded once. (Large tensors take one kernel an
// operator, which read and write less than these compute.)
#include <ATen/native/formats/cuda/Codec.h>
#include <ATen/native/formats/cuda/Kernels.h>
#include <ATen/native/formats/cuda/Odd.h>

namespace at::formats::cuda {
namespace {

struct RunPrograms {
  Programs programs;
  int width;
  Decoder<double> decode;
  Encoder<double> encode;
  ZeroSigns signs;

  explicit RunPrograms(const Programs& p)
      : programs(p),
        width(p.format.itemsize()),
        decode(p.format),
        encode(p.format, {}),
        signs(p.format.rounding) {}

  TD_HOST_DEVICE double binary(BinaryOp op, double x, double y) const {
    return signs.of(op, x, y, binary_odd(op, x, y));
  }
  TD_HOST_DEVICE double ternary(TernaryOp op, double x, double y, double z, double s) const {
    return signs.of(op, x, y, z, s, ternary_odd(op, x, y, z, s));
  }

  TD_HOST_DEVICE double compute(const Instruction& i, double a, double b, double c) const {
    switch (i.what) {
      case Do::Negate: return -a;
      case Do::Copy: return a;
      case Do::Maximum:
        if (a != a || b != b)
          return c10::formats::bits_as<double>(c10::formats::nan_bits<double>());
        return a > b ? a : b;
      case Do::AddNumber: return binary(BinaryOp::Add, a, i.number);
      case Do::MultiplyNumber: return binary(BinaryOp::Mul, a, i.number);
      case Do::DivideNumber: return binary(BinaryOp::Div, a, i.number);
      case Do::AddScaled:
        return i.number == 1 ? binary(BinaryOp::Add, a, b)
                             : ternary(TernaryOp::Fma, i.number, b, a, 1);
      case Do::Lerp: return ternary(TernaryOp::Lerp, a, b, i.number, 1);
      case Do::Addcmul: return ternary(TernaryOp::Addcmul, b, c, a, i.number);
      case Do::Addcdiv: return ternary(TernaryOp::Addcdiv, b, c, a, i.number);
      default: return c10::formats::sqrt_odd(a);
    }
  }

  // The run that element i of all belongs to: the first whose end is above i.
  TD_HOST_DEVICE int run_of(int64_t i) const {
    int low = 0, high = programs.runs - 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (i < programs.end[middle]) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  TD_HOST_DEVICE void operator()(int64_t i) const {
    const int run = run_of(i);
    const int64_t place = (run == 0 ? i : i - programs.end[run - 1]) * width;
    char* const* at = programs.at[run];
    double x[kRegisters] = {};
    for (int r = 0; r < kTensors; ++r) {
      if (programs.reads >> r & 1)
        x[r] = decode(static_cast<Machine<double>::Bits>(code_at(at[r] + place, width)));
    }
    for (int k = 0; k < programs.count; ++k) {
      const Instruction& step = programs.steps[k];
      const uint64_t code =
          encode.at_word(with_plain_nan(compute(step, x[step.a], x[step.b], x[step.c])), 0);
      x[step.to] = decode(static_cast<Machine<double>::Bits>(code));
      if (step.to < kTensors) put_code(at[step.to] + place, width, code);
    }
  }
};

Status programs(const Programs& p, Stream stream) {
  static_assert(sizeof(RunPrograms) <= 4096, "expected what a kernel may be given");
  return p.runs == 0 ? 0 : for_each(p.end[p.runs - 1], stream, RunPrograms(p));
}

} // namespace

void fill_programs(CudaKernels& k) {
  k.programs = &programs;
}

} // namespace at::formats::cuda
