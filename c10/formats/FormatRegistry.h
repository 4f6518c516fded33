// The seam where a format becomes a dtype: one number per format, and the stock ScalarType whose storage its tensors borrow.
//
// On a stock PyTorch our ScalarType values start where no stock one can be (64; the type is int8, so 64 formats fit) and are only ever
// passed as operator arguments. Inside PyTorch's own tree this file would expand rows of ScalarType instead; nothing else would change.
#pragma once
#include <c10/core/ScalarType.h>
#include <c10/formats/NumberFormat.h>

#include <optional>
#include <string>

namespace c10::formats {

inline constexpr int kFirstScalarType = 64;
inline constexpr int kMaxFormats = 64;

struct FormatEntry {
  int id;
  std::string name;
  Format format;
  ScalarType container; // a stock floating type of the same width: autograd refuses requires_grad on others
  ScalarType bits;      // the stock integer type of the same width
  ScalarType compute;   // float32 where every value is one (and every product, of posits), else float64: what stock kernels run in
};

// The entry of a format, made at the first call with it. Throws when all ids are taken.
const FormatEntry& register_format(const Format& format, const std::string& name);

const FormatEntry& format_entry(int id);
const FormatEntry* find_format(const Format& format);
int format_count();

inline bool is_format_type(ScalarType type) {
  return static_cast<int>(type) >= kFirstScalarType;
}
inline ScalarType scalar_type(const FormatEntry& entry) {
  return static_cast<ScalarType>(kFirstScalarType + entry.id);
}
inline const FormatEntry& format_entry(ScalarType type) {
  return format_entry(static_cast<int>(type) - kFirstScalarType);
}

} // namespace c10::formats
