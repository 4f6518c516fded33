#include <ATen/native/formats/Chain.h>

#include <ATen/FormatRounding.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/formats/DeviceKernels.h>
#include <ATen/native/formats/Elementary.h>
#include <ATen/native/formats/Elementwise.h>
#include <ATen/native/formats/Tile.h>
#include <ATen/native/formats/cpu/ChainKernel.h>
#include <ATen/ops/empty_strided.h>
#include <c10/formats/NanSigns.h>
#include <c10/formats/ZeroSums.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>

namespace at::formats {
namespace {

constexpr int kNowhere = -1;

// ---- when float32's own arithmetic is enough ----

// Of posits alone: other formats' codes show which of two NaNs the machine's sum has taken.

// Fraction bits in the binade of 2^exponent.
int fraction_bits(const Format& f, int exponent) {
  const int k = exponent >> f.exp_bits;
  return std::max(f.bits - 1 - f.exp_bits - (k < 0 ? 1 - k : k + 2), 0);
}

// Whether the nearest float32 of a sum of two values rounds, to nearest even, to what the sum does. It does not where the sum is next to a midpoint
// of the format and float32 has only the midpoint. Beside x in the binade of 2^e with f digits behind the point that takes a y between 2^(e-f-2)
// and 2^(e-f), and one whose last digit is more than 23 places behind 2^e.
bool sums_round_once(const Format& f) {
  if (!f.is_posit() || f.rounding != Rounding::NearestEven || !f.arithmetic_in_float()) return false;
  for (int e = -f.max_exponent(); e <= f.max_exponent(); ++e) {
    const int digits = fraction_bits(f, e);
    for (int below = digits + 1; below <= digits + 2; ++below) {
      if (below + fraction_bits(f, e - below) > 23) return false;
    }
  }
  return true;
}

bool products_are_exact(const Format& f) {
  return f.is_posit() && f.arithmetic_in_float() && 2 * f.significand_bits() <= 24;
}

// ---- where values lie ----

struct Place {
  int numbers{kNowhere}, codes{kNowhere}; // tiles of machine numbers and of codes
  int result{kNowhere};                   // the place among results
};

// What is worked out of a chain before it runs: tiles are used again as soon as nothing needs what is in them.
struct Plan {
  std::vector<Place> places; // by value
  int number_tiles{0}, code_tiles{0};

  explicit Plan(const Chain& chain) : places(chain.operands + chain.steps.size()) {
    std::vector<size_t> last(places.size(), 0);
    std::vector<bool> as_number(places.size()), as_code(places.size());
    for (size_t s = 0; s < chain.steps.size(); ++s) {
      const ChainStep& step = chain.steps[s];
      const bool looks_up = step.what == ChainDo::LookUp || step.what == ChainDo::LookUpPair;
      if (looks_up) as_code[chain.operands + s] = true; // where its result is
      for (const int v : {step.a, step.b}) {
        if (v < 0) continue;
        (looks_up ? as_code : as_number)[v] = true;
        last[v] = s;
      }
    }
    for (size_t r = 0; r < chain.results.size(); ++r) {
      places[chain.results[r]].result = static_cast<int>(r);
      as_code[chain.results[r]] = true;
    }
    std::vector<int> numbers, codes; // tiles that are free
    const auto take = [](std::vector<int>& free, int& count) {
      if (free.empty()) return count++;
      const int tile = free.back();
      free.pop_back();
      return tile;
    };
    for (size_t v = 0; v < places.size(); ++v) {
      const size_t s = v - chain.operands;
      if (v >= static_cast<size_t>(chain.operands)) {
        // Operands keep theirs: a broadcast one is loaded once.
        for (const int u : {chain.steps[s].a, chain.steps[s].b}) {
          if (u < chain.operands || last[u] != s || (chain.steps[s].b == u && chain.steps[s].a == u)) continue;
          if (places[u].numbers != kNowhere) numbers.push_back(places[u].numbers);
          if (places[u].codes != kNowhere) codes.push_back(places[u].codes);
        }
      }
      if (as_number[v]) places[v].numbers = take(numbers, number_tiles);
      if (as_code[v]) places[v].codes = take(codes, code_tiles);
    }
  }
};

// Elements at a stride to neighbours, and back.
template <int Width>
void move_as(const char* from, int64_t from_stride, char* to, int64_t to_stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * to_stride, from + i * from_stride, Width);
}
void move(int width, const char* from, int64_t from_stride, char* to, int64_t to_stride, int64_t n) {
  switch (width) {
    case 1: return move_as<1>(from, from_stride, to, to_stride, n);
    case 2: return move_as<2>(from, from_stride, to, to_stride, n);
    case 4: return move_as<4>(from, from_stride, to, to_stride, n);
    default: return move_as<8>(from, from_stride, to, to_stride, n);
  }
}

BinaryOp binary_of(ChainDo what) {
  switch (what) {
    case ChainDo::Add: return BinaryOp::Add;
    case ChainDo::Sub: return BinaryOp::Sub;
    case ChainDo::Mul: return BinaryOp::Mul;
    default: return BinaryOp::Div;
  }
}

// ---- the tiles of one thread ----

struct ChainJob {
  const Chain& chain;
  const Plan plan;
  const Format format;
  const std::vector<const void*> tables;
  const CpuKernels& k;
  const ChainKernels& nearest = chain_kernels(k.name);
  const bool plain_sums = sums_round_once(format), plain_products = products_are_exact(format);
};

template <typename T>
class Tiles {
 public:
  explicit Tiles(const ChainJob& job)
      : job_(job),
        f_(job.format),
        k_(job.k),
        width_(job.format.itemsize()),
        numbers_(new (std::align_val_t(64)) T[job.plan.number_tiles * kTile]),
        codes_(new (std::align_val_t(64)) char[(job.plan.code_tiles + 1) * kTile * width_]),
        at_(job.plan.places.size()) {}

  // data and strides: of the results, then of the operands. again: the operands that are where they were in the call before, of as many elements.
  void run(char* const* data, const int64_t* strides, int64_t n, const bool* again = nullptr) {
    const Chain& chain = job_.chain;
    const size_t results = chain.results.size();
    for (int64_t first = 0; first < n; first += kTile) {
      const int64_t m = std::min(kTile, n - first);
      for (int v = 0; v < chain.operands; ++v) {
        const int64_t stride = strides[results + v];
        if ((stride == 0 && first > 0) || (again && again[v] && n <= kTile)) continue;
        load(v, data[results + v] + first * stride, stride, stride == 0 ? std::min(kTile, n) : m);
      }
      for (size_t s = 0; s < chain.steps.size(); ++s) {
        const int v = chain.operands + static_cast<int>(s);
        const Place& place = job_.plan.places[v];
        const bool direct = place.result != kNowhere && strides[place.result] == width_;
        at_[v] = direct ? data[place.result] + first * width_ : place.codes == kNowhere ? code_tile(job_.plan.code_tiles) : code_tile(place.codes);
        run_step(chain.steps[s], v, m);
        if (place.result != kNowhere && !direct) {
          move(width_, at_[v], width_, data[place.result] + first * strides[place.result], strides[place.result], m);
        }
      }
    }
  }

 private:
  struct Aligned {
    void operator()(void* p) const { ::operator delete[](p, std::align_val_t(64)); }
  };

  T* number_tile(int tile) { return numbers_.get() + tile * kTile; }
  char* code_tile(int tile) { return codes_.get() + tile * kTile * width_; }

  void load(int v, char* from, int64_t stride, int64_t m) {
    const Place& place = job_.plan.places[v];
    at_[v] = from;
    if (stride != width_ && (stride != 0 || place.codes != kNowhere)) {
      at_[v] = code_tile(place.codes == kNowhere ? job_.plan.code_tiles : place.codes);
      move(width_, from, stride, at_[v], width_, m);
    }
    if (place.numbers == kNowhere) return;
    T* const to = number_tile(place.numbers);
    k_.decode(f_, at_[v], to, stride == 0 ? 1 : m);
    if (stride == 0) std::fill_n(to + 1, m - 1, to[0]);
  }

  void run_step(const ChainStep& step, int v, int64_t m) {
    switch (step.what) {
      case ChainDo::LookUp: look_up(job_.tables[step.table], at_[step.a], at_[v], width_, m); break;
      case ChainDo::LookUpPair:
        k_.look_up_pair(static_cast<const uint8_t*>(job_.tables[step.table]), bytes(step.a), bytes(step.b), bytes(v), m);
        break;
      default: return compute(step, v, m);
    }
    if (const int to = job_.plan.places[v].numbers; to != kNowhere) k_.decode(f_, at_[v], number_tile(to), m);
  }
  uint8_t* bytes(int v) { return reinterpret_cast<uint8_t*>(at_[v]); }

  // An operand's numbers; the step's number as one tile of it.
  template <typename U>
  const U* operand(const ChainStep& step, int v, U* spare, int64_t m) {
    if (v == ChainStep::kNumber) {
      std::fill_n(spare, m, static_cast<U>(step.number));
      return spare;
    }
    const T* const from = number_tile(job_.plan.places[v].numbers);
    if constexpr (std::is_same_v<T, U>) {
      return from;
    } else {
      std::copy_n(from, m, spare);
      return spare;
    }
  }

  void compute(const ChainStep& step, int v, int64_t m) {
    const bool has_number = step.a == ChainStep::kNumber || step.b == ChainStep::kNumber;
    if constexpr (std::is_same_v<T, float>) {
      if (!has_number || number_fits_float(step.number)) return compute_as<float>(step, v, m);
      if (number_is_mixed(step.number)) {
        const float* const a = step.a == ChainStep::kNumber ? nullptr : number_tile(job_.plan.places[step.a].numbers);
        const float* const b = step.b == ChainStep::kNumber ? nullptr : number_tile(job_.plan.places[step.b].numbers);
        if (k_.binary_mixed(binary_of(step.what), a, b, step.number, result_, m)) return finish(step, a, b, result_, v, m);
      }
    }
    if (f_.arithmetic_in_double()) return compute_as<double>(step, v, m);
    const double *a = operand(step, step.a, wide_[0], m), *b = step.b == ChainStep::kNone ? nullptr : operand(step, step.b, wide_[1], m);
    if (step.what == ChainDo::Sqrt) k_.sqrt_wide(f_, a, at_[v], m, {});
    else k_.binary_wide(f_, binary_of(step.what), a, b, at_[v], m, {});
    if (const int to = job_.plan.places[v].numbers; to != kNowhere) k_.decode(f_, at_[v], number_tile(to), m);
  }

  template <typename U>
  void compute_as(const ChainStep& step, int v, int64_t m) {
    U *spare[2], *out;
    if constexpr (std::is_same_v<U, float>) {
      spare[0] = spare[1] = spare_, out = result_; // one number at most
    } else {
      spare[0] = wide_[0], spare[1] = wide_[1], out = wide_[2];
    }
    const U *a = operand(step, step.a, spare[0], m), *b = step.b == ChainStep::kNone ? nullptr : operand(step, step.b, spare[1], m);
    bool plain = false;
    if constexpr (std::is_same_v<U, float>) {
      const bool is_sum = step.what == ChainDo::Add || step.what == ChainDo::Sub;
      const bool numbers = step.a >= 0 && step.b >= 0; // a number may have more digits than values
      plain = numbers && (is_sum ? job_.plain_sums : step.what == ChainDo::Mul && job_.plain_products);
      if (plain) job_.nearest.binary_nearest(binary_of(step.what), a, b, out, m);
    }
    if (step.what == ChainDo::Sqrt) k_.sqrt(a, out, m);
    else if (!plain) k_.binary(binary_of(step.what), a, b, out, m);
    finish(step, a, b, out, v, m);
  }

  // Results to the format, as numbers, as codes or as both.
  template <typename U>
  void finish(const ChainStep& step, const U* a, const U* b, U* results, int v, int64_t m) {
    if (step.what == ChainDo::Add || step.what == ChainDo::Sub) {
      const auto positive = [&](const U* x, int64_t i) { return !std::signbit(x ? x[i] : static_cast<U>(step.number)); };
      c10::formats::sign_zero_sums(f_.rounding, results, m,
                                   [&](int64_t i) { return positive(a, i) && positive(b, i) == (step.what == ChainDo::Add); });
    }
    c10::formats::drop_nan_signs(f_, results, m);
    const Place& place = job_.plan.places[v];
    const bool stored = place.codes != kNowhere;
    bool rounded = false;
    if constexpr (std::is_same_v<T, U>) {
      // A posit is rounded in fewer instructions than decoded.
      if (place.numbers != kNowhere && (!stored || f_.is_posit())) rounded = k_.round(f_, results, number_tile(place.numbers), m);
    }
    if (rounded && !stored) return;
    k_.encode(f_, results, at_[v], m, {});
    if (place.numbers != kNowhere && !rounded) k_.decode(f_, at_[v], number_tile(place.numbers), m);
  }

  const ChainJob& job_;
  const Format& f_;
  const CpuKernels& k_;
  const int width_;
  std::unique_ptr<T[], Aligned> numbers_;
  std::unique_ptr<char[], Aligned> codes_; // and a spare tile at the end
  std::vector<char*> at_;                  // each value's codes
  alignas(64) float result_[kTile], spare_[kTile];
  alignas(64) double wide_[3][kTile];
};

template <typename T>
void run_tiles(const ChainJob& job, at::ArrayRef<at::Tensor> results, at::ArrayRef<at::Tensor> operands) {
  const at::Tensor& like = operands[0];
  const int64_t width = like.itemsize();
  const bool flat = std::all_of(operands.begin(), operands.end(),
                                [&](const at::Tensor& t) { return t.numel() == 1 || (t.sizes() == like.sizes() && t.strides() == like.strides()); });
  if (flat) {
    std::vector<char*> data;
    std::vector<int64_t> strides;
    for (const at::Tensor& t : results) {
      data.push_back(static_cast<char*>(t.mutable_data_ptr()));
      strides.push_back(width);
    }
    for (const at::Tensor& t : operands) {
      data.push_back(static_cast<char*>(const_cast<void*>(t.const_data_ptr()))); // only read
      strides.push_back(t.numel() == 1 && like.numel() != 1 ? 0 : width);
    }
    at::parallel_for(0, like.numel(), at::internal::GRAIN_SIZE, [&](int64_t begin, int64_t end) {
      std::vector<char*> from = data;
      for (size_t i = 0; i < from.size(); ++i) from[i] += begin * strides[i];
      Tiles<T>(job).run(from.data(), strides.data(), end - begin);
    });
    return;
  }
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false).resize_outputs(false);
  for (const at::Tensor& t : results) config.add_output(t);
  for (const at::Tensor& t : operands) config.add_const_input(t);
  config.build().for_each([&](char** data, const int64_t* strides, int64_t n, int64_t rows) {
    Tiles<T> tiles(job);
    const size_t count = results.size() + operands.size();
    std::vector<char*> from(data, data + count);
    const auto again = std::make_unique<bool[]>(operands.size()); // broadcast over the rows
    for (size_t i = 0; i < operands.size(); ++i) again[i] = strides[count + results.size() + i] == 0;
    for (int64_t row = 0; row < rows; ++row) {
      tiles.run(from.data(), strides, n, row == 0 ? nullptr : again.get());
      for (size_t i = 0; i < count; ++i) from[i] += strides[count + i];
    }
  });
}

} // namespace

std::vector<at::Tensor> run_chain(const Chain& chain, const FormatEntry& entry, at::ArrayRef<at::Tensor> operands, at::ArrayRef<at::Tensor> tables) {
  TORCH_CHECK_VALUE(static_cast<int>(operands.size()) == chain.operands, "chain: expected ", chain.operands, " operands, but got ", operands.size());
  const Format format = rounding_format(entry);
  TORCH_CHECK_VALUE(!c10::formats::is_stochastic(format.rounding), "chain: expected a format and a mode that do not round at random, but got ",
                    entry.name, ". Call the operators one by one.");
  for (const at::Tensor& t : operands) {
    TORCH_CHECK_VALUE(t.is_cpu() && static_cast<int>(t.itemsize()) == format.itemsize(), "chain: expected codes of ", entry.name,
                      " on the CPU, but got ", t.toString());
  }
  TORCH_CHECK_VALUE(operands[0].is_non_overlapping_and_dense(), "chain: expected a dense first operand, but got strides ", operands[0].strides());
  std::vector<const void*> entries;
  for (const ChainStep& step : chain.steps) {
    if (step.what != ChainDo::LookUp && step.what != ChainDo::LookUpPair) continue;
    const bool pairs = step.what == ChainDo::LookUpPair;
    const int64_t wanted = pairs ? 256 * 256 + kPairPadding : int64_t{1} << 8 * std::min(format.itemsize(), 2);
    TORCH_CHECK_VALUE(step.table < static_cast<int>(tables.size()) && format.itemsize() <= (pairs ? 1 : 2), "chain: expected a table of ", entry.name,
                      " for each look-up, but got ", tables.size());
    const at::Tensor& t = tables[step.table];
    TORCH_CHECK_VALUE(t.is_cpu() && t.is_contiguous() && static_cast<int>(t.itemsize()) == format.itemsize() && t.numel() == wanted,
                      "chain: expected a table of ", wanted, " codes, but got ", t.numel());
  }
  for (const at::Tensor& t : tables) entries.push_back(t.const_data_ptr());
  std::vector<at::Tensor> results;
  for (size_t i = 0; i < chain.results.size(); ++i)
    results.push_back(at::empty_strided(operands[0].sizes(), operands[0].strides(), operands[0].options()));
  if (operands[0].numel() == 0) return results;
  const ChainJob job{.chain = chain, .plan = Plan(chain), .format = format, .tables = std::move(entries), .k = kernels(c10::kCPU, "a chain")};
  if (format.fits_float() && format.arithmetic_in_float()) run_tiles<float>(job, results, operands);
  else run_tiles<double>(job, results, operands);
  return results;
}

} // namespace at::formats
