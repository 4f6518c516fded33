#include <c10/formats/tables/ValueTable.h>

#include <c10/formats/ForkSafeMutex.h>
#include <c10/formats/codec/ExactCodec.h>
#include <c10/formats/tables/TableSteps.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>

namespace c10::formats {
namespace {

ForkSafeMutex& tables_mutex() {
  static ForkSafeMutex instance;
  return instance;
}

// ---- making a table ----

void require(bool holds, const char* what) {
  if (!holds)
    throw std::invalid_argument(std::string("expected ") + what + " in a table of values");
}

// The number of bits from the first set bit to the last, and the exponent of the last.
struct Extent {
  int bits, lsb;
};
Extent extent_of(const Unpacked& u) {
  if (u.cls != Class::Finite) return {0, std::numeric_limits<int>::max()};
  if (u.sticky) return {65, u.exponent - 64};
  const int zeros = std::countr_zero(u.significand);
  return {64 - zeros, u.exponent - 63 + zeros};
}

// (a + b) / 2 by its 64 leading bits, a < b.
Unpacked midpoint(double a, double b) {
  if (a == -b) return {};
  Unpacked x = unpack(a), y = unpack(b);
  y.negative = !y.negative; // a + b = a - (-b)
  const bool negative = a + b < 0;
  Unpacked sum = distance(x, y);
  sum.negative = negative;
  sum.exponent -= 1;
  return sum;
}

void sort_values(ValueTable& t) {
  const TableDefinition& d = t.definition;
  const auto count = static_cast<uint32_t>(d.values.size());
  std::vector<uint32_t> order;
  for (uint32_t code = 0; code < count; ++code) {
    if (std::isfinite(d.values[code])) order.push_back(code);
  }
  require(order.size() >= 2, "two finite values at least");
  // -0 comes before +0.
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const double x = d.values[a], y = d.values[b];
    return x < y || (x == y && std::signbit(x) && !std::signbit(y));
  });
  t.rank_of_code.assign(t.by_code.size(), -1);
  for (const uint32_t code : order) {
    const double v = d.values[code];
    if (!t.values.empty() && t.values.back() == v) {
      require(v == 0 && std::signbit(d.values[t.codes.back()]) && !std::signbit(v),
              "distinct values");
      t.view.plus_zero = code;
    } else {
      require(v == 0 || std::fabs(v) >= 0x1p-1022, "no subnormal number of float64");
      if (v == 0) {
        t.view.zero = static_cast<int>(t.values.size());
        t.view.plus_zero = t.view.minus_zero = code;
      }
      t.values.push_back(v == 0 ? 0.0 : v);
      t.codes.push_back(code);
    }
    t.rank_of_code[code] = static_cast<int32_t>(t.values.size() - 1);
  }
  if (t.view.zero >= 0) t.codes[static_cast<size_t>(t.view.zero)] = t.view.plus_zero;
}

void find_odd(ValueTable& t) {
  for (size_t i = 0; i + 1 < t.codes.size(); ++i) {
    const bool lower = t.codes[i] & 1, upper = t.codes[i + 1] & 1;
    const bool beside_zero = t.values[i] == 0 || t.values[i + 1] == 0; // 0 counts as even
    const bool by_place = beside_zero ? t.values[i] != 0 : (i & 1) != 0;
    t.lower_is_odd.push_back(lower != upper ? lower : by_place);
  }
}

void find_boundaries(ValueTable& t) {
  const TableDefinition& d = t.definition;
  const size_t gaps = t.values.size() - 1;
  require(d.boundaries.empty() || d.boundaries.size() == gaps || d.boundaries.size() == 2 * gaps,
          "one boundary between every two neighbours");
  for (size_t i = 0; i < gaps; ++i) {
    if (d.boundaries.empty()) {
      t.boundaries.push_back(midpoint(t.values[i], t.values[i + 1]));
    } else {
      require(t.values[i] <= d.boundaries[i] && d.boundaries[i] <= t.values[i + 1],
              "each boundary between its neighbours");
      t.boundaries.push_back(unpack(d.boundaries[i]));
    }
  }
  const auto limit = [](const TableEnd& end, double outermost) {
    if (end.saturates) return Unpacked{};
    return std::isnan(end.limit)
        ? midpoint(std::min(outermost, end.next), std::max(outermost, end.next))
        : unpack(end.limit);
  };
  require(d.high.saturates || d.high.next > t.values.back(), "a next value above the largest one");
  require(d.low.saturates || d.low.next < t.values.front(), "a next value below the lowest one");
  t.view.high_limit = limit(d.high, t.values.back());
  t.view.low_limit = limit(d.low, t.values.front());
}

void find_facts(ValueTable& t) {
  const TableDefinition& d = t.definition;
  t.max_code = t.codes.back();
  t.lowest_code = t.codes.front();
  t.nan_code = d.nan_code;
  t.infinity_code = d.high.infinity;
  t.infinity_is_nan = std::isnan(t.by_code[d.high.infinity]);
  t.has_infinity =
      std::any_of(d.values.begin(), d.values.end(), [](double v) { return std::isinf(v); });
  t.smallest = std::numeric_limits<double>::quiet_NaN();
  int top = std::numeric_limits<int>::min(), bottom = std::numeric_limits<int>::max(),
      lsb = std::numeric_limits<int>::max(), bits = 0;
  t.fits_float = true;
  const auto see_value = [&](double v) {
    if (v == 0) return;
    const Unpacked u = unpack(v);
    const Extent e = extent_of(u);
    top = std::max(top, u.exponent);
    bottom = std::min(bottom, u.exponent);
    lsb = std::min(lsb, e.lsb);
    bits = std::max(bits, e.bits);
  };
  const auto see_boundary = [&](const Unpacked& u) {
    if (u.cls != Class::Finite) return;
    const Extent e = extent_of(u);
    lsb = std::min(lsb, e.lsb + 1);
    bits = std::max(bits, e.bits - 1);
  };
  for (const double v : t.values) {
    see_value(v);
    if (v > 0 && !(t.smallest <= v)) t.smallest = v;
    t.fits_float = t.fits_float && static_cast<double>(static_cast<float>(v)) == v &&
        (v == 0 || std::fabs(v) >= 0x1p-126);
  }
  t.max_exponent = top;
  t.min_exponent = bottom;
  for (const Unpacked& b : t.boundaries) see_boundary(b);
  if (!d.high.saturates) {
    see_value(d.high.next);
    see_boundary(t.view.high_limit);
  }
  if (!d.low.saturates) {
    see_value(d.low.next);
    see_boundary(t.view.low_limit);
  }
  t.max_exponent = std::max(t.max_exponent, top);
  t.lsb_exponent = lsb;
  t.significand_bits = bits;
}

// Completes boundaries to 64 bits; `significand_bits` counts those of rounder ones.
void add_rests(ValueTable& t) {
  const TableDefinition& d = t.definition;
  const size_t gaps = t.boundaries.size();
  for (size_t i = 0; i + gaps < d.boundaries.size(); ++i) {
    if (const double rest = d.boundaries[i + gaps])
      t.boundaries[i] = midpoint(2 * d.boundaries[i], 2 * rest);
  }
}

// Sets the view of a finished table, which the codec reads.
void show(ValueTable& t) {
  const TableDefinition& d = t.definition;
  TableView& v = t.view;
  v.by_code = t.by_code.data();
  v.values = t.values.data();
  v.codes = t.codes.data();
  v.lower_is_odd = t.lower_is_odd.data();
  v.boundaries = t.boundaries.data();
  v.size = static_cast<int64_t>(t.values.size());
  v.ties = d.ties;
  v.high = d.high;
  v.low = d.low;
  v.minpos = d.minpos;
  v.negative_is_nan = d.negative_is_nan;
}

void complete(ValueTable& t) {
  const TableDefinition& d = t.definition;
  require(d.bits >= 1 && d.bits <= 16 && d.values.size() <= size_t{1} << d.bits,
          "codes of 1 to 16 bits");
  t.by_code = d.values;
  t.by_code.resize(size_t{1} << d.bits, std::numeric_limits<double>::quiet_NaN());
  for (const uint32_t code :
       {d.nan_code, d.high.code, d.high.infinity, d.low.code, d.low.infinity}) {
    require(code < t.by_code.size(), "special codes within its width");
  }
  sort_values(t);
  find_odd(t);
  find_boundaries(t);
  find_facts(t);
  add_rests(t);
  // By the codec: a processor that flushes subnormals would take e8m0's smallest number for 0.
  const Format single = float_format(8, 23);
  for (const double v : t.by_code)
    t.by_code_float.push_back(bits_as<float>(static_cast<uint32_t>(encode(single, unpack(v)))));
  show(t);
}

// All that defines a table, as bytes.
std::string content_of(const TableDefinition& d) {
  std::string out = d.name + '\0';
  const auto add = [&out](const auto&... x) {
    (out.append(reinterpret_cast<const char*>(&x), sizeof x), ...);
  };
  add(d.bits, d.nan_code, d.ties, d.minpos, d.negative_is_nan, d.logarithm, d.log_bits,
      d.values.size());
  for (const TableEnd* e : {&d.high, &d.low})
    add(e->saturates, e->code, e->infinity, e->next, e->limit);
  for (const double v : d.values) add(std::isnan(v) ? std::numeric_limits<double>::quiet_NaN() : v);
  for (const double v : d.boundaries) add(v);
  return out;
}

} // namespace

Format make_table_format(const TableDefinition& definition) {
  static auto* const tables = new std::map<std::string, std::shared_ptr<ValueTable>>;
  auto made = new_table();
  made->definition = definition;
  complete(*made);
  if (definition.logarithm != Logarithm::None) {
    const auto twin = new_table();
    twin->definition = definition;
    complete(*twin);
    twin->view.on_logarithms = true;
    made->on_logarithms = twin;
  }
  const bool is_signed = made->values.front() < 0;
  const std::lock_guard<std::mutex> lock(tables_mutex());
  const auto found = tables->try_emplace(content_of(definition), std::move(made)).first;
  return table_format(found->second.get(), definition.bits, is_signed);
}

uint64_t next_code_of_table(const Format& f, uint64_t code, bool up) {
  const ValueTable& t = table_of(f);
  code &= f.code_mask();
  const int32_t rank = t.rank_of_code[code];
  if (rank < 0) {
    const double v = t.by_code[code];
    if (!std::isinf(v) || (v > 0) == up) return code;
    return up ? t.codes.front() : t.codes.back();
  }
  const int64_t to = rank + (up ? 1 : -1);
  if (to < 0 || to >= t.view.size) {
    const TableEnd& end = up ? t.definition.high : t.definition.low;
    return end.saturates ? code : end.code;
  }
  return code_of_rank(t.view, to, !up ? false : true);
}

} // namespace c10::formats
