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

// Float32 where it has every value. Tapered formats and most tables have no infinity for products that leave its range, so their squares must lie
// within it too.
inline ScalarType compute_of(const Format& format) {
  const bool products = (!format.is_tapered() && !(format.is_table() && !format.has_infinity())) || format.max_exponent() <= 63;
  return format.fits_float() && products ? ScalarType::Float : ScalarType::Double;
}

} // namespace c10::formats
