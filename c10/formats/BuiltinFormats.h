// The built-in formats, one row each; no other place names them. From here expand dtype ids (posits
// first, then floats, in this order), names, C++ types, dispatch macros, Python attributes, the
// documentation's table and the typed tests.
//
//   AT_FORALL_POSIT_TYPES(_)         rows _(name, bits, es)
//   AT_FORALL_CUSTOM_FLOAT_TYPES(_)  rows _(name, exponent bits, fraction bits): IEEE-style, with
//                                    infinities, NaN, subnormals and
//                                    bias 2^(exponent bits - 1) - 1
#pragma once
#include <c10/formats/NumberFormat.h>

#define AT_FORALL_POSIT_TYPES(_) \
  _(posit8es0, 8, 0)             \
  _(posit8es1, 8, 1)             \
  _(posit8es2, 8, 2)             \
  _(posit16es1, 16, 1)           \
  _(posit16es2, 16, 2)           \
  _(posit32es2, 32, 2)

#define AT_FORALL_CUSTOM_FLOAT_TYPES(_) \
  _(q43, 4, 3)                          \
  _(q52, 5, 2)                          \
  _(tf32, 8, 10)                        \
  _(e5m5, 5, 5)                         \
  _(e5m7, 5, 7)                         \
  _(e8m4, 8, 4)

namespace c10::formats {

enum class Builtin : int8_t {
#define TD_ROW(name, ...) name,
  AT_FORALL_POSIT_TYPES(TD_ROW) AT_FORALL_CUSTOM_FLOAT_TYPES(TD_ROW)
#undef TD_ROW
      kCount,
  kNone = -1, // a format made at run time
};

struct BuiltinFormat {
  const char* name;
  Format format;
};

inline constexpr BuiltinFormat kBuiltinFormats[] = {
#define TD_POSIT(name, bits, es) {#name, posit_format(bits, es)},
#define TD_FLOAT(name, exp_bits, man_bits) {#name, float_format(exp_bits, man_bits)},
    AT_FORALL_POSIT_TYPES(TD_POSIT) AT_FORALL_CUSTOM_FLOAT_TYPES(TD_FLOAT)
#undef TD_POSIT
#undef TD_FLOAT
};

constexpr Builtin builtin_of(const Format& format) {
  for (int i = 0; i < int(Builtin::kCount); ++i) {
    if (kBuiltinFormats[i].format == format) return Builtin(i);
  }
  return Builtin::kNone;
}

} // namespace c10::formats
