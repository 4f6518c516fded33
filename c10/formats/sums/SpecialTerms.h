// Infinities and NaNs in a sum of products, apart from the finite terms, which are added exactly.
#pragma once
#include <c10/formats/NumberFormat.h>

namespace c10::formats {

TD_HOST_DEVICE inline bool finite(double x) {
  return x - x == 0;
}

// A product as IEEE arithmetic has it, if a factor is infinite or NaN; 0 if both factors are
// finite. Of a finite factor only the sign counts.
TD_HOST_DEVICE inline double special_product(double x, double y) {
  const auto reduced = [](double v) { return finite(v) ? (v > 0) - (v < 0) : v; };
  return finite(x) && finite(y) ? 0 : reduced(x) * reduced(y);
}

} // namespace c10::formats
