// A format as ctypes passes it: the numbers listed by fields() of host_kernels.py.
#pragma once
#include <c10/formats/NumberFormat.h>

#include <cstdint>

inline c10::formats::Format format_of(const int32_t* x) {
  using namespace c10::formats;
  Format f;
  f.kind = Kind(x[0]);
  f.bits = uint8_t(x[1]);
  if (f.is_posit()) f.es = int8_t(x[2]);
  if (f.is_fixed()) f.int_bits = int8_t(x[2]), f.frac_bits = int8_t(x[3]);
  if (f.kind == Kind::Float) f.exp_bits = int8_t(x[2]), f.man_bits = int8_t(x[3]);
  f.bias = int16_t(x[4]);
  f.subnormals = Subnormals(x[5]);
  f.specials = Specials(x[6]);
  f.overflow = Overflow(x[7]);
  f.underflow = Underflow(x[8]);
  f.infinity = Infinity(x[9]);
  f.is_signed = x[10];
  f.symmetric = x[11];
  f.rounding = Rounding(x[12]);
  // The package's table, in this process.
  f.table = reinterpret_cast<const TableFacts*>(uint64_t(uint32_t(x[13])) |
                                                uint64_t(uint32_t(x[14])) << 32);
  return f;
}
