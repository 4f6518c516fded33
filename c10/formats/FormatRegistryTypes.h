// The stock types that belong to a format, both on a stock PyTorch and inside its tree (intree/).
#pragma once
#include <c10/core/ScalarType.h>
#include <c10/formats/NumberFormat.h>

namespace c10::formats {

// The integer type that holds a format's codes.
inline ScalarType bits_of(const Format& format) {
  switch (format.itemsize()) {
    case 1: return ScalarType::Byte;
    case 2: return ScalarType::Short;
    case 4: return ScalarType::Int;
    default: return ScalarType::Long;
  }
}

// float32 if it has every value. Tapered formats and most tables have no infinity for products
// beyond its range, so their squares must be in range too.
inline ScalarType compute_of(const Format& format) {
  const bool products = (!format.is_tapered() && !(format.is_table() && !format.has_infinity())) ||
      format.max_exponent() <= 63;
  return format.fits_float() && products ? ScalarType::Float : ScalarType::Double;
}

// Whether a stock floating type has every number of the format.
inline bool has_numbers_of(ScalarType type, const Format& f) {
  switch (type) {
    case ScalarType::Half:
      return f.significand_bits() <= 11 && f.max_exponent() <= 15 && f.lsb_exponent() >= -24;
    case ScalarType::BFloat16:
      return f.significand_bits() <= 8 && f.max_exponent() <= 127 && f.lsb_exponent() >= -133;
    case ScalarType::Float: return f.fits_float();
    default: return true; // float64; and float8, whose operands never promote
  }
}
// The type that a format and a stock floating or complex type promote to. It is the stock type; if
// that lacks numbers of the format, it is the narrowest type with both, as float16 and bfloat16
// promote to float32.
inline ScalarType promoted_stock(ScalarType stock, const Format& f) {
  if (has_numbers_of(toRealValueType(stock), f)) return stock;
  return promoteTypes(stock, f.fits_float() ? ScalarType::Float : ScalarType::Double);
}

} // namespace c10::formats
