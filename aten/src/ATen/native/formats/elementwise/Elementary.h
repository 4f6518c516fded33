// Elementary functions: computed in float64 for every format, and rounded once. Formats of at most
// 16 bits use tables of results.
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

// The operand that the ends of logaddexp depend on: the larger one, or NaN if either is infinite.
at::Tensor larger_operand(const at::Tensor& first, const at::Tensor& second);
// The same for powers: the base, or NaN if the exponent is infinite.
at::Tensor base_of_power(const at::Tensor& base, const at::Tensor& exponent);
// The ends of a function (c10/formats/arithmetic/FunctionEnds.h), by the operator's name without
// "aten::".
// near: corrects results that float64 rounds to a number (the operand, its half, 1, 1/2, 2) that
// the exact result only comes near. They become float64's next number on the exact result's side,
// because directed modes tell the two apart, and so do ties.
// ranged: for formats that tell very large and very small results from infinities and zeros. A
// result that overflowed from a finite operand becomes float64's largest number; one that vanished
// from a nonzero operand becomes its smallest.
FunctionEnds ends_of(std::string_view name, bool near, bool ranged, Tail tail);
// Corrects the ends of a function's results, given its operand, both float64.
at::Tensor with_ends(const at::Tensor& result, const at::Tensor& operand, const FunctionEnds& ends);
// The same in the results' own memory, which must have no other holder. If the CPU's loop takes the
// tensors, it is some twenty times as fast.
at::Tensor put_ends(const at::Tensor& result, const at::Tensor& operand, const FunctionEnds& ends);
// The functions with known limits; and whether a function comes near a fraction of its operand,
// which may be a tie.
std::vector<std::string_view> functions_with_limits();
bool comes_near_ties(std::string_view name);

// Identifies a function by the address that stands for its operator, its other arguments, the
// format and the rounding mode.
struct FunctionKey {
  const void* function;
  std::string arguments;
  int format;
  c10::formats::Rounding rounding;
  int device{-1}; // the number of the GPU that has the table's copy

  auto operator<=>(const FunctionKey&) const = default;
};
// Tables of a function's results for every code of a format of at most 16 bits: uint8 or int16, by
// code. Returns the table, undefined if there is none, and whether to make it now. A table is made
// once as many elements were looked up as it has entries, counting this call's.
std::pair<at::Tensor, bool> find_table(const FunctionKey& key, int64_t elements, int64_t entries);
void keep_table(const FunctionKey& key, const at::Tensor& codes);
// The results before rounding, float64 or float32 by code, for observation; undefined until they
// are made.
at::Tensor find_exact_table(const FunctionKey& key);
void keep_exact_table(const FunctionKey& key, const at::Tensor& values);
// Counts the roundings that looking up in's codes stands for.
void count_look_up(const at::Tensor& exact, const at::Tensor& table, const at::Tensor& in,
                   const Recorder& seen);
// Holds, for a scope, the values that this thread encoded last: a table's exact results.
class LastEncoded {
 public:
  LastEncoded();
  ~LastEncoded();
  LastEncoded(const LastEncoded&) = delete;
  LastEncoded& operator=(const LastEncoded&) = delete;
  at::Tensor values;
  static LastEncoded* current(); // nullptr outside of a scope

 private:
  LastEncoded* previous_;
};
// Writes the results of in's codes to out, which may be in. Both are dense, with the same strides.
void look_up(const at::Tensor& table, const at::Tensor& in, const at::Tensor& out);
// The same; returns whether one of two codes is among the results.
bool look_up_watching(const at::Tensor& table, const at::Tensor& in, const at::Tensor& out,
                      uint64_t first, uint64_t second);

} // namespace at::formats
