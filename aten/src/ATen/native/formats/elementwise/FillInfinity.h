// Infinities in formats without infinities. A caller may write one as a number: this decides what
// is stored in a tensor, and what it means in a comparison. An operator may produce one (log of 0,
// 1/0): this warns once.
#pragma once
#include <ATen/FormatTensor.h>

#include <optional>
#include <string>
#include <utility>

namespace at::formats {

// The number to store in a tensor of the format for the given one. For an infinity it is the
// outermost number, with a warning the first time.
double fill_number(double value, const FormatEntry& entry);
c10::Scalar fill_number(const c10::Scalar& value, const FormatEntry& entry);
// The number that an infinity in a comparison stands for: the one that filling stores, so that
// filled places are found. (If filling stores NaN, it is the infinity.)
double compared_number(double value, const FormatEntry& entry);

// The two codes of NaN that results of +infinity and -infinity get.
std::pair<uint64_t, uint64_t> nan_codes(const Format& format);
// Whether a CPU tensor contains a certain code, by one pass over the codes.
bool holds_code(const at::Tensor& t, uint64_t code);
// Whether it contains one of nan_codes().
bool holds_nan(const at::Tensor& t);

// Warns if an operator produced an infinity in a format without infinities: once for each pair of
// operator and format, with advice. `values` are its results before they became NaN in `made`.
// Looks only where `made` holds NaN, and never at GPU tensors, because that would wait for the GPU.
void tell_of_infinities(const std::string& op, const at::Tensor& made, const at::Tensor& values);
// The same if the operator is known to have produced one.
void tell_of_infinity(const std::string& op, const FormatEntry& entry);

// Suppresses the warning in a scope, for computations on codes that no user has.
class NoInfinitiesTold {
 public:
  NoInfinitiesTold();
  ~NoInfinitiesTold();
  NoInfinitiesTold(const NoInfinitiesTold&) = delete;
  NoInfinitiesTold& operator=(const NoInfinitiesTold&) = delete;

  bool any() const { return any_; } // whether there would have been a warning

 private:
  friend void tell_of_infinity(const std::string& op, const FormatEntry& entry);
  NoInfinitiesTold* before_;
  bool any_{false};
};

// The first infinity that this thread's operators have produced since forget_infinity(): the
// operator and the dtype's name.
std::optional<std::pair<std::string, std::string>> first_infinity();
void forget_infinity();

} // namespace at::formats
