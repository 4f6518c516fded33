// A format that is a list of values: the values by code and in order, what lies between them, and where the range ends.
//
// Values are float64 numbers, at most 2^16 of them. A table is made once for each content and lives as long as the process (ValueTable.cpp),
// so that formats are compared by its address and passed by value.
#pragma once
#include <c10/formats/Unpacked.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace c10::formats {

// Where a tie of the mode nearest_even goes. Even: to the even code of the two; if both or none are even, to the one with an even place in the
// order of values.
enum class Ties : uint8_t { Even, Zero, Away, Up, Down };

// What becomes of a number beyond the outermost finite value.
struct TableEnd {
  bool saturates{true}; // finite numbers become that value
  uint32_t code{0};     // if not: this code, as if `next` were the next value
  uint32_t infinity{0}; // an infinity's code
  double next{0};
  double limit{std::numeric_limits<double>::quiet_NaN()}; // between the value and `next`; NaN: halfway
};

// What a table is made of.
struct TableDefinition {
  std::string name; // a table's name is part of its content
  int bits{0};
  std::vector<double> values; // by code; NaN where a code is no number
  uint32_t nan_code{0};
  Ties ties{Ties::Even};
  std::vector<double> boundaries; // between neighbours in ascending order; none: midpoints
  TableEnd high, low;
  bool minpos{false};          // what is not 0 never becomes 0, in any mode
  bool negative_is_nan{false}; // what rounds to a number below 0 becomes NaN; without a 0, all that is below 0
};

// What the codec reads, wherever it lies: a table on a GPU is one of these with copies in the GPU's memory (native/formats/cuda/Tables.h).
struct TableView {
  const double* by_code{nullptr};        // 2^bits values
  const double* values{nullptr};         // the finite ones, ascending; 0 once
  const uint32_t* codes{nullptr};        // of those
  const uint8_t* lower_is_odd{nullptr};  // which of two neighbours counts as odd, the lower or the upper one
  const Unpacked* boundaries{nullptr};   // between them; sticky where one has more than 64 bits
  int64_t size{0};
  Unpacked high_limit, low_limit;
  int zero{-1}; // place of 0, or -1
  uint32_t plus_zero{0}, minus_zero{0};
  Ties ties{Ties::Even};
  TableEnd high, low;
  bool minpos{false}, negative_is_nan{false}; // as in the definition
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
  std::vector<float> by_code_float;  // the same as casts to float32 give them: exactly, where fits_float
  std::vector<double> values;
  std::vector<uint32_t> codes;
  std::vector<uint8_t> lower_is_odd;
  std::vector<Unpacked> boundaries;
  std::vector<int32_t> rank_of_code; // place in `values`; -1: infinities and NaN
};

inline const ValueTable& table_of(const Format& f) {
  return *static_cast<const ValueTable*>(f.table);
}

// The format of a definition. Throws std::invalid_argument.
Format make_table_format(const TableDefinition& definition);

// The code after `code` in the order of values, up or down; the outermost ones stay.
uint64_t next_code_of_table(const Format& f, uint64_t code, bool up);

} // namespace c10::formats
