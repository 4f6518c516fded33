// The signs of zeros that maximum, minimum, fmax and fmin choose from.
#include <ATen/native/formats/operators/boxed/BoxedCall.h>

#include <ATen/FormatWrapper.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/ivalue.h>
#include <ATen/native/formats/elementwise/FillInfinity.h>

#include <algorithm>

namespace at::formats {

// Only for formats with two zeros, on the CPU: a GPU has an instruction that tells them apart.
void BoxedCall::keep_sides(const Plan& plan, const torch::jit::Stack& stack, size_t base) {
  const bool greater = plan.base == "maximum" || plan.base == "fmax";
  if (!greater && plan.base != "minimum" && plan.base != "fmin") return;
  if (format_->format.kind != c10::formats::Kind::Float || format_->format.unsigned_zero()) return;
  at::Tensor codes[2];
  bool negative = false;
  for (size_t i = 0; i < 2; ++i) {
    const at::Tensor& t = stack[base + i].toTensor();
    if (!t.device().is_cpu() || is_wrapper(t)) return;
    const at::Tensor own = is_format_tensor(t) && &entry_of(t) == format_
        ? t
        : encoded(is_format_tensor(t) ? decoded(t) : t.to(compute_), *format_);
    negative |= holds_code(own, format_->format.sign_code());
    codes[i] = plan.writes ? bits_alias(own).clone() : bits_alias(own); // out= may be an operand
  }
  if (negative) sides_ = Sides{greater, codes[0], codes[1]};
}

// Two zeros differ only in their sign bits: the greater has the bits of both, the lesser of either.
template <typename Code>
static void sign_zeros(bool greater, Code sign, char** data, const int64_t* strides, int64_t n) {
  const Code magnitude = static_cast<Code>(~sign);
  const auto each = [&](auto out, auto x, auto y) {
    for (int64_t i = 0; i < n; ++i) {
      const Code a = *x(i), b = *y(i), zero = static_cast<Code>(greater ? a & b : a | b);
      *out(i) = ((a | b) & magnitude) == 0 ? zero : *out(i);
    }
  };
  const auto dense = [&](int k) {
    return [p = reinterpret_cast<Code*>(data[k])](int64_t i) { return p + i; };
  };
  const auto strided = [&](int k) {
    return [p = data[k], s = strides[k]](int64_t i) { return reinterpret_cast<Code*>(p + i * s); };
  };
  const bool all_dense =
      std::all_of(strides, strides + 3, [](int64_t s) { return s == sizeof(Code); });
  if (all_dense) return each(dense(0), dense(1), dense(2));
  each(strided(0), strided(1), strided(2));
}

// The greater of +0 and -0 is +0, the lesser -0 (IEEE 754-2019, 9.6). Stock kernels return either,
// depending on the element's place in a vector.
void BoxedCall::sign_zeros_of(const at::Tensor& made) const {
  if (!sides_ || !is_format_tensor(made)) return;
  const uint64_t sign = entry_of(made).format.sign_code();
  at::TensorIterator iterator = at::TensorIteratorConfig()
                                    .set_check_mem_overlap(false)
                                    .resize_outputs(false)
                                    .add_owned_output(bits_alias(made))
                                    .add_owned_const_input(sides_->first)
                                    .add_owned_const_input(sides_->second)
                                    .build();
  iterator.for_each([&](char** data, const int64_t* strides, int64_t n) {
    switch (entry_of(made).format.itemsize()) {
      case 1:
        return sign_zeros<uint8_t>(sides_->greater, static_cast<uint8_t>(sign), data, strides, n);
      case 2:
        return sign_zeros<uint16_t>(sides_->greater, static_cast<uint16_t>(sign), data, strides, n);
      case 4:
        return sign_zeros<uint32_t>(sides_->greater, static_cast<uint32_t>(sign), data, strides, n);
      default: return sign_zeros<uint64_t>(sides_->greater, sign, data, strides, n);
    }
  });
}

} // namespace at::formats
