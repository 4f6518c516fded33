#include <c10/formats/ValueTable.h>

#include <c10/formats/ExactCodec.h>
#include <c10/formats/ForkSafeMutex.h>
#include <c10/formats/MachineBits.h>
#include <c10/formats/TableSteps.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>

namespace c10::formats {
namespace {

constexpr int kModes = sizeof(kRoundingModes) / sizeof(kRoundingModes[0]);

// Steps are made once and never freed.
struct TableWithSteps : ValueTable {
  mutable std::atomic<const TableSteps<float>*> of_float[kModes]{};
  mutable std::atomic<const TableSteps<double>*> of_double[kModes]{};
};

ForkSafeMutex& mutex() {
  static ForkSafeMutex instance;
  return instance;
}

// ---- making a table ----

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(std::string("expected ") + what + " in a table of values");
}

// How many bits from the first to the last one set, and the last one's exponent.
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
  // Of the two zeros -0 comes first.
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const double x = d.values[a], y = d.values[b];
    return x < y || (x == y && std::signbit(x) && !std::signbit(y));
  });
  t.rank_of_code.assign(t.by_code.size(), -1);
  for (const uint32_t code : order) {
    const double v = d.values[code];
    if (!t.values.empty() && t.values.back() == v) {
      require(v == 0 && std::signbit(d.values[t.codes.back()]) && !std::signbit(v), "no value twice");
      t.plus_zero = code;
    } else {
      require(v == 0 || std::fabs(v) >= 0x1p-1022, "no subnormal number of float64");
      if (v == 0) {
        t.zero = static_cast<int>(t.values.size());
        t.plus_zero = t.minus_zero = code;
      }
      t.values.push_back(v == 0 ? 0.0 : v);
      t.codes.push_back(code);
    }
    t.rank_of_code[code] = static_cast<int32_t>(t.values.size() - 1);
  }
  if (t.zero >= 0) t.codes[static_cast<size_t>(t.zero)] = t.plus_zero;
}

void find_odd(ValueTable& t) {
  for (size_t i = 0; i + 1 < t.codes.size(); ++i) {
    const bool lower = t.codes[i] & 1, upper = t.codes[i + 1] & 1;
    t.lower_is_odd.push_back(lower != upper ? lower : i & 1);
  }
}

void find_boundaries(ValueTable& t) {
  const TableDefinition& d = t.definition;
  const size_t gaps = t.values.size() - 1;
  require(d.boundaries.empty() || d.boundaries.size() == gaps, "one boundary between every two neighbours");
  for (size_t i = 0; i < gaps; ++i) {
    if (d.boundaries.empty()) {
      t.boundaries.push_back(midpoint(t.values[i], t.values[i + 1]));
    } else {
      require(t.values[i] <= d.boundaries[i] && d.boundaries[i] <= t.values[i + 1], "each boundary between its neighbours");
      t.boundaries.push_back(unpack(d.boundaries[i]));
    }
  }
  const auto limit = [](const TableEnd& end, double outermost) {
    if (end.saturates) return Unpacked{};
    return std::isnan(end.limit) ? midpoint(std::min(outermost, end.next), std::max(outermost, end.next)) : unpack(end.limit);
  };
  require(d.high.saturates || d.high.next > t.values.back(), "what follows the largest value above it");
  require(d.low.saturates || d.low.next < t.values.front(), "what follows the lowest value below it");
  t.high_limit = limit(d.high, t.values.back());
  t.low_limit = limit(d.low, t.values.front());
}

void find_facts(ValueTable& t) {
  const TableDefinition& d = t.definition;
  t.max_code = t.codes.back();
  t.lowest_code = t.codes.front();
  t.nan_code = d.nan_code;
  t.infinity_code = d.high.infinity;
  t.infinity_is_nan = std::isnan(t.by_code[d.high.infinity]);
  t.has_infinity = std::any_of(d.values.begin(), d.values.end(), [](double v) { return std::isinf(v); });
  t.smallest = std::numeric_limits<double>::quiet_NaN();
  int top = std::numeric_limits<int>::min(), bottom = std::numeric_limits<int>::max(), lsb = std::numeric_limits<int>::max(), bits = 0;
  t.fits_float = true;
  const auto see_value = [&](double v) {
    if (v == 0) return;
    const Unpacked u = unpack(v);
    const Extent e = extent_of(u);
    top = std::max(top, u.exponent), bottom = std::min(bottom, u.exponent);
    lsb = std::min(lsb, e.lsb), bits = std::max(bits, e.bits);
  };
  const auto see_boundary = [&](const Unpacked& u) {
    if (u.cls != Class::Finite) return;
    const Extent e = extent_of(u);
    lsb = std::min(lsb, e.lsb + 1), bits = std::max(bits, e.bits - 1);
  };
  for (const double v : t.values) {
    see_value(v);
    if (v > 0 && !(t.smallest <= v)) t.smallest = v;
    t.fits_float = t.fits_float && static_cast<double>(static_cast<float>(v)) == v && (v == 0 || std::fabs(v) >= 0x1p-126);
  }
  t.max_exponent = top, t.min_exponent = bottom;
  for (const Unpacked& b : t.boundaries) see_boundary(b);
  if (!d.high.saturates) see_value(d.high.next), see_boundary(t.high_limit);
  if (!d.low.saturates) see_value(d.low.next), see_boundary(t.low_limit);
  t.max_exponent = std::max(t.max_exponent, top);
  t.lsb_exponent = lsb, t.significand_bits = bits;
}

void fill(ValueTable& t) {
  const TableDefinition& d = t.definition;
  require(d.bits >= 1 && d.bits <= 16 && d.values.size() <= size_t{1} << d.bits, "codes of 1 to 16 bits");
  t.by_code = d.values;
  t.by_code.resize(size_t{1} << d.bits, std::numeric_limits<double>::quiet_NaN());
  for (const uint32_t code : {d.nan_code, d.high.code, d.high.infinity, d.low.code, d.low.infinity}) {
    require(code < t.by_code.size(), "special codes of its width");
  }
  sort_values(t);
  find_odd(t);
  find_boundaries(t);
  find_facts(t);
  for (const double v : t.by_code) t.by_code_float.push_back(t.fits_float ? static_cast<float>(v) : 0);
}

// Everything that makes a table what it is, as bytes.
std::string content_of(const TableDefinition& d) {
  std::string out = d.name + '\0';
  const auto add = [&out](const auto& x) { out.append(reinterpret_cast<const char*>(&x), sizeof x); };
  add(d.bits), add(d.nan_code), add(d.ties), add(d.minpos), add(d.negative_is_nan), add(d.values.size());
  for (const TableEnd* e : {&d.high, &d.low}) add(e->saturates), add(e->code), add(e->infinity), add(e->next), add(e->limit);
  for (const double v : d.values) add(std::isnan(v) ? std::numeric_limits<double>::quiet_NaN() : v);
  for (const double v : d.boundaries) add(v);
  return out;
}

// ---- steps ----

template <typename T>
T number_of(typename Machine<T>::Signed key) {
  return bits_as<T>(key ^ (key >> (Machine<T>::width - 1) & std::numeric_limits<typename Machine<T>::Signed>::max()));
}

// A mode's result changes at a value or a boundary r only: with the first machine number that is r or above it, or with the next one.
template <typename T>
std::vector<typename Machine<T>::Signed> places_of_change(const ValueTable& t) {
  using Key = typename Machine<T>::Signed;
  const Key lowest = TableSteps<T>::key_of(-std::numeric_limits<T>::infinity()), highest = TableSteps<T>::key_of(std::numeric_limits<T>::infinity());
  std::vector<Key> keys{lowest, lowest + 1, Key{-1}, Key{0}, Key{1}, highest};
  const auto see = [&](double r) {
    const Key key = TableSteps<T>::key_of(static_cast<T>(r)); // no further from r than the next machine number
    for (Key k = key - 1; k <= key + 2; ++k) {
      if (k > lowest && k <= highest) keys.push_back(k);
    }
  };
  for (const double v : t.values) see(v);
  for (const Unpacked& b : t.boundaries) see(to_double(b));
  if (!t.definition.high.saturates) see(t.definition.high.next), see(to_double(t.high_limit));
  if (!t.definition.low.saturates) see(t.definition.low.next), see(to_double(t.low_limit));
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

// Where the search begins by the leading bits of a key, with as few comparisons behind it as tables of that size allow.
template <typename T>
void index(TableSteps<T>& s) {
  using M = Machine<T>;
  using Bits = typename M::Bits;
  using Key = typename M::Signed;
  const size_t n = s.thresholds.size();
  constexpr Bits sign = Bits{1} << (M::width - 1);
  const auto lead = [](Key key, int shift) { return (static_cast<Bits>(key) ^ sign) >> shift; };
  const auto is_subnormal = [](Key key) { return key >= -(Key{1} << M::fraction) && key < Key{1} << M::fraction; };
  const int most = n <= 512 ? 12 : 15; // bits: what lies in the first cache for codes of 8 bits, and in the second for 16
  std::vector<size_t> counts;
  for (int bits = 6; bits <= most; ++bits) {
    const int shift = M::width - bits;
    std::vector<int32_t> first(size_t{1} << bits, 0);
    std::vector<size_t> count(first.size(), 0);
    size_t largest = 0, done = 0;
    for (Bits bucket = 0; bucket < first.size(); ++bucket) {
      first[bucket] = static_cast<int32_t>(done);
      const auto lowest = static_cast<Key>((bucket << shift) ^ sign), highest = static_cast<Key>(lowest + ((Key{1} << shift) - 1));
      const bool has_normal = !is_subnormal(lowest) || !is_subnormal(highest);
      while (done < n && lead(s.thresholds[done], shift) == bucket) ++done, ++count[bucket];
      if (has_normal) largest = std::max(largest, count[bucket]);
    }
    const int rounds = std::bit_width(largest);
    if (!s.first.empty() && rounds >= s.rounds) continue;
    s.first = std::move(first), s.shift = shift, s.rounds = rounds, counts = std::move(count);
  }
  if (s.rounds > 8) s.rounds = 16; // the kernel has a loop for each number up to 8, and one for all others
  for (size_t bucket = 0; bucket < counts.size(); ++bucket) {
    if (counts[bucket] >> s.rounds) s.first[bucket] = static_cast<int32_t>(n + 1);
  }
  s.count = static_cast<int64_t>(n);
  const size_t padded = n + 1 + (size_t{1} << s.rounds);
  s.thresholds.resize(padded, std::numeric_limits<Key>::max());
  s.codes.resize(padded + 1, -1);
}

template <typename T>
std::unique_ptr<const TableSteps<T>> make_steps(const Format& f) {
  auto s = std::make_unique<TableSteps<T>>();
  for (const auto key : places_of_change<T>(table_of(f))) {
    const auto code = static_cast<int32_t>(encode_table(f, unpack(static_cast<double>(number_of<T>(key))), 0));
    if (!s->codes.empty() && s->codes.back() == code) continue;
    if (!s->codes.empty()) s->thresholds.push_back(key);
    s->codes.push_back(code);
  }
  index(*s);
  return s;
}

template <typename T, typename Places>
const TableSteps<T>& steps_of(const Format& f, Places& places) {
  auto& place = places[static_cast<int>(f.rounding)];
  if (const auto* made = place.load(std::memory_order_acquire)) return *made;
  const std::lock_guard<std::mutex> lock(mutex());
  if (!place.load(std::memory_order_relaxed)) place.store(make_steps<T>(f).release(), std::memory_order_release);
  return *place.load(std::memory_order_relaxed);
}

} // namespace

Format make_table_format(const TableDefinition& definition) {
  static auto* const tables = new std::map<std::string, std::unique_ptr<TableWithSteps>>;
  auto made = std::make_unique<TableWithSteps>();
  made->definition = definition;
  fill(*made);
  const bool is_signed = made->values.front() < 0;
  const std::lock_guard<std::mutex> lock(mutex());
  const auto found = tables->try_emplace(content_of(definition), std::move(made)).first;
  return table_format(found->second.get(), definition.bits, is_signed);
}

uint64_t next_code_of_table(const Format& f, uint64_t code, bool up) {
  const ValueTable& t = table_of(f);
  code &= f.code_mask();
  const int32_t rank = t.rank_of_code[code];
  if (rank < 0) {
    const double v = t.by_code[code];
    return std::isinf(v) && (v > 0) != up ? (up ? t.codes.front() : t.codes.back()) : code;
  }
  const int64_t to = rank + (up ? 1 : -1);
  if (to < 0 || to >= t.size()) {
    const TableEnd& end = up ? t.definition.high : t.definition.low;
    return end.saturates ? code : end.code;
  }
  return code_of_rank(t, to, !up ? false : true);
}

const TableSteps<float>& steps_of_float(const Format& f) {
  return steps_of<float>(f, static_cast<const TableWithSteps&>(table_of(f)).of_float);
}

const TableSteps<double>& steps_of_double(const Format& f) {
  return steps_of<double>(f, static_cast<const TableWithSteps&>(table_of(f)).of_double);
}

} // namespace c10::formats
