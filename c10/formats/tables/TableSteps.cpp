#include <c10/formats/tables/TableSteps.h>

#include <c10/formats/ForkSafeMutex.h>
#include <c10/formats/codec/ExactCodec.h>
#include <c10/formats/codec/KeptDenormals.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <mutex>

namespace c10::formats {
namespace {

constexpr int kModes = sizeof(kRoundingModes) / sizeof(kRoundingModes[0]);

// Made once and never freed.
template <typename T>
struct Made {
  mutable std::atomic<const TableSteps<T>*> steps[kModes][2]{};
  mutable std::atomic<const TableGaps<T>*> gaps{};
};
struct TableWithSteps : ValueTable {
  Made<float> of_float;
  Made<double> of_double;

  const Made<float>& made(float) const { return of_float; }
  const Made<double>& made(double) const { return of_double; }
};

template <typename T>
const Made<T>& made(const Format& f) {
  return static_cast<const TableWithSteps&>(table_of(f)).made(T{});
}

ForkSafeMutex& steps_mutex() {
  static ForkSafeMutex instance;
  return instance;
}

template <typename T>
T number_of(typename Machine<T>::Signed key) {
  return bits_as<T>(
      key ^
      (key >> (Machine<T>::width - 1) & std::numeric_limits<typename Machine<T>::Signed>::max()));
}

// A result can change only at one of these numbers r: at the first machine number from r on, or at
// the next one.
template <typename T>
std::vector<typename Machine<T>::Signed> places_of_change(const std::vector<double>& numbers) {
  using Key = typename Machine<T>::Signed;
  const Key lowest = TableSteps<T>::key_of(-std::numeric_limits<T>::infinity()),
            highest = TableSteps<T>::key_of(std::numeric_limits<T>::infinity());
  std::vector<Key> keys{lowest, lowest + 1, Key{-1}, Key{0}, Key{1}, highest};
  for (const double r : numbers) {
    // The machine number next to r, on either side.
    const Key key = TableSteps<T>::key_of(static_cast<T>(r));
    for (Key k = key; k <= key + 1; ++k) {
      if (k > lowest && k <= highest) keys.push_back(k);
    }
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

// Values, and the numbers behind the outermost ones, ascending.
std::vector<double> ends_of_gaps(const ValueTable& t) {
  std::vector<double> ends = t.values;
  if (!t.definition.low.saturates) ends.insert(ends.begin(), t.definition.low.next);
  if (!t.definition.high.saturates) ends.push_back(t.definition.high.next);
  return ends;
}

// Adds the ends of the ranges in which on_logarithms() takes a number for one of these.
std::vector<double> with_reach(const ValueTable& t, std::vector<double> places) {
  for (size_t i = 0, n = t.view.on_logarithms ? places.size() : 0; i < n; ++i) {
    if (places[i] == 0) continue;
    const double reach = std::ldexp(1.0, std::ilogb(places[i]) + kLogReach);
    // Within two numbers of it, if a power of two is between.
    for (const double end : {places[i] - reach, places[i] + reach}) {
      places.insert(places.end(),
                    {std::nextafter(end, -HUGE_VAL), end, std::nextafter(end, HUGE_VAL)});
    }
  }
  return places;
}

std::vector<double> all_places(const ValueTable& t) {
  std::vector<double> places = ends_of_gaps(t);
  for (const Unpacked& b : t.boundaries) places.push_back(to_double(b));
  if (!t.definition.high.saturates) places.push_back(to_double(t.view.high_limit));
  if (!t.definition.low.saturates) places.push_back(to_double(t.view.low_limit));
  return with_reach(t, std::move(places));
}

// ---- where a search begins ----

// Searches begin by the leading bits of a key. Few comparisons follow, as tables of that size
// allow.
void begin_search(TableSteps<double>& s) {
  using M = Machine<double>;
  const size_t n = s.thresholds.size();
  constexpr uint64_t sign = uint64_t{1} << (M::width - 1);
  const auto lead = [](int64_t key, int shift) {
    return (static_cast<uint64_t>(key) ^ sign) >> shift;
  };
  const auto is_subnormal = [](int64_t key) {
    return key >= -(int64_t{1} << M::fraction) && key < int64_t{1} << M::fraction;
  };
  // As many bits as fit the first cache for codes of 8 bits, and the second for 16.
  const int most = n <= 512 ? 12 : 15;
  std::vector<size_t> counts;
  for (int bits = 6; bits <= most; ++bits) {
    const int shift = M::width - bits;
    std::vector<int32_t> first(size_t{1} << bits, 0);
    std::vector<size_t> count(first.size(), 0);
    size_t largest = 0, done = 0;
    for (uint64_t bucket = 0; bucket < first.size(); ++bucket) {
      first[bucket] = static_cast<int32_t>(done);
      const auto lowest = static_cast<int64_t>((bucket << shift) ^ sign),
                 highest = lowest + ((int64_t{1} << shift) - 1);
      const bool has_normal = !is_subnormal(lowest) || !is_subnormal(highest);
      for (; done < n && lead(s.thresholds[done], shift) == bucket; ++done) ++count[bucket];
      if (has_normal) largest = std::max(largest, count[bucket]);
    }
    const int rounds = std::bit_width(largest);
    if (!s.begin.first.empty() && rounds >= s.begin.rounds) continue;
    s.begin = {std::move(first), shift, rounds};
    counts = std::move(count);
  }
  // The kernel has a loop for each number up to 8, and one for all others.
  if (s.begin.rounds > 8) s.begin.rounds = 16;
  for (size_t bucket = 0; bucket < counts.size(); ++bucket) {
    if (counts[bucket] >> s.begin.rounds) s.begin.first[bucket] = static_cast<int32_t>(n + 1);
  }
  const size_t padded = n + 1 + (size_t{1} << s.begin.rounds);
  s.thresholds.resize(padded, std::numeric_limits<int64_t>::max());
  s.codes.resize(padded + 1, -1);
}

using Run = TableBuckets::Run;

std::vector<Run> runs_of(const TableSteps<float>& s) {
  constexpr uint32_t infinity = 0x7F800000, sign = 0x80000000;
  std::vector<Run> runs;
  const auto add = [&runs](uint32_t begin, int32_t code) {
    if (runs.empty() || runs.back().code != static_cast<uint32_t>(code))
      runs.push_back({begin, static_cast<uint32_t>(code)});
  };
  const auto positive = static_cast<size_t>(
      std::upper_bound(s.thresholds.begin(), s.thresholds.end(), 0) - s.thresholds.begin());
  add(0, s.codes[positive]);
  for (size_t i = positive; i < s.thresholds.size(); ++i)
    add(static_cast<uint32_t>(s.thresholds[i]), s.codes[i + 1]);
  add(infinity + 1, s.nan_code);
  const auto negative = static_cast<size_t>(
      std::upper_bound(s.thresholds.begin(), s.thresholds.end(), -1) - s.thresholds.begin());
  add(sign, s.codes[negative]);
  for (size_t i = negative; i-- > 0;)
    add(bits_as<uint32_t>(number_of<float>(s.thresholds[i] - 1)), s.codes[i]);
  add(sign + infinity + 1, s.nan_code);
  return runs;
}

// The contents of one bucket. Its first run begins no later than the bucket; if more than one other
// run begins in it, it is undecided.
struct Bucket {
  uint32_t threshold, above, below, first_run;
  bool undecided;
};

// Makes the bucket of 2^shift numbers from `begin` on; `run` is the run in which the previous one
// ended.
Bucket next_bucket(const std::vector<Run>& runs, size_t& run, uint32_t begin, int shift) {
  const auto begins_within = [&](size_t r, uint32_t from) {
    return r < runs.size() && runs[r].begin >= from && (runs[r].begin - begin) >> shift == 0;
  };
  while (begins_within(run + 1, begin) && runs[run + 1].begin == begin) ++run;
  Bucket b{0, runs[run].code, runs[run].code, static_cast<uint32_t>(run), false};
  int thresholds = 0;
  for (; begins_within(run + 1, begin); ++run) {
    b.threshold = runs[run + 1].begin;
    b.above = runs[run + 1].code;
    ++thresholds;
  }
  b.undecided = thresholds > 1;
  return b;
}

bool fill_small(TableBuckets& to, const std::vector<Run>& runs) {
  if (std::any_of(runs.begin(), runs.end(), [](const Run& r) { return r.code > 0xFF; }))
    return false;
  std::vector<uint32_t> small;
  size_t run = 0;
  for (uint32_t lead = 0; lead < 0x10000; ++lead) {
    Bucket b = next_bucket(runs, run, lead << 16, 16);
    if (b.undecided) {
      if ((lead & 0x7FFF) != 0) return false;
      to.smallest = true;
      b.threshold = 0;
      b.above = b.below;
    }
    small.push_back(b.threshold << 16 | b.above << 8 | b.below);
  }
  to.small = std::move(small);
  return true;
}

void fill_large(TableBuckets& to, const std::vector<Run>& runs) {
  using B = TableBuckets;
  size_t run = 0;
  for (uint32_t lead = 0; lead < uint32_t{1} << B::kLead; ++lead) {
    const uint32_t begin = lead << B::kLowBits;
    size_t last = run;
    while (last + 1 < runs.size() && runs[last + 1].begin >> B::kLowBits == lead) ++last;
    const size_t most = 16 + 4 * (last - run);
    int shift = B::kLowBits;
    std::vector<Bucket> buckets;
    // Buckets are as wide as possible, and not many more than thresholds.
    for (;; --shift) {
      buckets.clear();
      size_t at = run;
      for (uint32_t i = 0; i < uint32_t{1} << (B::kLowBits - shift); ++i)
        buckets.push_back(next_bucket(runs, at, begin + (i << shift), shift));
      const bool decided =
          std::none_of(buckets.begin(), buckets.end(), [](const Bucket& b) { return b.undecided; });
      if (decided || shift == 0 || 2 * buckets.size() > most) break;
    }
    run = last;
    to.places.push_back(static_cast<uint32_t>(to.large.size()) << 5 | static_cast<uint32_t>(shift));
    for (const Bucket& b : buckets) {
      const uint64_t run_number = B::kUndecided | b.first_run;
      const uint64_t above = b.undecided ? run_number : b.above,
                     below = b.undecided ? run_number : b.below;
      to.large.push_back(uint64_t{b.threshold & B::kLow} << 2 * B::kCodeBits |
                         above << B::kCodeBits | below);
    }
  }
}

void begin_search(TableSteps<float>& s) {
  s.begin.runs = runs_of(s);
  if (!fill_small(s.begin, s.begin.runs)) fill_large(s.begin, s.begin.runs);
  s.thresholds = {}, s.codes = {};
}

// ---- steps ----

// code_at: the code of a machine number that is not NaN.
template <typename T, typename CodeAt>
TableSteps<T> make_steps(const std::vector<double>& places, CodeAt code_at) {
  TableSteps<T> s;
  for (const auto key : places_of_change<T>(places)) {
    const int32_t code = code_at(number_of<T>(key));
    if (!s.codes.empty() && s.codes.back() == code) continue;
    if (!s.codes.empty()) s.thresholds.push_back(key);
    s.codes.push_back(code);
  }
  s.count = static_cast<int64_t>(s.thresholds.size());
  return s;
}

// ---- gaps ----

bool is_power_of_two(const Unpacked& u) {
  return u.significand == uint64_t{1} << 63 && !u.sticky;
}

// Whether x - inner is exact for all x from inner to outer, whose distance is a power of two. It is
// if the signs agree: inner is a multiple of outer's last place, and so of x's, and the difference
// is no larger than x.
bool differences_are_exact(double inner, double outer) {
  return inner == 0 ||
      (std::signbit(inner) == std::signbit(outer) && std::fabs(inner) <= std::fabs(outer));
}

struct GapFinder {
  const ValueTable& t;
  Format f; // in the mode `stochastic`, with all bits of its word
  std::vector<double> ends;
  size_t last{~size_t{0}}; // upper end of the last gap
  bool last_negative{false};
  TableGap gap;

  explicit GapFinder(const Format& format) : t(table_of(format)), f(format), ends(ends_of_gaps(t)) {
    f.random_bits = 0;
  }

  uint16_t code(double x, uint64_t word) const {
    return static_cast<uint16_t>(encode_table(f, unpack(x), word));
  }
  TableGap always(double x) const {
    const uint16_t c = code(x, 0);
    return {0, 0, 0, c, c};
  }

  // A gap includes its inner end; its outer end belongs to the next gap.
  TableGap at(double x) {
    const bool negative = std::signbit(x);
    const auto above = negative ? std::lower_bound(ends.begin(), ends.end(), x)
                                : std::upper_bound(ends.begin(), ends.end(), x);
    if (above == ends.begin() || above == ends.end()) return always(x);
    const auto place = static_cast<size_t>(above - ends.begin());
    if (t.view.on_logarithms &&
        (is_near(unpack(x), unpack(ends[place - 1])) || is_near(unpack(x), unpack(ends[place]))))
      return always(x);
    if (place != last || negative != last_negative)
      gap = between(ends[place - 1], ends[place], place, negative);
    last = place;
    last_negative = negative;
    // Between 0 and minpos numbers have one code, and 0 another.
    return gap.scale == 0 ? always(x) : gap;
  }

  TableGap between(double lower, double upper, size_t place, bool negative) const {
    // A gap across 0 is two gaps, by the sign of x.
    const double from = lower < 0 && upper > 0 && negative ? lower : upper;
    const double middle = lower < 0 && upper > 0 ? from / 2 : lower / 2 + upper / 2;
    const uint16_t inner_code = code(middle, 0), outer_code = code(middle, ~uint64_t{0});
    if (inner_code == outer_code || middle == lower || middle == upper) return {};
    bool lower_is_inner =
        std::fabs(lower) < std::fabs(upper) || (std::fabs(lower) == std::fabs(upper) && negative);
    if (place == 1 && !t.definition.low.saturates) lower_is_inner = false;
    if (place + 1 == ends.size() && !t.definition.high.saturates) lower_is_inner = true;
    const double inner = lower_is_inner ? lower : upper, outer = lower_is_inner ? upper : lower;
    // Four roundings, each of 2^-53 of a product up to 2^32.
    TableGap g{inner, 0x1p32 / (outer - inner), 0x1p-18f, inner_code, outer_code};
    const Unpacked width = distance(unpack(inner), unpack(outer));
    if (is_power_of_two(width) && differences_are_exact(inner, outer)) g.margin = 0;
    // If products could leave float64's range, every part is undecided.
    if (width.exponent < -900 || width.exponent > 1000) {
      g.inner = 0;
      g.scale = 0x1p-1000;
      g.margin = std::numeric_limits<float>::infinity();
    }
    return g;
  }
};

template <typename T>
TableGaps<T> make_gaps(const Format& f) {
  TableGaps<T> made;
  GapFinder finder(f);
  made.steps = make_steps<T>(with_reach(finder.t, finder.ends), [&](T x) {
    const TableGap gap = finder.at(static_cast<double>(x));
    if (made.gaps.empty() || !(made.gaps.back() == gap)) made.gaps.push_back(gap);
    return static_cast<int32_t>(made.gaps.size() - 1);
  });
  const auto nan = static_cast<uint16_t>(table_of(f).nan_code);
  made.steps.nan_code = static_cast<int32_t>(made.gaps.size());
  made.gaps.push_back({0, 0, 0, nan, nan});
  return made;
}

template <typename Object, typename Make>
const Object& made_once(std::atomic<const Object*>& place, Make make) {
  if (const auto* made = place.load(std::memory_order_acquire)) return *made;
  const std::lock_guard<std::mutex> lock(steps_mutex());
  const KeptDenormals kept;
  if (!place.load(std::memory_order_relaxed))
    place.store(new Object(make()), std::memory_order_release);
  return *place.load(std::memory_order_relaxed);
}

} // namespace

std::shared_ptr<ValueTable> new_table() {
  return std::make_shared<TableWithSteps>();
}

template <typename T>
const TableSteps<T>& steps_of(const Format& f, bool coin) {
  return made_once(made<T>(f).steps[static_cast<int>(f.rounding)][coin], [&] {
    const uint64_t word = coin ? ~uint64_t{0} : 0;
    auto s = make_steps<T>(all_places(table_of(f)), [&](T x) {
      return static_cast<int32_t>(encode_table(f, unpack(static_cast<double>(x)), word));
    });
    s.nan_code = static_cast<int32_t>(f.nan_code());
    begin_search(s);
    return s;
  });
}

template <typename T>
const TableGaps<T>& gaps_of(const Format& f) {
  return made_once(made<T>(f).gaps, [&] {
    auto g = make_gaps<T>(f);
    begin_search(g.steps);
    return g;
  });
}

template const TableSteps<float>& steps_of<float>(const Format&, bool);
template const TableSteps<double>& steps_of<double>(const Format&, bool);
template const TableGaps<float>& gaps_of<float>(const Format&);
template const TableGaps<double>& gaps_of<double>(const Format&);

} // namespace c10::formats
