#include <ATen/native/formats/elementwise/Elementary.h>

#include <ATen/Parallel.h>
#include <ATen/native/formats/elementwise/Tile.h>
#include <ATen/native/formats/gpu/DeviceKernels.h>
#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/native/formats/stock/Backend.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/nextafter.h>
#include <ATen/ops/where.h>
#include <c10/formats/ForkSafeMutex.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <list>
#include <map>
#include <mutex>
#include <utility>

namespace at::formats {

using c10::formats::Approach;
using c10::formats::Near;
using c10::formats::Side;

namespace {

// The tables in the order of their last use, so that tables of a loop over ever new arguments are
// dropped. A finished table is only read. A reader holds its table, which lives until then even if
// it is dropped.
class Tables {
 public:
  // Returns a function's table, undefined if there is none, and whether to make it now. A table is
  // made once as many elements were looked up as it has entries.
  std::pair<at::Tensor, bool> find(const FunctionKey& key, int64_t elements, int64_t entries) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Table& t = touch(key);
    t.elements += elements;
    return {t.codes, t.elements >= entries};
  }

  void keep(const FunctionKey& key, const at::Tensor& codes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Table& t = touch(key);
    bytes_ += static_cast<int64_t>(codes.nbytes()) -
        (t.codes.defined() ? static_cast<int64_t>(t.codes.nbytes()) : 0);
    t.codes = codes;
    while (bytes_ > kMaxBytes) drop_oldest();
  }

 private:
  struct Table {
    FunctionKey key;
    int64_t elements{0}; // looked up so far
    // The result's code for every code: uint8 or int16; undefined until it is made.
    at::Tensor codes;
  };
  static constexpr int64_t kMaxBytes = int64_t{1} << 25; // 256 tables of 16-bit formats
  static constexpr size_t kMaxKeys = 1024;               // most functions have no table

  Table& touch(const FunctionKey& key) {
    const auto found = places_.find(key);
    if (found != places_.end()) {
      tables_.splice(tables_.begin(), tables_, found->second);
    } else {
      if (tables_.size() >= kMaxKeys) drop_oldest();
      tables_.push_front({key, 0, {}});
      places_.emplace(key, tables_.begin());
    }
    return tables_.front();
  }

  void drop_oldest() {
    const Table& last = tables_.back();
    if (last.codes.defined()) bytes_ -= static_cast<int64_t>(last.codes.nbytes());
    places_.erase(last.key);
    tables_.pop_back();
  }

  c10::formats::ForkSafeMutex mutex_;
  std::list<Table> tables_;
  std::map<FunctionKey, std::list<Table>::iterator> places_;
  int64_t bytes_{0};
};

Tables& tables = *new Tables; // never freed: threads may outlive the library's objects
Tables& exact_tables = *new Tables;

// in may be out. Looks up eight codes at a time, which compilers gather in a register: 0.7 to 0.8
// of the time of eight bytes joined by shifts. Single stores are slower still.
template <typename Code>
void look_up_block(const Code* __restrict results, const Code* in, Code* out, int64_t n) {
  constexpr int64_t kCodes = 8;
  int64_t i = 0;
  for (; i + kCodes <= n; i += kCodes) {
    Code looked_up[kCodes];
    for (int64_t j = 0; j < kCodes; ++j) looked_up[j] = results[in[i + j]];
    std::memcpy(out + i, looked_up, sizeof(looked_up));
  }
  for (; i < n; ++i) out[i] = results[in[i]];
}

template <typename Code, typename T>
void count_as(const at::Tensor& exact, const at::Tensor& table, const at::Tensor& in,
              const Recorder& seen) {
  const auto* codes = static_cast<const Code*>(in.const_data_ptr());
  const auto* results = static_cast<const Code*>(table.const_data_ptr());
  const T* values = exact.const_data_ptr<T>();
  at::parallel_for(0, in.numel(), 32768, [&](int64_t begin, int64_t end) {
    T x[kTile];
    Code rounded[kTile];
    for (int64_t first = begin; first < end; first += kTile) {
      const int64_t n = std::min(kTile, end - first);
      for (int64_t i = 0; i < n; ++i) {
        x[i] = values[codes[first + i]];
        rounded[i] = results[codes[first + i]];
      }
      seen.codes(x, rounded, n);
    }
  });
}

template <typename Code>
void look_up_as(const at::Tensor& table, const at::Tensor& in, const at::Tensor& out) {
  const auto* results = static_cast<const Code*>(table.const_data_ptr());
  const auto* from = static_cast<const Code*>(in.const_data_ptr());
  auto* to = static_cast<Code*>(out.mutable_data_ptr());
  at::parallel_for(0, in.numel(), 32768, [=](int64_t begin, int64_t end) {
    look_up_block(results, from + begin, to + begin, end - begin);
  });
}

// Works in pieces, which are still in the cache when they are searched.
template <typename Code>
bool watch_as(const at::Tensor& table, const at::Tensor& in, const at::Tensor& out, Code first,
              Code second) {
  constexpr int64_t kPiece = 4096;
  const auto* results = static_cast<const Code*>(table.const_data_ptr());
  const auto* from = static_cast<const Code*>(in.const_data_ptr());
  auto* to = static_cast<Code*>(out.mutable_data_ptr());
  std::atomic<bool> found{false};
  at::parallel_for(0, in.numel(), 32768, [&](int64_t begin, int64_t end) {
    Code any = 0;
    for (int64_t i = begin; i < end; i += kPiece) {
      const int64_t n = std::min(kPiece, end - i);
      look_up_block(results, from + i, to + i, n);
      const Code* made = to + i;
      for (int64_t k = 0; k < n; ++k)
        any |= static_cast<Code>((made[k] == first) | (made[k] == second));
    }
    if (any) found.store(true, std::memory_order_relaxed);
  });
  return found;
}

} // namespace

bool look_up_watching(const at::Tensor& table, const at::Tensor& in, const at::Tensor& out,
                      uint64_t first, uint64_t second) {
  if (in.itemsize() == 1)
    return watch_as<uint8_t>(table, in, out, static_cast<uint8_t>(first),
                             static_cast<uint8_t>(second));
  return watch_as<uint16_t>(table, in, out, static_cast<uint16_t>(first),
                            static_cast<uint16_t>(second));
}

std::pair<at::Tensor, bool> find_table(const FunctionKey& key, int64_t elements, int64_t entries) {
  return tables.find(key, elements, entries);
}

void keep_table(const FunctionKey& key, const at::Tensor& codes) {
  tables.keep(key, codes);
}

at::Tensor find_exact_table(const FunctionKey& key) {
  return exact_tables.find(key, 0, 1).first;
}

void keep_exact_table(const FunctionKey& key, const at::Tensor& values) {
  exact_tables.keep(key, values);
}

void count_look_up(const at::Tensor& exact, const at::Tensor& table, const at::Tensor& in,
                   const Recorder& seen) {
  const bool narrow = exact.scalar_type() == c10::ScalarType::Float;
  if (in.itemsize() == 1)
    narrow ? count_as<uint8_t, float>(exact, table, in, seen)
           : count_as<uint8_t, double>(exact, table, in, seen);
  else
    narrow ? count_as<uint16_t, float>(exact, table, in, seen)
           : count_as<uint16_t, double>(exact, table, in, seen);
}

static thread_local LastEncoded* last_encoded = nullptr;

LastEncoded::LastEncoded() : previous_(std::exchange(last_encoded, this)) {
}
LastEncoded::~LastEncoded() {
  last_encoded = previous_;
}
LastEncoded* LastEncoded::current() {
  return last_encoded;
}

void look_up(const at::Tensor& table, const at::Tensor& in, const at::Tensor& out) {
  in.itemsize() == 1 ? look_up_as<uint8_t>(table, in, out) : look_up_as<uint16_t>(table, in, out);
}

at::Tensor larger_operand(const at::Tensor& first, const at::Tensor& second) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  return at::maximum(first, second).masked_fill(first.isinf().logical_or(second.isinf()), nan);
}

at::Tensor base_of_power(const at::Tensor& base, const at::Tensor& exponent) {
  return at::where(exponent.isinf(), std::numeric_limits<double>::quiet_NaN(), base);
}

namespace {

struct NamedLimit {
  std::string_view name;
  Approach limit;
};

constexpr NamedLimit kLimits[] = {
    {"asin", {Near::Operand, Side::Outwards}},
    {"asinh", {Near::Operand, Side::Inwards}},
    {"atan", {Near::Operand, Side::Inwards}},
    {"atanh", {Near::Operand, Side::Outwards}},
    {"cos", {Near::One, Side::Inwards}},
    {"cosh", {Near::One, Side::Outwards}},
    {"erf", {Near::One, Side::Inwards}},
    {"erfc", {Near::One, Side::AgainstOperand}},
    {"erfc", {Near::Two, Side::Inwards}},
    {"exp", {Near::One, Side::AsOperand}},
    {"exp2", {Near::One, Side::AsOperand}},
    {"expm1", {Near::Operand, Side::Above}},
    {"expm1", {Near::One, Side::Above}}, // -1
    {"gelu", {Near::HalfOperand, Side::Above}},
    {"gelu", {Near::Operand, Side::Below}},
    {"i0", {Near::One, Side::Outwards}},
    {"log1p", {Near::Operand, Side::Below}},
    {"log_sigmoid_forward", {Near::Operand, Side::Below}},
    {"logaddexp", {Near::Operand, Side::Above}}, // the larger operand
    {"logaddexp2", {Near::Operand, Side::Above}},
    {"mish", {Near::ThreeFifths, Side::Above}}, // times the operand: tanh(log 2) is 3/5
    {"mish", {Near::Operand, Side::Below}},
    {"sigmoid", {Near::Half, Side::AsOperand}},
    {"sigmoid", {Near::One, Side::Inwards}},
    {"silu", {Near::HalfOperand, Side::Above}},
    {"silu", {Near::Operand, Side::Below}},
    {"sin", {Near::Operand, Side::Inwards}},
    {"sin", {Near::One, Side::Inwards}},
    {"sinh", {Near::Operand, Side::Outwards}},
    {"special_i0e", {Near::One, Side::Inwards}},
    {"special_i1", {Near::HalfOperand, Side::Outwards}},
    {"special_i1e", {Near::HalfOperand, Side::Inwards}},
    {"special_ndtr", {Near::Half, Side::AsOperand}},
    {"special_ndtr", {Near::One, Side::Inwards}},
    {"tan", {Near::Operand, Side::Outwards}},
    {"tanh", {Near::Operand, Side::Inwards}},
    {"tanh", {Near::One, Side::Inwards}},
};

constexpr bool limits_fit() {
  for (const NamedLimit& each : kLimits) {
    int count = 0;
    for (const NamedLimit& other : kLimits) count += other.name == each.name;
    if (count > FunctionEnds::kMostLimits) return false;
  }
  return true;
}
static_assert(limits_fit());

at::Tensor place_of(Near near, const at::Tensor& result, const at::Tensor& operand) {
  switch (near) {
    case Near::Operand: return operand;
    case Near::HalfOperand: return operand.mul(0.5);
    case Near::ThreeFifths: return operand.mul(3).div(5);
    case Near::One: return at::full({}, 1.0, result.options()).copysign(result);
    case Near::Half: return at::full({}, 0.5, result.options());
    default: return at::full({}, 2.0, result.options());
  }
}

at::Tensor far_away(Side side, const at::Tensor& place, const at::Tensor& operand) {
  const at::Tensor infinity =
      at::full({}, std::numeric_limits<double>::infinity(), operand.options());
  switch (side) {
    case Side::Above: return infinity;
    case Side::Below: return infinity.neg();
    case Side::Inwards: return at::full({}, 0.0, operand.options());
    case Side::Outwards: return infinity.copysign(place);
    case Side::AsOperand: return infinity.copysign(operand);
    default: return infinity.copysign(operand.neg());
  }
}

} // namespace

std::vector<std::string_view> functions_with_limits() {
  std::vector<std::string_view> names;
  for (const NamedLimit& each : kLimits) {
    if (names.empty() || names.back() != each.name) names.push_back(each.name);
  }
  return names;
}

bool comes_near_ties(std::string_view name) {
  return std::any_of(std::begin(kLimits), std::end(kLimits), [=](const NamedLimit& l) {
    return l.name == name &&
        (l.limit.near == Near::HalfOperand || l.limit.near == Near::ThreeFifths);
  });
}

FunctionEnds ends_of(std::string_view name, bool near, bool ranged, Tail tail) {
  FunctionEnds ends{.ranged = ranged, .tail = tail};
  for (const NamedLimit& each : kLimits) {
    if (near && each.name == name) ends.limits[ends.count++] = each.limit;
  }
  return ends;
}

namespace {

at::Tensor beside_limits(const at::Tensor& result, const at::Tensor& operand,
                         const FunctionEnds& ends) {
  at::Tensor values = result;
  const at::Tensor counts = operand.isfinite().logical_and(operand.ne(0));
  for (int i = 0; i < ends.count; ++i) {
    const at::Tensor place = place_of(ends.limits[i].near, result, operand);
    const at::Tensor is_near = values.sub(place)
                                   .abs()
                                   .le(place.abs().mul(FunctionEnds::kNearness))
                                   .logical_and(counts)
                                   .logical_and(place.isfinite());
    values = at::where(is_near, at::nextafter(place, far_away(ends.limits[i].side, place, operand)),
                       values);
  }
  return values;
}

at::Tensor within_range(const at::Tensor& result, const at::Tensor& operand, Tail tail) {
  const at::Tensor smallest =
      at::full({}, std::numeric_limits<double>::denorm_min(), result.options());
  if (tail == Tail::ZerosAlone)
    return at::where(operand.eq(0).logical_and(result.eq(0)), smallest, result);
  const at::Tensor counts = operand.isfinite().logical_and(operand.ne(0));
  const at::Tensor largest =
      at::full({}, std::numeric_limits<double>::max(), result.options()).copysign(result);
  const at::Tensor least = tail == Tail::NegativeZeros ? smallest.neg() : smallest.copysign(result);
  return at::where(counts.logical_and(result.isinf()), largest,
                   at::where(counts.logical_and(result.eq(0)), least, result));
}

// Whether the CPU's loop takes the tensors: plain memory, elements in the same order.
bool are_side_by_side(const at::Tensor& result, const at::Tensor& operand) {
  const auto is_plain = [](const at::Tensor& t) {
    return on_host(t.device()) && !by_stock(t.device()) &&
        t.scalar_type() == c10::ScalarType::Double && t.layout() == c10::kStrided &&
        t.unsafeGetTensorImpl()->has_storage() && !t.unsafeGetTensorImpl()->is_python_dispatch() &&
        t.is_non_overlapping_and_dense();
  };
  return is_plain(result) && is_plain(operand) && result.sizes() == operand.sizes() &&
      result.strides() == operand.strides() && !result.is_alias_of(operand);
}

} // namespace

at::Tensor with_ends(const at::Tensor& result, const at::Tensor& operand,
                     const FunctionEnds& ends) {
  const at::Tensor values = ends.count > 0 ? beside_limits(result, operand, ends) : result;
  return ends.ranged ? within_range(values, operand, ends.tail) : values;
}

at::Tensor put_ends(const at::Tensor& result, const at::Tensor& operand, const FunctionEnds& ends) {
  if (!are_side_by_side(result, operand)) return with_ends(result, operand, ends);
  const CpuKernels& k = kernels(result.device(), "functions");
  const double* operands = operand.const_data_ptr<double>();
  double* values = result.mutable_data_ptr<double>();
  at::parallel_for(0, result.numel(), 32768, [&](int64_t begin, int64_t end) {
    k.put_ends(ends, operands + begin, values + begin, end - begin);
  });
  return result;
}

} // namespace at::formats
