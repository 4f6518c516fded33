#include <ATen/native/formats/stock/StockTables.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/take.h>
#include <ATen/ops/where.h>
#include <c10/formats/ForkSafeMutex.h>
#include <c10/formats/codec/ExactCodec.h>
#include <c10/formats/codec/MachineBits.h>

#include <deque>
#include <mutex>
#include <vector>

namespace at::formats {
namespace {

using c10::ScalarType;
using c10::formats::Format;
using c10::formats::Machine;

at::Tensor codes_on_device(const std::vector<uint64_t>& codes, int bits, c10::Device device) {
  if (bits <= 8) {
    std::vector<uint8_t> narrow(codes.begin(), codes.end());
    return on_device(narrow, ScalarType::Byte, device);
  }
  std::vector<int16_t> narrow(codes.size());
  for (size_t i = 0; i < codes.size(); ++i) narrow[i] = static_cast<int16_t>(codes[i]);
  return on_device(narrow, ScalarType::Short, device);
}

template <typename T>
struct Finder {
  using Bits = typename Machine<T>::Bits;
  using Signed = typename Machine<T>::Signed;
  static constexpr Signed most = ~Bits{0} >> 1;

  const Format& format;
  uint64_t word;
  std::vector<Signed> starts;
  std::vector<uint64_t> codes;

  uint64_t code_at(Signed place) const {
    const auto bits = static_cast<Bits>(place < 0 ? place ^ most : place);
    return encode(format, c10::formats::unpack(double{c10::formats::bits_as<T>(bits)}), word);
  }

  // Appends the pieces that start in (first, last]. Codes of a finite stretch are in the order of
  // values: equal codes at both ends are equal everywhere between.
  void split(Signed first, uint64_t first_code, Signed last, uint64_t last_code) {
    if (first_code == last_code) return;
    if (last == first + 1) {
      starts.push_back(last);
      codes.push_back(last_code);
      return;
    }
    const Signed middle = first + (last - first) / 2;
    const uint64_t code = code_at(middle);
    split(first, first_code, middle, code);
    split(middle, code, last, last_code);
  }

  void run() {
    const auto infinity = static_cast<Signed>(c10::formats::infinity_bits<T>());
    // Negative NaNs, -infinity, negative numbers, positive ones, infinity, NaNs.
    const Signed stretches[][2] = {
        {-most - 1, -infinity - 2}, {-infinity - 1, -infinity - 1}, {-infinity, -1},
        {0, infinity - 1},          {infinity, infinity},           {infinity + 1, most}};
    for (const auto& [first, last] : stretches) {
      const uint64_t code = code_at(first);
      if (codes.empty() || codes.back() != code) {
        if (!codes.empty()) starts.push_back(first);
        codes.push_back(code);
      }
      split(first, code, last, code_at(last));
    }
  }
};

template <typename T>
std::vector<T> values_as(const Format& f, const std::vector<uint64_t>& codes) {
  std::vector<T> values(codes.size());
  for (size_t i = 0; i < codes.size(); ++i)
    values[i] = static_cast<T>(to_double(decode(f, codes[i])));
  return values;
}

at::Tensor values_on_device(const Format& f, const std::vector<uint64_t>& codes, ScalarType type,
                            c10::Device device) {
  if (type == ScalarType::Float) {
    std::vector<float> values = values_as<float>(f, codes);
    return on_device(values, type, device);
  }
  std::vector<double> values = values_as<double>(f, codes);
  return on_device(values, type, device);
}

template <typename T>
RoundingSteps build_steps(const Format& format, uint64_t word, ScalarType type,
                          c10::Device device) {
  Finder<T> finder{format, word, {}, {}};
  finder.run();
  const ScalarType ints = sizeof(T) == sizeof(float) ? ScalarType::Int : ScalarType::Long;
  return {on_device(finder.starts, ints, device),
          codes_on_device(finder.codes, format.bits, device),
          values_on_device(format, finder.codes, type, device)};
}

// Keeps the last results of a function, by its arguments.
template <typename Key, typename Made>
class Kept {
 public:
  template <typename Make>
  Made find(const Key& key, const Make& make) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const auto& [known, made] : all_)
        if (known == key) return made;
    }
    Made made = make(); // takes milliseconds
    const std::lock_guard<std::mutex> lock(mutex_);
    if (all_.size() == kMost) all_.pop_back();
    all_.emplace_front(key, made);
    return made;
  }

 private:
  static constexpr size_t kMost = 64; // results, of up to a megabyte each
  c10::formats::ForkSafeMutex mutex_;
  std::deque<std::pair<Key, Made>> all_;
};

struct Key {
  Format format;
  uint64_t word;
  ScalarType type;
  c10::Device device;
  bool operator==(const Key&) const = default;
};

} // namespace

RoundingSteps rounding_steps(const Format& format, uint64_t word, ScalarType type,
                             c10::Device device) {
  static auto& kept = *new Kept<Key, RoundingSteps>;
  return kept.find({format, word, type, device}, [&] {
    return type == ScalarType::Float ? build_steps<float>(format, word, type, device)
                                     : build_steps<double>(format, word, type, device);
  });
}

at::Tensor find_pieces(const RoundingSteps& steps, const at::Tensor& flat) {
  const bool narrow = flat.scalar_type() == ScalarType::Float;
  const at::Tensor bits = flat.view(narrow ? ScalarType::Int : ScalarType::Long);
  const int width = narrow ? 32 : 64;
  const int64_t most = narrow ? 0x7fff'ffff : ~(uint64_t{1} << 63);
  const at::Tensor places = bits ^ bits.__rshift__(width - 1).bitwise_and(most);
  return at::bucketize(places, steps.starts, /*out_int32=*/false, /*right=*/true);
}

at::Tensor draw_outer_pieces(const Format& f, const at::Tensor& flat, const at::Tensor& inner_codes,
                             const at::Tensor& outer_codes, const StockWords& words) {
  const at::Tensor values = values_of_codes(f, ScalarType::Double, flat.device());
  const auto decoded = [&](const at::Tensor& codes) {
    const auto mask = static_cast<int64_t>(f.code_mask());
    return at::take(values, codes.to(ScalarType::Long).bitwise_and(mask));
  };
  at::Tensor outer = decoded(outer_codes);
  if (f.is_table()) { // beyond the range
    const c10::formats::TableView& t = c10::formats::view_of(f);
    const at::Tensor next =
        at::where(flat.signbit(), at::scalar_tensor(t.low.next, outer.options()),
                  at::scalar_tensor(t.high.next, outer.options()));
    outer = at::where(outer.isfinite(), outer, next);
  }
  const at::Tensor up = draw_outer(flat.to(ScalarType::Double), decoded(inner_codes), outer, words);
  return up & inner_codes.ne(outer_codes);
}

at::Tensor values_of_codes(const Format& format, ScalarType type, c10::Device device) {
  static auto& kept = *new Kept<Key, at::Tensor>;
  Format coded = format; // codes mean the same in all modes
  coded.rounding = c10::formats::Rounding::NearestEven;
  return kept.find({coded, 0, type, device}, [&] {
    std::vector<uint64_t> codes(size_t{1} << format.bits);
    for (size_t code = 0; code < codes.size(); ++code) codes[code] = code;
    return values_on_device(format, codes, type, device);
  });
}

} // namespace at::formats
