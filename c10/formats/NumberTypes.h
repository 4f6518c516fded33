// The built-in formats as C++ number types (c10::formats::posit16es2, ...), for scalar code that
// needs a value and not an array of codes.
#pragma once
#include <c10/formats/BuiltinFormats.h>
#include <c10/formats/codec/ExactCodec.h>

#include <type_traits>

namespace c10::formats {

template <Format F>
struct Number {
  static constexpr Format format = F;
  using code_t = std::conditional_t<
      F.itemsize() == 1, uint8_t,
      std::conditional_t<F.itemsize() == 2, uint16_t,
                         std::conditional_t<F.itemsize() == 4, uint32_t, uint64_t>>>;
  code_t code{0};

  Number() = default;
  TD_HOST_DEVICE explicit Number(double value)
      : code(static_cast<code_t>(encode(F, unpack(value)))) {}
  TD_HOST_DEVICE explicit operator double() const { return to_double(decode(F, code)); }
};

#define TD_POSIT(name, bits, es) using name = Number<posit_format(bits, es)>;
#define TD_FLOAT(name, exp_bits, man_bits) using name = Number<float_format(exp_bits, man_bits)>;
AT_FORALL_POSIT_TYPES(TD_POSIT)
AT_FORALL_CUSTOM_FLOAT_TYPES(TD_FLOAT)
#undef TD_POSIT
#undef TD_FLOAT

} // namespace c10::formats
