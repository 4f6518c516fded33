// A format that is a list of values: the values by code and in order, what lies between them, and
// where the range ends.
//
// Values are float64 numbers, at most 2^16 of them. A table is made once for each content and lives
// as long as the process (ValueTable.cpp), so that formats are compared by its address and passed
// by value.
#pragma once
#include <c10/formats/codec/Unpacked.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace c10::formats {

// Where a tie of the mode nearest_even goes. Even: to the even code of the two; if both or none are
// even, to the one with an even place in the order of values.
enum class Ties : uint8_t { Even, Zero, Away, Up, Down };

// What becomes of a number beyond the outermost finite value.
struct TableEnd {
  bool saturates{true}; // finite numbers become that value
  uint32_t code{0}; // if not: this code, as if `next` were the next value
  uint32_t infinity{0}; // an infinity's code
  double next{0};
  // Between the value and `next`; NaN: halfway.
  double limit{std::numeric_limits<double>::quiet_NaN()};
};

// Of what the logarithms of a table's values are multiples of a power of two: to base 2 of lns,
// natural ones of takums.
enum class Logarithm : uint8_t { None, Binary, Natural };

// What a table is made of.
struct TableDefinition {
  std::string name; // a table's name is part of its content
  int bits{0};
  std::vector<double> values; // by code; NaN where a code is no number
  uint32_t nan_code{0};
  Ties ties{Ties::Even};
  // Between neighbours in ascending order, and as many numbers more that are to be added to them;
  // none: midpoints.
  std::vector<double> boundaries;
  TableEnd high, low;
  bool minpos{false}; // what is not 0 never becomes 0, in any mode
  // What rounds to a number below 0 becomes NaN; without a 0, all that is below 0.
  bool negative_is_nan{false};
  Logarithm logarithm{Logarithm::None};
  uint8_t log_bits{0}; // logarithms of values and boundaries are multiples of 2^-log_bits
};

// What the codec reads, wherever it lies: a table on a GPU is one of these with copies in the GPU's
// memory (native/formats/cuda/Tables.h).
struct TableView {
  const double* by_code{nullptr}; // 2^bits values
  const double* values{nullptr}; // the finite ones, ascending; 0 once
  const uint32_t* codes{nullptr}; // of those
  // Which of two neighbours counts as odd, the lower or the upper one.
  const uint8_t* lower_is_odd{nullptr};
  const Unpacked* boundaries{nullptr}; // between them; sticky where one has more than 64 bits
  int64_t size{0};
  Unpacked high_limit, low_limit;
  int zero{-1}; // place of 0, or -1
  uint32_t plus_zero{0}, minus_zero{0};
  Ties ties{Ties::Even};
  TableEnd high, low;
  bool minpos{false}, negative_is_nan{false}; // as in the definition
  bool on_logarithms{false}; // what is next to a value or a boundary is that
};

struct ViewedTable : TableFacts {
  TableView view;
};

TD_HOST_DEVICE inline const TableView& view_of(const Format& f) {
  return static_cast<const ViewedTable*>(f.table)->view;
}

struct ValueTable : ViewedTable {
  TableDefinition definition;
  std::vector<double> by_code;
  // The same as casts to float32 give them: exactly, where fits_float.
  std::vector<float> by_code_float;
  std::vector<double> values;
  std::vector<uint32_t> codes;
  std::vector<uint8_t> lower_is_odd;
  std::vector<Unpacked> boundaries;
  std::vector<int32_t> rank_of_code; // place in `values`; -1: infinities and NaN
  // The same table for results that have logarithms of its kind.
  std::shared_ptr<const ValueTable> on_logarithms;
};

inline const ValueTable& table_of(const Format& f) {
  return *static_cast<const ValueTable*>(f.table);
}

// A logarithmic table's values and boundaries are irrational. A value counts as the number that is
// it to 51 bits, a boundary as it is. Float64's results rounded to odd lie on the same side of a
// boundary as of the number that is it to 52 bits, by which `significand_bits` goes.
//
// Logarithms of products, quotients and roots of such values are multiples of 2^-log_bits, too, and
// those of powers are told apart from these (ExactPowers.h). So a result is a value or a boundary,
// or it is at least 2^-16 of itself away from all of them. Float64 has it within 2^-49.
// on_logarithms(f), the same format for such results, takes what is within 2^-48 of a value or a
// boundary for it.
//
// Sums need no such care: none lies so near to a value or a boundary, by a factor of 2^15, that the
// terms' 51 bits leave it undecided (test/operators/test_logarithms.py looks at all pairs; sums
// that are a value, of equal numbers or of a number and its half, are exact).
inline bool is_logarithmic(const Format& f) {
  return f.is_table() && table_of(f).on_logarithms;
}
inline Format on_logarithms(Format f) {
  f.table = table_of(f).on_logarithms.get();
  return f;
}

// The format of a definition. Throws std::invalid_argument.
Format make_table_format(const TableDefinition& definition);

// The code after `code` in the order of values, up or down; the outermost ones stay.
uint64_t next_code_of_table(const Format& f, uint64_t code, bool up);

} // namespace c10::formats
