#include <ATen/native/formats/DotProducts.h>

#include <ATen/native/formats/DeviceKernels.h>
#include <ATen/native/formats/DotLoops.h>
#include <c10/formats/ExactSum.h>

namespace at::formats {
namespace {

using c10::ScalarType;
using c10::formats::ExactSum;

template <typename T>
const T* data_or_null(const at::Tensor& t) {
  return t.defined() ? t.const_data_ptr<T>() : nullptr;
}

char* codes_of(const at::Tensor& out) {
  return static_cast<char*>(out.mutable_data_ptr());
}

StepFormats observed_steps(const FormatEntry& entry, const Accumulation& policy, const at::Tensor& out) {
  StepFormats formats(entry, policy);
  formats.seen = recorder(entry.format, codes_of(out));
  return formats;
}

template <typename T>
DotOperands<T> operands(const DotProducts& dots) {
  return {
      .batches = dots.b.size(0),
      .m = dots.a.defined() ? dots.a.size(1) : 1,
      .k = dots.b.size(1),
      .n = dots.b.size(2),
      .a = data_or_null<T>(dots.a),
      .b = dots.b.const_data_ptr<T>(),
      .start = data_or_null<T>(dots.start),
      .present = data_or_null<uint8_t>(dots.present),
      .present_rows = data_or_null<uint8_t>(dots.present_rows),
      .divisor = dots.divisor,
  };
}

template <typename T>
void stepwise(const DotProducts& dots, const FormatEntry& entry, const Accumulation& policy, const at::Tensor& out) {
  step_dots(kernels(out.device(), "dot products"), operands<T>(dots), observed_steps(entry, policy, out), policy, codes_of(out));
}

void exact(const DotProducts& dots, const FormatEntry& entry, const at::Tensor& out) {
  const at::Tensor columns = dots.b.transpose(1, 2).contiguous(); // [batch, n, k]
  const at::Tensor present = dots.present.defined() ? dots.present.transpose(1, 2).contiguous() : dots.present;
  DotOperands<double> turned = operands<double>(dots);
  turned.b = columns.const_data_ptr<double>();
  turned.present = data_or_null<uint8_t>(present);
  const Format rounded = rounding_format(entry);
  exact_dots(turned, entry.format, rounded, next_words(rounded), codes_of(out), recorder(entry.format, codes_of(out)));
}

template <typename T>
void running_steps(const at::Tensor& b, const FormatEntry& entry, const Accumulation& policy, const at::Tensor& out) {
  running_step_sums(kernels(out.device(), "running sums"), b.const_data_ptr<T>(), b.size(0), b.size(1), b.size(2), observed_steps(entry, policy, out),
                    policy, codes_of(out));
}

bool in_float(const FormatEntry& entry, const Accumulation& policy) {
  const bool all = rounding_format(entry).arithmetic_in_float() && step_format(entry, policy.product, policy).arithmetic_in_float() &&
      step_format(entry, policy.accumulator, policy).arithmetic_in_float();
  return all && !(policy.fused && step_format(entry, policy.accumulator, policy).significand_bits() > 12);
}

} // namespace

c10::ScalarType dot_type(const FormatEntry& entry, const Accumulation& policy) {
  return policy.kind != Accumulation::Kind::Exact && in_float(entry, policy) ? ScalarType::Float : ScalarType::Double;
}

static void expect_steps(const FormatEntry& entry, const Accumulation& policy) {
  for (const FormatEntry* chosen : {static_cast<const FormatEntry*>(nullptr), policy.product, policy.accumulator}) {
    const Format f = step_format(entry, chosen, policy);
    const std::string& name = (chosen ? *chosen : entry).name;
    TORCH_CHECK(f.arithmetic_in_double(),
                "accumulate: expected formats whose arithmetic float64 can do (at most 51 significant bits, products within its "
                "exponents) for sums rounded at every step, but got ",
                name, ". Use accumulate(\"exact\") or accumulate(\"float64\").");
    TORCH_CHECK(!chosen || chosen == &entry || f.overflow != c10::formats::Overflow::Wrap,
                "accumulate: expected a product or accumulator format that does not wrap, for operands of another format, but got ", name);
  }
}

at::Tensor dot_products(const DotProducts& dots, const FormatEntry& entry, const Accumulation& policy) {
  const int64_t m = dots.a.defined() ? dots.a.size(1) : 1;
  at::Tensor out = empty_format({dots.b.size(0), m, dots.b.size(2)}, entry, dots.b.device());
  if (dots.b.device().is_meta() || out.numel() == 0) return out;
  TORCH_CHECK(dots.b.size(1) < ExactSum::kMaxProducts, "expected dot products of less than 2^30 terms, but got ", dots.b.size(1));
  if (policy.kind == Accumulation::Kind::Exact) {
    exact(dots, entry, out);
    return out;
  }
  expect_steps(entry, policy);
  if (dots.a.defined() && dots.b.size(2) < 16 && m > dots.b.size(2)) {
    // Few columns: lanes run over the rows instead. A product does not mind which factor comes first.
    const auto turned = [](const at::Tensor& t) { return t.defined() ? t.transpose(1, 2).contiguous() : t; };
    const at::Tensor other = dot_products(
        {turned(dots.b), turned(dots.a), turned(dots.start), turned(dots.present_rows), turned(dots.present), dots.divisor}, entry, policy);
    return format_alias(bits_alias(other).transpose(1, 2).contiguous(), entry);
  }
  if (dots.b.scalar_type() == ScalarType::Float) {
    stepwise<float>(dots, entry, policy, out);
  } else {
    stepwise<double>(dots, entry, policy, out);
  }
  return out;
}

at::Tensor running_sums(const at::Tensor& b, const FormatEntry& entry, const Accumulation& policy) {
  at::Tensor out = empty_format(b.sizes(), entry, b.device());
  if (b.device().is_meta() || out.numel() == 0) return out;
  if (policy.kind != Accumulation::Kind::Exact) {
    expect_steps(entry, policy);
    b.scalar_type() == ScalarType::Float ? running_steps<float>(b, entry, policy, out) : running_steps<double>(b, entry, policy, out);
    return out;
  }
  const Format rounded = rounding_format(entry);
  running_exact_sums(b.const_data_ptr<double>(), b.size(0), b.size(1), b.size(2), entry.format, rounded, next_words(rounded), codes_of(out),
                     recorder(entry.format, codes_of(out)));
  return out;
}

} // namespace at::formats
