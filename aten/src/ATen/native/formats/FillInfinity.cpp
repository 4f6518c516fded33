#include <ATen/native/formats/FillInfinity.h>

#include <c10/formats/ExactCodec.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cmath>

namespace at::formats {

static std::atomic<FillInfinity> current{FillInfinity::Saturate};

FillInfinity fill_infinity() {
  return current.load(std::memory_order_relaxed);
}
void set_fill_infinity(FillInfinity setting) {
  current.store(setting, std::memory_order_relaxed);
}

// What an infinity of that sign becomes.
static double filled(bool negative, const Format& f) {
  using namespace c10::formats;
  const double infinity = negative ? -HUGE_VAL : HUGE_VAL;
  if (!f.infinity_is_nan()) return to_double(decode(f, encode(f, unpack(infinity))));
  if (fill_infinity() == FillInfinity::Nan) return infinity; // which the cast makes NaN
  if (f.is_table()) return to_double(decode(f, negative ? f.table->lowest_code : f.table->max_code));
  return std::copysign(to_double(decode(f, f.max_code())), infinity);
}

static void notice(double given, double taken, const FormatEntry& entry) {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  TORCH_WARN("torch.", entry.name, " has no infinity: ", given, " put into a tensor of it is taken as the outermost number of its sign, ", taken,
             ". torch_dtypes.set_fill_infinity(\"nan\") makes it NaN, as casts of tensors do; set_fill_infinity(\"saturate\") keeps this. "
             "(Said once in a process, for all dtypes.)");
}

double fill_number(double value, const FormatEntry& entry) {
  if (!std::isinf(value) || !entry.format.infinity_is_nan()) return value;
  const double taken = filled(value < 0, entry.format);
  if (!std::isinf(taken)) notice(value, taken, entry);
  return taken;
}

c10::Scalar fill_number(const c10::Scalar& value, const FormatEntry& entry) {
  return value.isFloatingPoint() ? c10::Scalar(fill_number(value.toDouble(), entry)) : value;
}

double compared_number(double value, const FormatEntry& entry) {
  return std::isinf(value) ? filled(value < 0, entry.format) : value;
}

} // namespace at::formats
