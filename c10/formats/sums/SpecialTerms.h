// What is infinite or NaN in a sum of products, apart from the finite terms, which are added up
// exactly.
#pragma once
#include <c10/formats/NumberFormat.h>

namespace c10::formats {

TD_HOST_DEVICE inline bool finite(double x) {
  return x - x == 0;
}

// What is not finite in one product, as IEEE arithmetic has it; 0 where both factors are finite. Of
// a finite factor the sign counts alone.
TD_HOST_DEVICE inline double special_product(double x, double y) {
  const auto reduced = [](double v) { return finite(v) ? (v > 0) - (v < 0) : v; };
  return finite(x) && finite(y) ? 0 : reduced(x) * reduced(y);
}

} // namespace c10::formats
