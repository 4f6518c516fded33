// The seam where a format becomes a dtype: one number for each format, and the stock ScalarType
// whose storage its tensors use.
//
// On a stock PyTorch, format dtypes are ScalarType values from 64 on, where no stock type can be.
// The type is int8, so 64 formats have a number at a time. The values are only passed as operator
// arguments.
//
// A run-time format gives its number back when another format needs one and its dtype is no longer
// used. Its entry stays, so tensors and derivatives that know its address go on; it gets a number
// again when one is needed. Inside PyTorch's own tree formats are rows of ScalarType instead:
// intree/ has that seam.
#pragma once
#include <c10/core/ScalarType.h>
#include <c10/formats/NumberFormat.h>

#include <atomic>
#include <optional>
#include <string>
#include <vector>

namespace c10::formats {

inline constexpr int kFirstScalarType = 64;
inline constexpr int kMaxFormats = 64;

struct FormatEntry {
  mutable std::atomic<int> id; // the current number; -1: none
  mutable std::atomic<bool> keeps{false}; // true: the number is never given back
  int serial; // counts the entries made
  std::string name;
  Format format;
  // A stock floating type of the same width: autograd refuses requires_grad for other types.
  ScalarType container;
  ScalarType bits; // the stock integer type of the same width
  // The type that stock kernels compute in: float32 if it has every value (and, for posits, every
  // product), else float64.
  ScalarType compute;
};

// Returns a format's entry, with a number; the first call makes it. Throws if all numbers are in
// use.
const FormatEntry& register_format(const Format& format, const std::string& name);
// Returns the entry's number, a new one if it was given back. Throws as above.
int number_of_format(const FormatEntry& entry);

const FormatEntry& format_entry(int id);
// Returns nullptr if no format has the number.
const FormatEntry* find_format_entry(int64_t id);
int format_count(); // of formats that have a number
std::vector<const FormatEntry*> numbered_formats();

// Sets a function to call when all numbers are in use. It may give some back, and returns whether
// it did.
void set_room_maker(bool (*make_room)());
// Only valid if nobody uses the number: no dtype object, no setting, no graph.
void give_number_back(const FormatEntry& entry);
// Never gives the number back, because somebody stores it.
inline void keep_number(const FormatEntry& entry) {
  entry.keeps.store(true, std::memory_order_relaxed);
}

inline bool is_format_type(ScalarType type) {
  return static_cast<int>(type) >= kFirstScalarType;
}
inline ScalarType scalar_type(const FormatEntry& entry) {
  const int id = entry.id.load(std::memory_order_relaxed);
  return static_cast<ScalarType>(kFirstScalarType + (id >= 0 ? id : number_of_format(entry)));
}
inline const FormatEntry& format_entry(ScalarType type) {
  return format_entry(static_cast<int>(type) - kFirstScalarType);
}
// The entry for a dtype number in an operator's argument; nullptr if no format has the number.
inline const FormatEntry* find_dtype_number(int64_t number) {
  return find_format_entry(number - kFirstScalarType);
}

} // namespace c10::formats
