// Integers drawn in a format: from a range (randint, random_), or as a permutation.
#pragma once
#include <c10/formats/FormatLimits.h>
#include <c10/formats/FormatRegistry.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <string>
#include <utility>

namespace at::formats {

inline bool has_integer(const c10::formats::Format& f, int64_t n) {
  return c10::formats::value_of(f, c10::formats::encode(f, c10::formats::unpack(n), 0)) ==
      static_cast<double>(n);
}

// The largest power of two up to which a format has every integer, at most 2^53, as in float64. 0:
// it lacks 1.
inline int64_t counts_to(const c10::formats::Format& f) {
  if (!has_integer(f, 1)) return 0;
  int64_t most = 1;
  while (most < int64_t{1} << 53 && has_integer(f, 2 * most) && has_integer(f, 2 * most - 1))
    most *= 2;
  return most;
}

// The least and the largest of a format's numbers in [from, to); draws are rounded to numbers
// between them. As for stock dtypes, an end beyond the format's numbers is an error, and so is a
// range without any number of the format.
inline std::pair<double, double> drawn_integers(const c10::formats::FormatEntry& entry,
                                                int64_t from, int64_t to, const std::string& who) {
  using namespace c10::formats;
  const double lowest_number = lowest(entry.format), largest_number = largest(entry.format);
  const auto from_number = static_cast<double>(from), to_number = static_cast<double>(to);
  TORCH_CHECK(from_number >= lowest_number && static_cast<double>(to - 1) <= largest_number, who,
              ": expected a range within the numbers of torch.", entry.name, ", ", lowest_number,
              " to ", largest_number, ", but got [", from, ", ", to, ")");
  const double least = number_from(entry.format, from_number),
               most = number_below(entry.format, to_number);
  TORCH_CHECK(least <= most, who, ": expected a range that holds numbers of torch.", entry.name,
              ", but got [", from, ", ", to, "), between ", number_below(entry.format, from_number),
              " and ", number_from(entry.format, to_number));
  return {least, most};
}

// Raises if the format lacks one of the n integers from 0 on, which a permutation needs.
inline void expect_permutation(const c10::formats::FormatEntry& entry, int64_t n) {
  int64_t most = counts_to(entry.format);
  // Only fixed point has further integers; floats and posits lack the next one.
  while (most + 1 < n && has_integer(entry.format, most + 1)) ++most;
  TORCH_CHECK(n <= most + 1, "randperm: expected n of at most ", most + 1, ", since torch.",
              entry.name, " has every integer up to ", most, ", but got ", n);
}

} // namespace at::formats
