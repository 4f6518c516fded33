// Definitions for ScalarTypes.h: elements by the generic codec, names and promotion by the list of
// formats.
#include <c10/formats/intree/ScalarTypes.h>

#include <c10/core/ScalarType.h>
#include <c10/formats/FormatLimits.h>
#include <c10/formats/FormatRegistry.h>
#include <c10/formats/FormatRegistryTypes.h>
#include <c10/util/Exception.h>

#include <string>
#include <string_view>

namespace c10::formats {
namespace {

// The rows made by tools/intree must be those of BuiltinFormats.h.
constexpr std::string_view kRowNames[] = {TD_DTYPE_NAMES};
static_assert(std::size(kRowNames) == std::size(kBuiltinFormats));

template <int Row, typename Code>
constexpr bool agrees(Element<Row, Code>*) {
  constexpr Format f = kBuiltinFormats[Row].format;
  return kRowNames[Row] == kBuiltinFormats[Row].name && sizeof(Code) == f.itemsize() &&
      f.is_posit() == (Row < TD_POSIT_ROWS) && kElementDigits[Row] == f.significand_bits() &&
      (f.fits_float() || std::is_same_v<typename Element<Row, Code>::compute_t, double>);
}
#define TD_ROW(cpp_type, name) static_assert(agrees(static_cast<cpp_type*>(nullptr)));
AT_FORALL_FORMAT_SCALAR_TYPES(TD_ROW)
#undef TD_ROW

uint64_t code_of(int row, const Unpacked& value) {
  return encode(kBuiltinFormats[row].format, value);
}

} // namespace

double element_value(int row, uint64_t code) {
  return to_double(decode(kBuiltinFormats[row].format, code));
}
uint64_t element_code(int row, double value) {
  return code_of(row, unpack(value));
}
uint64_t element_code(int row, int64_t value) {
  return code_of(row, unpack(value));
}
uint64_t element_code(int row, uint64_t value) {
  return code_of(row, unpack(value));
}

uint64_t limit_code(int row, Limit which) {
  const Format& f = kBuiltinFormats[row].format;
  switch (which) {
    case Limit::Largest: return f.max_code();
    case Limit::Lowest: return element_code(row, lowest(f));
    case Limit::SmallestNormal: return element_code(row, smallest_normal(f));
    case Limit::Epsilon: return element_code(row, epsilon(f));
    case Limit::Infinity: return f.overflow_code();
    case Limit::NaN: return f.nan_code();
  }
  return f.nan_code();
}

double finfo(ScalarType type, const char* what) {
  const Format& f = format_entry(type).format;
  const std::string_view word = what;
  if (word == "epsilon") return epsilon(f);
  if (word == "max") return largest(f);
  if (word == "lowest") return lowest(f);
  if (word == "min") return smallest_normal(f);
  TORCH_CHECK(word == "digits10", "expected epsilon, max, lowest, min or digits10, but got ", what);
  return resolution(f);
}

const char* dtype_name(ScalarType type) {
  return format_entry(type).name.c_str();
}

ScalarType promote_types(ScalarType a, ScalarType b) {
  const bool both = is_format_type(a) && is_format_type(b);
  TORCH_CHECK_TYPE(!both || a == b,
                   "expected dtypes that promote to one, but got two number formats, torch.",
                   dtype_name(a), " and torch.", dtype_name(b), ". Convert one tensor first.");
  if (both) return a;
  const ScalarType ours = is_format_type(a) ? a : b;
  const ScalarType other = is_format_type(a) ? b : a;
  return isFloatingType(other) || isComplexType(other)
      ? promoted_stock(other, format_entry(ours).format)
      : ours;
}

void store_element(void* data, ScalarType type, double value) {
  const Format& f = format_entry(type).format;
  const uint64_t code = encode(f, unpack(value));
  switch (f.itemsize()) { // the code's low bytes, in either byte order
    case 1: *static_cast<uint8_t*>(data) = static_cast<uint8_t>(code); break;
    case 2: *static_cast<uint16_t*>(data) = static_cast<uint16_t>(code); break;
    case 4: *static_cast<uint32_t*>(data) = static_cast<uint32_t>(code); break;
    default: *static_cast<uint64_t*>(data) = code;
  }
}

double load_element(const void* data, ScalarType type) {
  const Format& f = format_entry(type).format;
  switch (f.itemsize()) {
    case 1: return to_double(decode(f, *static_cast<const uint8_t*>(data)));
    case 2: return to_double(decode(f, *static_cast<const uint16_t*>(data)));
    case 4: return to_double(decode(f, *static_cast<const uint32_t*>(data)));
    default: return to_double(decode(f, *static_cast<const uint64_t*>(data)));
  }
}

} // namespace c10::formats
