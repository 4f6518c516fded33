// A format that is a list of values: its values by code and in order, the boundaries between them,
// and the ends of the range.
//
// Values are float64 numbers, at most 2^16 of them. A table is made once for each content and lives
// as long as the process (ValueTable.cpp). So formats compare tables by address and are passed by
// value.
#pragma once
#include <c10/formats/codec/Unpacked.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace c10::formats {

// The result for a tie in the mode nearest_even. Even: the one with an even code; if both or none
// are even, the one with an even place in the order of values.
enum class Ties : uint8_t { Even, Zero, Away, Up, Down };

// The result for a number beyond the outermost finite value.
struct TableEnd {
  bool saturates{true}; // true: finite numbers become that value.
  uint32_t code{0}; // If false: finite numbers get this code, as if `next` were the next value.
  uint32_t infinity{0}; // The code of an infinity.
  double next{0};
  // The boundary between the value and `next`; NaN: halfway.
  double limit{std::numeric_limits<double>::quiet_NaN()};
};

// The kind of logarithm that a table's values have; logarithms are multiples of a power of two.
// Binary: base 2, for lns. Natural: for takums.
enum class Logarithm : uint8_t { None, Binary, Natural };

// The content of a table.
struct TableDefinition {
  std::string name; // part of the content
  int bits{0};
  std::vector<double> values; // by code; NaN if a code is no number
  uint32_t nan_code{0};
  Ties ties{Ties::Even};
  // Boundaries between neighbours in ascending order, then as many numbers to add to them. Empty:
  // midpoints.
  std::vector<double> boundaries;
  TableEnd high, low;
  bool minpos{false}; // true: a nonzero value never becomes 0, in any mode
  // true: numbers that round below 0 become NaN; without a 0, all numbers below 0.
  bool negative_is_nan{false};
  Logarithm logarithm{Logarithm::None};
  uint8_t log_bits{0}; // logarithms of values and boundaries are multiples of 2^-log_bits
};

// The codec's view of a table. On a GPU it has copies in the GPU's memory
// (native/formats/cuda/Tables.h).
struct TableView {
  const double* by_code{nullptr}; // 2^bits values
  const double* values{nullptr}; // the finite ones, ascending; one 0
  const uint32_t* codes{nullptr}; // codes of `values`
  // Which of two neighbours counts as odd: 1: the lower, 0: the upper one.
  const uint8_t* lower_is_odd{nullptr};
  const Unpacked* boundaries{nullptr}; // between them; sticky if one has more than 64 bits
  int64_t size{0};
  Unpacked high_limit, low_limit;
  int zero{-1}; // index of 0, or -1
  uint32_t plus_zero{0}, minus_zero{0};
  Ties ties{Ties::Even};
  TableEnd high, low;
  bool minpos{false}, negative_is_nan{false}; // as in the definition
  bool on_logarithms{false}; // numbers next to a value or a boundary count as that
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
  // The same, cast to float32: exact if fits_float.
  std::vector<float> by_code_float;
  std::vector<double> values;
  std::vector<uint32_t> codes;
  std::vector<uint8_t> lower_is_odd;
  std::vector<Unpacked> boundaries;
  std::vector<int32_t> rank_of_code; // index in `values`; -1: infinities and NaN
  // The same table for results that have its kind of logarithms.
  std::shared_ptr<const ValueTable> on_logarithms;
};

inline const ValueTable& table_of(const Format& f) {
  return *static_cast<const ValueTable*>(f.table);
}

// A logarithmic table's values and boundaries are irrational. A value is taken to 51 bits, a
// boundary exactly. float64 results rounded to odd are on the same side of a boundary as of its
// 52-bit approximation; `significand_bits` counts that.
//
// Logarithms of products, quotients and roots of such values are multiples of 2^-log_bits too;
// powers are treated apart (ExactPowers.h). So a result is a value or a boundary, or at least 2^-16
// of itself away from all of them. float64 has it within 2^-49. on_logarithms(f) is the same format
// for such results: a number within 2^-48 of a value or a boundary counts as that.
//
// Sums need no such care. None is so near to a value or a boundary that the terms' 51 bits could
// leave it undecided, by a factor of 2^15. (test/operators/test_logarithms.py checks all pairs.
// Sums that equal a value, of equal numbers or of a number and its half, are exact.)
inline bool is_logarithmic(const Format& f) {
  return f.is_table() && table_of(f).on_logarithms;
}
inline Format on_logarithms(Format f) {
  f.table = table_of(f).on_logarithms.get();
  return f;
}

// The format of a definition. Throws std::invalid_argument.
Format make_table_format(const TableDefinition& definition);

// The code next to `code` in the order of values, up or down; the outermost ones stay.
uint64_t next_code_of_table(const Format& f, uint64_t code, bool up);

} // namespace c10::formats
