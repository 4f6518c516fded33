// The seam where a format becomes a dtype, inside a PyTorch tree: takes the place of
// c10/formats/FormatRegistry.h there, with the same names.
//
// The built-in formats are enumerators of ScalarType, and registered before anything else; formats
// made at run time have the numbers from 64 to 127, which TypeMeta knows too. No tensor borrows
// another dtype's storage, so a format's container is its own dtype.
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
  int id;     // of a built-in format, its row; kept as long as the process lives
  int serial; // of its making
  std::string name;
  Format format;
  ScalarType container; // the dtype itself
  ScalarType bits;      // the stock integer type of the same width
  // float32 where every value is one (and every product, of posits), else float64: what stock
  // kernels run in
  ScalarType compute;
};

// The entry of a format, made at the first call with it. Throws when all ids are taken.
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
// The entry of a dtype as an operator's argument has it; nullptr where that number is no format's.
inline const FormatEntry* find_dtype_number(int64_t number) {
  if (number < 0 || number >= kEndOfNumbers || !is_format_type(static_cast<ScalarType>(number)))
    return nullptr;
  const int id = id_of(static_cast<ScalarType>(number));
  return id < format_count() ? &format_entry(id) : nullptr;
}

} // namespace c10::formats
