// Elementary functions: computed in float64 whatever the format, and rounded once; of formats of at
// most 16 bits looked up.
#pragma once
#include <ATen/FormatTensor.h>
#include <ATen/Observation.h>
#include <c10/formats/arithmetic/FunctionEnds.h>

#include <compare>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace at::formats {

using c10::formats::FunctionEnds;
using c10::formats::Tail;

// The operand that tells which results of logaddexp have left it: the larger one; NaN where one of
// the two is infinite.
at::Tensor larger_operand(const at::Tensor& first, const at::Tensor& second);
// Of powers: the base; NaN where the exponent is infinite.
at::Tensor base_of_power(const at::Tensor& base, const at::Tensor& exponent);
// What the ends of a function are (c10/formats/arithmetic/FunctionEnds.h), by the operator's name,
// without "aten::". Near: results so near to a number (the operand, its half, 1, 1/2, 2) that
// float64 takes them for it, where the exact ones are not, are to be float64's next number on the
// side where those lie: directed modes tell them apart, and ties do. Ranged: for formats that tell
// them from infinities and zeros, what became infinite of a finite operand is to be float64's
// largest number, and what became 0 of one that is not 0 its smallest.
FunctionEnds ends_of(std::string_view name, bool near, bool ranged, Tail tail);
// Results of a function and its operand, both float64: those by what the exact ones are.
at::Tensor with_ends(const at::Tensor& result, const at::Tensor& operand, const FunctionEnds& ends);
// The same of results that nobody else has, in their memory where the CPU's loop takes them: some
// twenty times as fast.
at::Tensor put_ends(const at::Tensor& result, const at::Tensor& operand, const FunctionEnds& ends);
// The names that it knows limits of, and whether a function comes near to a share of its operand,
// which may be a tie.
std::vector<std::string_view> functions_with_limits();
bool comes_near_ties(std::string_view name);

// A function as the address that stands for its operator, its other arguments, the format and the
// rounding mode make it.
struct FunctionKey {
  const void* function;
  std::string arguments;
  int format;
  c10::formats::Rounding rounding;
  int device{-1}; // a GPU's number: where the table is its copy there

  auto operator<=>(const FunctionKey&) const = default;
};
// Tables of a function's results for every code of a format of at most 16 bits: uint8 or int16, by
// code. A function's table, undefined where there is none; and whether it is time to make it: as
// many elements as it has entries have come by, counting those of this call.
std::pair<at::Tensor, bool> find_table(const FunctionKey& key, int64_t elements, int64_t entries);
void keep_table(const FunctionKey& key, const at::Tensor& codes);
// The results before rounding, float64 or float32 by code, where somebody observes; undefined where
// there are none yet.
at::Tensor find_exact_table(const FunctionKey& key);
void keep_exact_table(const FunctionKey& key, const at::Tensor& values);
// Counts what looking up does to in's codes.
void count_look_up(const at::Tensor& exact, const at::Tensor& table, const at::Tensor& in,
                   const Recorder& seen);
// In a scope, the values that this thread encoded last: a table's exact results.
class LastEncoded {
 public:
  LastEncoded();
  ~LastEncoded();
  LastEncoded(const LastEncoded&) = delete;
  LastEncoded& operator=(const LastEncoded&) = delete;
  at::Tensor values;
  static LastEncoded* current(); // nullptr outside of one

 private:
  LastEncoded* previous_;
};
// out, which may be in: the results of in's codes. Both dense, with the same strides.
void look_up(const at::Tensor& table, const at::Tensor& in, const at::Tensor& out);
// The same, and whether one of two codes is among the results.
bool look_up_watching(const at::Tensor& table, const at::Tensor& in, const at::Tensor& out,
                      uint64_t first, uint64_t second);

} // namespace at::formats
