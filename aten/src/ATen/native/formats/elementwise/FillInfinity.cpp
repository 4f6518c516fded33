#include <ATen/native/formats/elementwise/FillInfinity.h>

#include <ATen/FormatWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/isinf.h>
#include <c10/formats/codec/ExactCodec.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <set>

namespace at::formats {

// The format's number that replaces an infinity of the given sign.
static double replace_infinity(bool negative, const Format& f) {
  using namespace c10::formats;
  const double infinity = negative ? -HUGE_VAL : HUGE_VAL;
  if (!f.infinity_is_nan()) return to_double(decode(f, encode(f, unpack(infinity))));
  if (f.is_table())
    return to_double(decode(f, negative ? f.table->lowest_code : f.table->max_code));
  return std::copysign(to_double(decode(f, f.max_code())), infinity);
}

static void notice(double given, double taken, const FormatEntry& entry) {
  static std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  TORCH_WARN(
      "torch.", entry.name, " has no infinity: ", given,
      " put into a tensor of it is taken as the outermost number of its sign, ", taken,
      ". Casts of tensors make it NaN. (This warning comes once in a process, for all dtypes.)");
}

double fill_number(double value, const FormatEntry& entry) {
  if (!std::isinf(value) || !entry.format.infinity_is_nan()) return value;
  const double taken = replace_infinity(value < 0, entry.format);
  notice(value, taken, entry);
  return taken;
}

c10::Scalar fill_number(const c10::Scalar& value, const FormatEntry& entry) {
  return value.isFloatingPoint() ? c10::Scalar(fill_number(value.toDouble(), entry)) : value;
}

double compared_number(double value, const FormatEntry& entry) {
  return std::isinf(value) ? replace_infinity(value < 0, entry.format) : value;
}

// ---- infinities that operators produce ----

static thread_local NoInfinitiesTold* untold = nullptr;
static thread_local std::optional<std::pair<std::string, std::string>> first_made;

NoInfinitiesTold::NoInfinitiesTold() : before_(std::exchange(untold, this)) {
}
NoInfinitiesTold::~NoInfinitiesTold() {
  untold = before_;
}

std::optional<std::pair<std::string, std::string>> first_infinity() {
  return first_made;
}
void forget_infinity() {
  first_made.reset();
}

template <typename T>
static bool holds(const T* codes, int64_t n, T code) {
  constexpr int64_t kBlock = 4096; // allows an early end, and an inner loop without branches
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(n, begin + kBlock);
    T any = 0;
    for (int64_t i = begin; i < end; ++i) any |= static_cast<T>(codes[i] == code);
    if (any) return true;
  }
  return false;
}

bool holds_code(const at::Tensor& t, uint64_t code) {
  const bool as_it_is = !is_wrapper(t) && t.is_non_overlapping_and_dense();
  const at::Tensor bits = as_it_is ? t : dense(bits_alias(t));
  const void* codes = bits.const_data_ptr();
  const int64_t n = bits.numel();
  switch (entry_of(t).format.itemsize()) {
    case 1:
      return n > 0 && std::memchr(codes, static_cast<int>(code & 0xff), static_cast<size_t>(n));
    case 2: return holds(static_cast<const uint16_t*>(codes), n, static_cast<uint16_t>(code));
    case 4: return holds(static_cast<const uint32_t*>(codes), n, static_cast<uint32_t>(code));
    default: return holds(static_cast<const uint64_t*>(codes), n, code);
  }
}

std::pair<uint64_t, uint64_t> nan_codes(const Format& format) {
  const uint64_t nan = format.nan_code();
  const bool signed_nan =
      format.kind == c10::formats::Kind::Float && format.is_signed && !format.unsigned_zero();
  return {nan, signed_nan ? nan | format.sign_code() : nan};
}

bool holds_nan(const at::Tensor& t) {
  const auto [first, second] = nan_codes(entry_of(t).format);
  return holds_code(t, first) || (second != first && holds_code(t, second));
}

static std::string remedy(const FormatEntry& entry) {
  switch (entry.format.kind) {
    case c10::formats::Kind::Posit:
      return "posit_format(..., infinity=\"saturate\") makes the dtype in which it";
    case c10::formats::Kind::Float:
      return "float_format(..., overflow=\"saturate\") makes the dtype in which it";
    default: return "in torch_dtypes.dtype(\"posit16es2_saturate\"), for one, it";
  }
}

void tell_of_infinity(const std::string& op, const FormatEntry& entry) {
  if (!entry.format.infinity_is_nan()) return;
  if (untold) {
    untold->any_ = true;
    return;
  }
  if (!first_made) first_made = {op, entry.name};
  static std::mutex mutex;
  static auto& warned = *new std::set<std::pair<std::string, std::string>>(); // outlives exit
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!warned.emplace(op, entry.name).second) return;
  }
  TORCH_WARN("torch.", entry.name, " has no infinity: ", op,
             " made one of finite operands (as log of 0 and 1/0 do), and it is ",
             entry.format.is_posit() ? "NaR" : "NaN", ". Make masks as bool, or by masked_fill; ",
             remedy(entry),
             " is the outermost number of its sign. (Said once for an operator and a dtype.)");
}

// Whether a result may contain an infinity that its format lacks.
static bool may_tell(const at::Tensor& made) {
  return is_format_tensor(made) && !is_wrapper(made) && entry_of(made).format.infinity_is_nan() &&
      made.device().is_cpu() && holds_nan(made);
}

void tell_of_infinities(const std::string& op, const at::Tensor& made, const at::Tensor& values) {
  if (!may_tell(made) || !values.is_floating_point()) return;
  const at::AutoDispatchBelowADInplaceOrView guard;
  if (at::isinf(values).any().item<bool>()) tell_of_infinity(op, entry_of(made));
}

} // namespace at::formats
