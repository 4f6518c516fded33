// The seam where a format becomes a dtype: one number per format, and the stock ScalarType whose
// storage its tensors borrow.
//
// On a stock PyTorch our ScalarType values start where no stock one can be (64; the type is int8,
// so 64 formats have a number at a time) and are only ever passed as operator arguments. A format
// made at run time gives its number back when another needs one and nobody has its dtype any more;
// its entry stays, so that tensors and derivatives that know it by its address go on, and it gets a
// number again when one is asked for. Inside PyTorch's own tree formats are rows of ScalarType
// instead: intree/ has that seam.
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
  mutable std::atomic<int> id; // the number now; -1: none
  mutable std::atomic<bool> keeps{false}; // its number, for ever
  int serial; // of its making
  std::string name;
  Format format;
  // A stock floating type of the same width: autograd refuses requires_grad on others.
  ScalarType container;
  ScalarType bits; // the stock integer type of the same width
  // float32 where every value is one (and every product, of posits), else float64: what stock
  // kernels run in
  ScalarType compute;
};

// The entry of a format, made at the first call with it, with a number. Throws when all numbers are
// in use.
const FormatEntry& register_format(const Format& format, const std::string& name);
// Its number, a new one where it has given its own back. Throws as above.
int number_of_format(const FormatEntry& entry);

const FormatEntry& format_entry(int id);
// nullptr: nobody has that number.
const FormatEntry* find_format_entry(int64_t id);
int format_count(); // of those that have a number
std::vector<const FormatEntry*> numbered_formats();

// What is called when all numbers are in use; it may give some back, and says whether it did.
void set_room_maker(bool (*make_room)());
// Only for who knows that nobody has the number: no dtype object, no setting, no graph.
void give_number_back(const FormatEntry& entry);
// Where somebody keeps the number itself.
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
// The entry of a dtype as an operator's argument has it; nullptr where that number is no format's.
inline const FormatEntry* find_dtype_number(int64_t number) {
  return find_format_entry(number - kFirstScalarType);
}

} // namespace c10::formats
