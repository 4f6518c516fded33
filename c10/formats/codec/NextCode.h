// The next number of a format, found by stepping its codes. (For tables: ValueTable.h.)
#pragma once
#include <c10/formats/NumberFormat.h>

namespace c10::formats {

// Tapered formats and fixed point: codes are in the order of integers. A code without a neighbour
// stays.
TD_HOST_DEVICE inline uint64_t next_integer(const Format& f, uint64_t code, bool up) {
  if (!f.is_signed) return up ? code + (code < f.max_code()) : code - (code != 0);
  const int unused = 64 - f.bits;
  const auto most = static_cast<int64_t>(f.max_code());
  const int64_t least = f.is_tapered() ? -most : -static_cast<int64_t>(f.lowest_magnitude());
  const int64_t n = (static_cast<int64_t>(code << unused) >> unused) + (up ? 1 : -1);
  const int64_t bounded = n > most ? most : n;
  return static_cast<uint64_t>(n < least ? least : bounded) & f.code_mask();
}

// Floats: sign and magnitude. The largest number's neighbour is infinity if the format overflows to
// it.
TD_HOST_DEVICE inline uint64_t next_float(const Format& f, uint64_t code, bool up) {
  const uint64_t sign = code & f.sign_code(), magnitude = code & (f.sign_code() - 1);
  const uint64_t smallest = f.subnormals == Subnormals::Flush ? uint64_t{1} << f.man_bits : 1;
  const uint64_t largest = f.max_code() + (f.has_infinity() && f.overflow == Overflow::Ieee);
  if (magnitude < smallest) return (up ? 0 : f.sign_code()) | smallest;
  if (up == (sign == 0)) return sign | (magnitude < largest ? magnitude + 1 : largest);
  if (magnitude > smallest) return sign | (magnitude - 1);
  return f.unsigned_zero() ? 0 : sign;
}

// The code next to `from`'s in the direction of `towards`. If the two are equal it is that of
// `towards`, as in C, which matters for zeros.
TD_HOST_DEVICE inline uint64_t next_code(const Format& f, uint64_t code, double from,
                                         double towards) {
  if (from != from || towards != towards) return f.nan_code();
  if (from != towards)
    return f.kind == Kind::Float ? next_float(f, code, towards > from)
                                 : next_integer(f, code, towards > from);
  if (from != 0) return code;
  const bool minus_zero = f.kind == Kind::Float && !f.unsigned_zero() && __builtin_signbit(towards);
  return minus_zero ? f.sign_code() : 0;
}

} // namespace c10::formats
