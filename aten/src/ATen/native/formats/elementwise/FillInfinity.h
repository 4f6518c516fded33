// Infinities in formats that have none. Those that a caller writes as numbers: what they become
// where they are put into a tensor, and what they mean in a comparison. Those that an operator
// makes (log of 0, 1/0): said once.
#pragma once
#include <ATen/FormatTensor.h>

#include <optional>
#include <string>
#include <utility>

namespace at::formats {

// The number that stands for the given one in a tensor of the format: for an infinity the outermost
// one, of which a warning says so the first time.
double fill_number(double value, const FormatEntry& entry);
c10::Scalar fill_number(const c10::Scalar& value, const FormatEntry& entry);
// What an infinity in a comparison is taken for: what filling with it gives, so that filled places
// are found. (NaN is none: the infinity.)
double compared_number(double value, const FormatEntry& entry);

// The codes that an infinity of either sign becomes where it becomes NaN.
std::pair<uint64_t, uint64_t> nan_codes(const Format& format);
// Whether a tensor on the CPU has a certain code: one pass over the codes.
bool holds_code(const at::Tensor& t, uint64_t code);
// Whether it has one of nan_codes().
bool holds_nan(const at::Tensor& t);

// Warns of an operator that has made an infinity of values of a format that has none: once for
// both, with what to do. `values` are its results before they became NaN in `made`. Nothing is
// looked at but where `made` holds NaN, and on a GPU nothing at all: it would wait for that.
void tell_of_infinities(const std::string& op, const at::Tensor& made, const at::Tensor& values);
// The same where it is known that it has made one.
void tell_of_infinity(const std::string& op, const FormatEntry& entry);

// A block of which nothing is said: one that computes with codes that nobody has.
class NoInfinitiesTold {
 public:
  NoInfinitiesTold();
  ~NoInfinitiesTold();
  NoInfinitiesTold(const NoInfinitiesTold&) = delete;
  NoInfinitiesTold& operator=(const NoInfinitiesTold&) = delete;

  bool any() const { return any_; } // would have been

 private:
  friend void tell_of_infinity(const std::string& op, const FormatEntry& entry);
  NoInfinitiesTold* before_;
  bool any_{false};
};

// The first infinity that the calling thread's operators have made since forget_infinity(): the
// operator and the dtype's name.
std::optional<std::pair<std::string, std::string>> first_infinity();
void forget_infinity();

} // namespace at::formats
