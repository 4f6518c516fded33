// The seam where a format becomes a dtype, inside a PyTorch tree. There it replaces
// c10/formats/FormatRegistry.h, with the same names.
//
// The built-in formats are enumerators of ScalarType, registered before anything else. Run-time
// formats have the numbers from 64 to 127, which TypeMeta knows too. No tensor uses another dtype's
// storage, so a format's container is its own dtype.
#pragma once
#include <c10/core/ScalarType.h>
#include <c10/formats/BuiltinFormats.h>
#include <c10/macros/Export.h>

#include <optional>
#include <string>

namespace c10::formats {

inline constexpr int kBuiltins = int(Builtin::kCount);
inline constexpr int kMaxFormats = kBuiltins + kEndOfNumbers - kFirstRunTimeNumber;

struct FormatEntry {
  int id; // a built-in format's row; never given back
  int serial; // counts the entries made
  std::string name;
  Format format;
  ScalarType container; // the dtype itself
  ScalarType bits; // the stock integer type of the same width
  // The type that stock kernels compute in: float32 if it has every value (and, for posits, every
  // product), else float64.
  ScalarType compute;
};

// Returns a format's entry; the first call makes it. Throws if all ids are taken.
C10_API const FormatEntry& register_format(const Format& format, const std::string& name);

C10_API const FormatEntry& format_entry(int id);
C10_API const FormatEntry* find_format(const Format& format);
C10_API int format_count();

inline int number_of_format(const FormatEntry& entry) {
  return entry.id;
}
inline void keep_number(const FormatEntry&) {
}
inline ScalarType scalar_type(const FormatEntry& entry) {
  return entry.container;
}
inline int id_of(ScalarType type) {
  const int number = static_cast<int>(type);
  return is_builtin_type(type) ? number - static_cast<int>(ScalarType::TD_FIRST_FORMAT)
                               : number - kFirstRunTimeNumber + kBuiltins;
}
inline const FormatEntry& format_entry(ScalarType type) {
  return format_entry(id_of(type));
}
// The entry for a dtype number in an operator's argument; nullptr if no format has the number.
inline const FormatEntry* find_dtype_number(int64_t number) {
  if (number < 0 || number >= kEndOfNumbers || !is_format_type(static_cast<ScalarType>(number)))
    return nullptr;
  const int id = id_of(static_cast<ScalarType>(number));
  return id < format_count() ? &format_entry(id) : nullptr;
}

} // namespace c10::formats
