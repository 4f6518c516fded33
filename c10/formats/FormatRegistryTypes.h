// The stock types that go with a format, on a stock PyTorch and inside its tree (intree/) alike.
#pragma once
#include <c10/core/ScalarType.h>
#include <c10/formats/NumberFormat.h>

namespace c10::formats {

// The integers that hold a format's codes.
inline ScalarType bits_of(const Format& format) {
  switch (format.itemsize()) {
    case 1: return ScalarType::Byte;
    case 2: return ScalarType::Short;
    case 4: return ScalarType::Int;
    default: return ScalarType::Long;
  }
}

// Float32 where it has every value. Tapered formats and most tables have no infinity for products
// that leave its range, so their squares must lie within it too.
inline ScalarType compute_of(const Format& format) {
  const bool products = (!format.is_tapered() && !(format.is_table() && !format.has_infinity())) ||
      format.max_exponent() <= 63;
  return format.fits_float() && products ? ScalarType::Float : ScalarType::Double;
}

// Whether every number of the format is one of a stock floating type's.
inline bool has_numbers_of(ScalarType type, const Format& f) {
  switch (type) {
    case ScalarType::Half:
      return f.significand_bits() <= 11 && f.max_exponent() <= 15 && f.lsb_exponent() >= -24;
    case ScalarType::BFloat16:
      return f.significand_bits() <= 8 && f.max_exponent() <= 127 && f.lsb_exponent() >= -133;
    case ScalarType::Float: return f.fits_float();
    default: return true; // float64, and float8, whose operands promote to nothing
  }
}
// What a format and a stock floating or complex type make together: the stock type, or where it
// lacks numbers of the format's the narrowest that has both's, as float16 and bfloat16 make
// float32.
inline ScalarType promoted_stock(ScalarType stock, const Format& f) {
  if (has_numbers_of(toRealValueType(stock), f)) return stock;
  return promoteTypes(stock, f.fits_float() ? ScalarType::Float : ScalarType::Double);
}

} // namespace c10::formats
