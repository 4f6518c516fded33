#include <ATen/native/formats/sums/DotProducts.h>

#include <ATen/native/formats/gpu/DeviceKernels.h>
#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/native/formats/gpu/GpuSums.h>
#include <ATen/native/formats/sums/BlockDots.h>
#include <ATen/native/formats/sums/DotLoops.h>
#include <ATen/native/formats/sums/ExactProducts.h>
#include <ATen/native/formats/sums/InstructionDots.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/formats/sums/ExactSum.h>

namespace at::formats {
namespace {

using c10::ScalarType;
using c10::formats::ExactSum;

char* codes_of(const at::Tensor& out) {
  return static_cast<char*>(out.mutable_data_ptr());
}

// The form of results: codes of a format, or float64 numbers, which are never observed.
struct Results {
  const FormatEntry* entry;

  Format format() const {
    return entry ? rounding_format(*entry) : c10::formats::float_format(11, 52);
  }
  Recorder seen(const at::Tensor& out) const {
    return entry ? recorder(entry->format, codes_of(out)) : Recorder();
  }
};

StepFormats observed_steps(const FormatEntry& entry, const Accumulation& policy,
                           const Results& results, const at::Tensor& out) {
  StepFormats formats(entry, policy, out.device());
  formats.result = results.format();
  formats.seen = results.seen(out);
  return formats;
}

template <typename T>
DotOperands<T> dot_operands(const DotProducts& dots) {
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
void stepwise(const DotProducts& dots, const FormatEntry& entry, const Accumulation& policy,
              const Results& results, const at::Tensor& out) {
  StepFormats formats = observed_steps(entry, policy, results, out);
  // The last instruction's result is in the format.
  if (dots.left) formats.left = dots.left->format;
  if (dots.right) formats.right = dots.right->format;
  if (policy.instructions && dots.divisor == 1) formats.result.rounding = Rounding::NearestEven;
  step_dots(kernels(out.device(), "dot products"), dot_operands<T>(dots), formats, policy,
            codes_of(out));
}

// Fills out by the kernels of instructions. A mean's division is one more.
void fill_by_instructions(const DotProducts& dots, const FormatEntry& entry,
                          const Accumulation& policy, const Results& results,
                          const at::Tensor& out) {
  const CpuKernels& k = kernels(out.device(), "dot products");
  const Format f = rounding_format(entry);
  const at::Tensor sums = results.entry ? bits_alias(out).view(ScalarType::Float)
                                        : at::empty(out.sizes(), dots.b.options());
  instruction_dots(k, dot_operands<float>(dots), f, policy, next_seed({}, out.device()).number,
                   sums.mutable_data_ptr<float>());
  if (dots.divisor != 1) {
    k.binary_binary32(f, BinaryOp::Div, sums.const_data_ptr<float>(), nullptr,
                      static_cast<float>(dots.divisor),
                      static_cast<uint32_t*>(sums.mutable_data_ptr()), sums.numel(), next_words(f));
  }
  if (!results.entry) out.copy_(sums);
}

void fill_exactly(const DotProducts& dots, const FormatEntry& entry, const at::Tensor& out) {
  kernels(out.device(), "dot products");
  const Format result = rounding_format(entry);
  const Recorder seen = recorder(entry.format, codes_of(out));
  const RandomWords words = next_words(result);
  if (const ExactParts parts = exact_parts(dots, entry); !parts.sums.empty()) {
    std::vector<const double*> sums;
    for (const at::Tensor& part : parts.sums) sums.push_back(part.const_data_ptr<double>());
    return exact_codes(sums, parts.last, out.numel(), dots.divisor, result, words, codes_of(out),
                       seen);
  }
  const at::Tensor columns = dots.b.transpose(1, 2).contiguous(); // [batch, n, k]
  const at::Tensor present =
      dots.present.defined() ? dots.present.transpose(1, 2).contiguous() : dots.present;
  DotOperands<double> turned = dot_operands<double>(dots);
  turned.b = columns.const_data_ptr<double>();
  turned.present = data_or_null<uint8_t>(present);
  exact_dots(turned, format_of_terms(dots, entry), result, words, codes_of(out), seen);
}

BlockJob block_job(const FormatEntry& left, const FormatEntry& right, const FormatEntry& entry,
                   const Accumulation& policy, bool start, const Results& results,
                   const at::Tensor& out) {
  const BlockAdder adder = block_adder(left, right, policy);
  const Format f = results.format();
  const bool draws =
      c10::formats::is_stochastic(f.rounding) || c10::formats::is_stochastic(adder.reg.rounding);
  return {left.format,
          right.format,
          start && (&left != &entry || &right != &entry),
          adder,
          {f, draws ? next_seed({}, out.device()) : Seed(), results.seen(out)}};
}

template <typename T>
void running_steps(const at::Tensor& b, const FormatEntry& entry, const Accumulation& policy,
                   const at::Tensor& out) {
  running_step_sums(kernels(out.device(), "running sums"), b.const_data_ptr<T>(), b.size(0),
                    b.size(1), b.size(2), observed_steps(entry, policy, {&entry}, out), policy,
                    codes_of(out));
}

bool wraps(const FormatEntry* chosen) {
  return chosen && chosen->format.overflow == c10::formats::Overflow::Wrap;
}

bool in_float(const FormatEntry& entry, const Accumulation& policy) {
  // Operands must be float32.
  if (!entry.format.fits_float() && !entry.format.is_table()) return false;
  for (const FormatEntry* chosen : {policy.product, policy.accumulator, policy.outer}) {
    if (chosen && chosen == policy.accumulator && sums_in_binary32(entry, policy)) continue;
    // A format that wraps needs every digit of a sum, however large its terms are.
    if (!step_format(entry, chosen, policy).arithmetic_in_float() ||
        (wraps(chosen) && chosen != &entry))
      return false;
  }
  if (policy.exact_product &&
      (2 * entry.format.significand_bits() > 24 || !entry.format.arithmetic_in_float()))
    return false;
  return rounding_format(entry).arithmetic_in_float() &&
      !(policy.fused && step_format(entry, policy.accumulator, policy).significand_bits() > 12);
}

// Raises unless float64 holds terms and sums down to a wrapping format's last place, and one digit
// more. Rounded to odd, they then round as the exact ones do.
void expect_wrapping(const FormatEntry& left, const FormatEntry& right, const FormatEntry* product,
                     const FormatEntry& sum) {
  const int terms = product ? product->format.max_exponent() + 1
                            : left.format.max_exponent() + right.format.max_exponent() + 2;
  const int digits = std::max(terms, sum.format.max_exponent() + 1) + 1 - sum.format.lsb_exponent();
  TORCH_CHECK(digits <= 52,
              "accumulate: expected a wrapping format whose sums float64 has to the last place (52 "
              "digits from the largest term's first), "
              "but got ",
              sum.name, " for ",
              product ? "products rounded to " + product->name
                      : "products of " + left.name + " and " + right.name,
              ", which take ", digits,
              ". Choose one that saturates, fewer fractional bits or a narrower product.");
}

} // namespace

Format format_of_terms(const DotProducts& dots, const FormatEntry& entry) {
  const bool one_format = !dots.any_numbers &&
      (!dots.left || (dots.left == dots.right && (!dots.start.defined() || dots.left == &entry)));
  if (!one_format) return c10::formats::float_format(11, 52);
  return dots.left ? dots.left->format : entry.format;
}

c10::ScalarType dot_type(const FormatEntry& entry, const Accumulation& policy) {
  if (rounds_instructions(rounding_format(entry), policy)) return ScalarType::Float;
  const bool steps = policy.kind == Accumulation::Kind::Steps ||
      (policy.kind == Accumulation::Kind::Chunked && !policy.chunks_of_chip());
  return steps && in_float(entry, policy) ? ScalarType::Float : ScalarType::Double;
}

// left, right: the operands' formats.
static void expect_steps(const FormatEntry& left, const FormatEntry& right,
                         const FormatEntry& entry, const Accumulation& policy) {
  const FormatEntry& product = policy.product ? *policy.product : entry;
  const bool whole_products = policy.fused || policy.exact_product;
  for (const FormatEntry* chosen : {static_cast<const FormatEntry*>(nullptr), policy.product,
                                    policy.accumulator, policy.outer}) {
    if (wraps(chosen) && chosen != &left) {
      expect_wrapping(left, right, chosen == policy.product || whole_products ? nullptr : &product,
                      *chosen);
      continue;
    }
    const Format f = step_format(entry, chosen, policy);
    TORCH_CHECK(f.arithmetic_in_double(),
                "accumulate: expected formats whose arithmetic float64 can do (at most 51 "
                "significant bits, 25 bits where they wrap around, products within "
                "its exponents) for sums rounded at every step, but got ",
                (chosen ? *chosen : entry).name,
                ". Use accumulate(\"exact\") or accumulate(\"float64\").");
  }
  const int digits = left.format.significand_bits() + right.format.significand_bits();
  TORCH_CHECK(!policy.exact_product ||
                  (digits <= 53 && left.format.arithmetic_in_double() &&
                   right.format.arithmetic_in_double()),
              "accumulate: expected operands whose products float64 has exactly, for "
              "product=\"exact\", but got ",
              left.name, &left == &right ? "" : " and " + right.name,
              ". Use fused=True or accumulate(\"exact\").");
}

static void fill_dots(const DotProducts& dots, const FormatEntry& entry, const Accumulation& policy,
                      const Results& results, const at::Tensor& out);

// A chip adds up each chunk from 0. The chunks' sums are added to the start in float32, as
// DeepGEMM promotes them out of the tensor core.
static void fill_promoted(const DotProducts& dots, const FormatEntry& entry,
                          const Accumulation& policy, const Results& results,
                          const at::Tensor& out) {
  Accumulation chip = policy;
  chip.kind = Accumulation::Kind::Block;
  at::Tensor total = dots.start.defined()
      ? dots.start.to(ScalarType::Float)
      : at::zeros(out.sizes(), dots.b.options().dtype(ScalarType::Float));
  for (int64_t from = 0, k = dots.b.size(1); from < k; from += policy.chunk) {
    const int64_t count = std::min(policy.chunk, k - from);
    const auto terms = [&](const at::Tensor& t, int64_t dim) {
      return t.defined() ? t.narrow(dim, from, count).contiguous() : t;
    };
    DotProducts part = dots;
    part.a = terms(dots.a, 2);
    part.b = terms(dots.b, 1);
    part.present = terms(dots.present, 1);
    part.present_rows = terms(dots.present_rows, 2);
    part.start = at::Tensor();
    part.divisor = 1;
    const at::Tensor sum = at::empty(out.sizes(), dots.b.options());
    fill_dots(part, entry, chip, {nullptr}, sum);
    total = total.add(sum.to(ScalarType::Float));
  }
  const at::Tensor wide = total.to(ScalarType::Double).div(static_cast<double>(dots.divisor));
  results.entry ? bits_alias(out).copy_(bits_alias(encoded(wide, *results.entry)))
                : out.copy_(wide);
}

// Fills out with the results, [batch, m, n].
static void fill_dots(const DotProducts& dots, const FormatEntry& entry, const Accumulation& policy,
                      const Results& results, const at::Tensor& out) {
  const FormatEntry &left = dots.left ? *dots.left : entry,
                    &right = dots.right ? *dots.right : entry;
  for (const at::Tensor* t : {&dots.a, &dots.start, &dots.present, &dots.present_rows}) {
    // Checked also for tensors without data.
    if (t->defined()) expect_one_device(t->device(), dots.b.device());
  }
  // Raises its errors also for tensors without elements.
  if (policy.kind == Accumulation::Kind::Block || policy.chunks_of_chip())
    block_adder(left, right, policy);
  if (dots.b.device().is_meta() || out.numel() == 0) return;
  TORCH_CHECK(dots.b.size(1) < ExactSum::kMaxProducts,
              "expected dot products of less than 2^30 terms, but got ", dots.b.size(1));
  if (policy.chunks_of_chip()) return fill_promoted(dots, entry, policy, results, out);
  const bool gpu = on_gpu(out.device());
  if (policy.kind == Accumulation::Kind::Exact) {
    gpu ? dot_products_on_gpu(dots, entry, policy, results.format(), results.seen(out), out)
        : fill_exactly(dots, entry, out);
    return;
  }
  const bool block = policy.kind == Accumulation::Kind::Block;
  if (!block) expect_steps(left, right, entry, policy);
  const bool instructions = dots.b.scalar_type() == ScalarType::Float &&
      rounds_instructions(rounding_format(entry), policy);
  if (instructions && gpu) { // its steps are in double
    DotProducts wide = dots;
    for (at::Tensor* t : {&wide.a, &wide.b, &wide.start})
      if (t->defined()) *t = t->to(ScalarType::Double);
    return fill_dots(wide, entry, policy, results, out);
  }
  if (dots.a.defined() && dots.b.size(2) < 16 && dots.a.size(1) > dots.b.size(2) &&
      !(instructions && dots.present.defined())) {
    // With few columns, lanes run over the rows instead: the order of factors does not matter.
    const auto turned = [](const at::Tensor& t) {
      return t.defined() ? t.transpose(1, 2).contiguous() : t;
    };
    const auto numbers = [&](const at::Tensor& t) { return results.entry ? bits_alias(t) : t; };
    const c10::DimVector sizes{out.size(0), out.size(2), out.size(1)};
    const at::Tensor other = results.entry ? empty_format(sizes, *results.entry, out.device())
                                           : at::empty(sizes, out.options());
    fill_dots({turned(dots.b), turned(dots.a), turned(dots.start), turned(dots.present_rows),
               turned(dots.present), dots.divisor, dots.right, dots.left},
              entry, policy, results, other);
    numbers(out).copy_(numbers(other).transpose(1, 2));
    return;
  }
  if (block) {
    const BlockJob job = block_job(left, right, entry, policy, dots.start.defined(), results, out);
    if (gpu) block_sums_on_gpu(dots, job, out);
    else
      block_dots(kernels(out.device(), "sums by blocks of products"), dot_operands<double>(dots),
                 job, codes_of(out));
  } else if (gpu) {
    dot_products_on_gpu(dots, entry, policy, results.format(), results.seen(out), out);
  } else if (instructions) {
    fill_by_instructions(dots, entry, policy, results, out);
  } else if (dots.b.scalar_type() == ScalarType::Float) {
    stepwise<float>(dots, entry, policy, results, out);
  } else {
    stepwise<double>(dots, entry, policy, results, out);
  }
}

static c10::DimVector sizes_of(const DotProducts& dots) {
  return {dots.b.size(0), dots.a.defined() ? dots.a.size(1) : 1, dots.b.size(2)};
}

at::Tensor dot_products(const DotProducts& dots, const FormatEntry& entry,
                        const Accumulation& policy) {
  at::Tensor out = empty_format(sizes_of(dots), entry, dots.b.device());
  fill_dots(dots, entry, policy, {&entry}, out);
  return out;
}

at::Tensor unrounded_dot_products(const DotProducts& dots, const FormatEntry& entry,
                                  const Accumulation& policy) {
  TORCH_INTERNAL_ASSERT(policy.kind != Accumulation::Kind::Exact);
  at::Tensor out = at::empty(sizes_of(dots), dots.b.options().dtype(ScalarType::Double));
  fill_dots(dots, entry, policy, {nullptr}, out);
  return out;
}

at::Tensor running_sums(const at::Tensor& b, const FormatEntry& entry, const Accumulation& policy) {
  // Instructions of running sums have no kernel of their own: steps in double round them.
  if (b.scalar_type() == ScalarType::Float && rounds_instructions(rounding_format(entry), policy))
    return running_sums(b.to(ScalarType::Double), entry, policy);
  at::Tensor out = empty_format(b.sizes(), entry, b.device());
  TORCH_CHECK(!policy.chunks_of_chip(),
              "cumsum: expected an accumulation policy without chunks of a chip, but got chunked(",
              policy.chunk, "). Use the chip's own policy for this call.");
  if (b.device().is_meta() || out.numel() == 0) return out;
  if (policy.kind == Accumulation::Kind::Block) {
    const BlockJob job = block_job(entry, entry, entry, policy, false, {&entry}, out);
    if (on_gpu(out.device())) {
      running_block_sums_on_gpu(b, job, out);
    } else {
      running_block_sums(kernels(out.device(), "sums by blocks of products"),
                         b.const_data_ptr<double>(), b.size(0), b.size(1), b.size(2), job,
                         codes_of(out));
    }
    return out;
  }
  if (policy.kind != Accumulation::Kind::Exact) {
    expect_steps(entry, entry, entry, policy);
    TORCH_CHECK(policy.order == Accumulation::Order::Sequential,
                "cumsum: expected an accumulation policy of order \"sequential\", but got ",
                "another order. Omit order= for this call.");
  }
  if (on_gpu(out.device())) {
    running_sums_on_gpu(b, entry, policy, out);
    return out;
  }
  if (policy.kind != Accumulation::Kind::Exact) {
    b.scalar_type() == ScalarType::Float ? running_steps<float>(b, entry, policy, out)
                                         : running_steps<double>(b, entry, policy, out);
    return out;
  }
  kernels(out.device(), "running sums");
  const Format rounded = rounding_format(entry);
  running_exact_sums(b.const_data_ptr<double>(), b.size(0), b.size(1), b.size(2), entry.format,
                     rounded, next_words(rounded), codes_of(out),
                     recorder(entry.format, codes_of(out)));
  return out;
}

} // namespace at::formats
