// The GPU's kernels, compiled for the host, for ctypes: test/support/host_kernels.py.
#include <ATen/native/formats/cuda/Kernels.h>
#include <ATen/native/formats/cuda/PackedDecode.h>
#include <c10/formats/arithmetic/OddArithmetic.h>
#include <c10/formats/codec/AdditionEncoder.h>
#include <c10/formats/codec/AdditionRound.h>
#include <test/support/format_fields.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <initializer_list>
#include <vector>

using namespace at::formats;
using namespace at::formats::cuda;
using namespace c10::formats;

namespace {

// The device memory that a recorded launch reads: a generator's seed and offset.
int64_t recorded[2];
bool recording = false;
constexpr uint64_t kPast = 12;

Seed seed_of(uint64_t number) {
  return recording ? Seed(recorded, recorded + 1, kPast) : Seed(number);
}

Elementwise contiguous(const Format& f, std::initializer_list<const void*> inputs, void* out,
                       int64_t n, uint64_t seed) {
  Elementwise e;
  e.result = f;
  e.in = f.arithmetic_in_float() ? Arithmetic::Float : Arithmetic::Double;
  int j = 0;
  for (const void* data : inputs) e.inputs[j++] = {data, &f};
  e.out = out;
  e.n = n;
  e.seed = seed_of(seed);
  return e;
}

// Operands of dot products, decoded.
template <typename T>
struct Values {
  std::vector<T> a, b, start;
  Dots<T> dots;

  Values(const Format& f, const int64_t* x, const void* a_codes, const void* b_codes,
         const void* start_codes, const uint8_t* present, const uint8_t* present_rows) {
    const DotShape shape{x[0], x[1], x[2], x[3]};
    const auto decoded = [&](const void* codes, std::vector<T>& values, int64_t n) {
      if (!codes) return static_cast<const T*>(nullptr);
      values.resize(n);
      cuda_kernels().of<T>().decode(f, codes, values.data(), n, Stream{});
      return static_cast<const T*>(values.data());
    };
    dots = {shape,
            decoded(a_codes, a, shape.batches * shape.m * shape.k),
            decoded(b_codes, b, shape.batches * shape.k * shape.n),
            decoded(start_codes, start, shape.batches * shape.m * shape.n),
            present,
            present_rows};
  }
};

BlockPolicy block_policy(const Format& f, const Format& reg, const int64_t* options,
                         uint64_t seed) {
  BlockPolicy policy;
  BlockSum& sum = policy.adder.sum;
  sum.terms = options[0];
  sum.extra_bits = int(options[1]);
  sum.align = Rounding(options[2]);
  sum.interleave = int(options[3]);
  if (options[4] >= 0) sum.late = int(options[4]);
  if (options[5] <= 0) sum.min_exponent = int(options[5]);
  sum.product_limit = options[6] != 0;
  policy.adder.reg = reg;
  policy.adder.low_left = policy.adder.low_right =
      f.kind == Kind::Float ? f.min_exponent() : -(1 << 16);
  policy.adder.bits = reg.man_bits + sum.extra_bits;
  policy.result = f;
  policy.divisor = options[7];
  policy.seed = seed_of(seed);
  return policy;
}

} // namespace

extern "C" {

// Tells whether the rounders of tiles treat float32's sums of the format's numbers as exact.
bool sums_in_float(const int32_t* f) {
  const Format format = format_of(f);
  return format.is_posit() ? PositAdditionRounder::sums_in_float(format)
                           : FloatAdditionRounder::sums_in_float(format);
}

// Computes products and sums as a tile rounds those of short posits. An unknown result is NaN.
// Returns false for formats without this way.
bool to_the_ends(const int32_t* f, const float* x, const float* y, float* products, float* sums,
                 int64_t n) {
  const Format format = format_of(f);
  if (!PositAdditionRounderToEnds::serves(format)) return false;
  const PositAdditionRounderToEnds magic(format);
  PositAdditionRounderToEnds::Table table;
  magic.fill(table, 0, 1);
  for (int64_t i = 0; i < n; ++i) {
    products[i] = magic.rounded_product(magic.left(x[i]), magic.right(y[i]), table);
    sums[i] = magic.rounded(add_odd(x[i], y[i]), table);
  }
  return true;
}

// Encodes by magic numbers. A code that they do not determine is -1.
void codes_by_addition(const int32_t* f, const float* x, int64_t* codes, int64_t n) {
  const Format format = format_of(f);
  const AdditionEncoder magic(format);
  AdditionEncoder::Table table;
  magic.fill(table, 0, 1);
  for (int64_t i = 0; i < n; ++i) {
    const auto found =
        format.is_posit() ? magic.encode<true>(x[i], table) : magic.encode<false>(x[i], table);
    codes[i] = found.undecided ? -1 : int64_t(found.code);
  }
}

// Decodes the first n codes in both ways in which packs of 16 bits are read. Returns false for
// formats that have no such way.
bool packed_numbers(const int32_t* f, float* in_pairs, float* single, int64_t n) {
  const Format format = format_of(f);
  const auto read = [=](const auto& decode) {
    for (int64_t i = 0; i < n; ++i) {
      Pack<uint16_t, 2> pair{{uint16_t(i ^ 1), uint16_t(i ^ 1)}};
      pair.at[i & 1] = uint16_t(i);
      in_pairs[i] = decode(at_top(pair, i & 1, decode.unused));
      single[i] = decode(at_top(Pack<uint16_t, 1>{{uint16_t(i)}}, 0, decode.unused));
    }
  };
  if (PackedFloatDecoder::serves(format)) read(PackedFloatDecoder(format));
  else if (PackedPositDecoder::serves(format)) read(PackedPositDecoder(format));
  else return false;
  return true;
}

// Counts, of n sums (op 0), products (1) and fused operations (2) of float64 numbers, those whose
// rounding to odd is wrong.
int64_t other_odd_neighbours(int op, const double* a, const double* b, const double* c, int64_t n) {
  const auto rounded = [op](int direction, double a, double b, double c) {
    // Volatile, so that no compiler computes before the rounding direction is set.
    volatile double x = a, y = b, z = c, result;
    std::fesetround(direction);
    if (op == 0) result = x + y;
    else if (op == 1) result = x * y;
    else result = std::fma(x, y, z);
    std::fesetround(FE_TONEAREST);
    return double(result);
  };
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) {
    double expected = fma_odd(a[i], b[i], c[i]);
    if (op == 0) expected = add_odd(a[i], b[i]);
    if (op == 1) expected = multiply_odd(a[i], b[i]);
    const double found =
        odd_of(rounded(FE_DOWNWARD, a[i], b[i], c[i]), rounded(FE_UPWARD, a[i], b[i], c[i]));
    count += bits_as<uint64_t>(found) != bits_as<uint64_t>(expected) &&
        !(found != found && expected != expected);
  }
  return count;
}

// Makes calls recorded launches until stop(), whatever their seed. Returns the number that stands
// for the recorded seed.
uint64_t record(int64_t seed, int64_t offset) {
  recorded[0] = seed;
  recorded[1] = offset;
  recording = true;
  return random_word(seed, offset + kPast);
}
void stop() {
  recording = false;
}

int decode_float(const int32_t* f, const void* codes, float* values, int64_t n) {
  return cuda_kernels().on_float.decode(format_of(f), codes, values, n, Stream{});
}
int decode_double(const int32_t* f, const void* codes, double* values, int64_t n) {
  return cuda_kernels().on_double.decode(format_of(f), codes, values, n, Stream{});
}
// Returns the number of parts, or 0 where the format's numbers have none. type: 0 for float16.
int64_t decode_parts(const int32_t* f, const void* codes, uint16_t* first, uint16_t* second,
                     int64_t* type, int64_t apart, int64_t n) {
  const Format format = format_of(f);
  const auto parts = find_half_parts(format);
  if (!parts) return 0;
  *type = int64_t(parts->type);
  // The range of codes is given, because two tensors are made at a time.
  const auto part = [&](int64_t begin, int64_t end) {
    const void* from = static_cast<const char*>(codes) + begin * format.itemsize();
    return PartsCast{from, first + begin, parts->count == 2 ? second + begin : nullptr,
                     end - begin};
  };
  return cuda_kernels().decode_parts(format, *parts, part(0, apart), part(apart, n), Stream{}) == 0
      ? parts->count
      : -1;
}
// Casts several tensors at once. `ends` says where the `count` tensors end.
int cast_floats(const int32_t* f, bool encodes, void* from, void* to, const int64_t* ends,
                int64_t count) {
  const Format format = format_of(f);
  const int64_t width = format.itemsize(), in = encodes ? int64_t{sizeof(float)} : width,
                out = encodes ? width : int64_t{sizeof(float)};
  std::vector<Cast> casts;
  for (int64_t k = 0, begin = 0; k < count; begin = ends[k++]) {
    casts.push_back({static_cast<char*>(from) + begin * in, static_cast<char*>(to) + begin * out,
                     ends[k] - begin});
  }
  const auto cast = encodes ? cuda_kernels().encode_floats : cuda_kernels().decode_floats;
  return cast(format, casts.data(), int(count), Stream{});
}
// Runs one program over tensors that follow one another in memory, for each of the first `tensors`
// registers. `steps`: operation, to, a, b, c.
int programs(const int32_t* f, void* const* memory, int64_t tensors, const int64_t* ends,
             int64_t runs, const int64_t* steps, const double* numbers, int64_t count) {
  Programs p;
  p.format = format_of(f);
  p.count = int(count);
  p.runs = int(runs);
  p.reads = (uint32_t{1} << tensors) - 1;
  for (int64_t k = 0; k < count; ++k) {
    const int64_t* s = steps + 5 * k;
    p.steps[k] = {Do(s[0]), uint8_t(s[1]), uint8_t(s[2]), uint8_t(s[3]), uint8_t(s[4]), numbers[k]};
  }
  for (int64_t run = 0, begin = 0; run < runs; begin = ends[run++]) {
    p.end[run] = ends[run];
    for (int64_t r = 0; r < tensors; ++r)
      p.at[run][r] = static_cast<char*>(memory[r]) + begin * p.format.itemsize();
  }
  return cuda_kernels().programs(p, Stream{});
}
int encode_float(const int32_t* f, const float* values, void* codes, int64_t n, uint64_t seed) {
  return cuda_kernels().on_float.encode(format_of(f), values, codes, n, {seed_of(seed)}, Stream{});
}
int encode_double(const int32_t* f, const double* values, void* codes, int64_t n, uint64_t seed) {
  return cuda_kernels().on_double.encode(format_of(f), values, codes, n, {seed_of(seed)}, Stream{});
}
int encode_int64(const int32_t* f, const int64_t* values, void* codes, int64_t n, uint64_t seed) {
  return cuda_kernels().encode_int64(format_of(f), values, codes, n, {seed_of(seed)}, Stream{});
}
int encode_uint64(const int32_t* f, const uint64_t* values, void* codes, int64_t n, uint64_t seed) {
  return cuda_kernels().encode_uint64(format_of(f), values, codes, n, {seed_of(seed)}, Stream{});
}
int chop_float(const int32_t* f, const float* values, float* results, int64_t n, uint64_t seed) {
  return cuda_kernels().on_float.chop(format_of(f), values, results, n, {seed_of(seed)}, 0, 0,
                                      Stream{});
}
int chop_double(const int32_t* f, const double* values, double* results, int64_t n, uint64_t seed) {
  return cuda_kernels().on_double.chop(format_of(f), values, results, n, {seed_of(seed)}, 0, 0,
                                       Stream{});
}
int chop_and_flip(const int32_t* f, const float* values, float* results, int64_t n,
                  double probability, uint64_t seed) {
  return cuda_kernels().on_float.chop(format_of(f), values, results, n, {seed_of(seed)},
                                      probability, seed_of(seed), Stream{});
}
int next_codes(const int32_t* f, const void* codes, const double* from, const double* towards,
               void* out, int64_t n) {
  return cuda_kernels().next_codes(format_of(f), codes, from, towards, out, n, Stream{});
}
int binary(const int32_t* f, int op, const void* a, const void* b, void* out, int64_t n,
           uint64_t seed) {
  const Format format = format_of(f);
  return cuda_kernels().binary(contiguous(format, {a, b}, out, n, seed), BinaryOp(op), Stream{});
}
int ternary(const int32_t* f, int op, const void* a, const void* b, const void* c, double s,
            void* out, int64_t n, uint64_t seed) {
  const Format format = format_of(f);
  Elementwise e = contiguous(format, {a, b, c}, out, n, seed);
  if (s != 1 || format.significand_bits() > 12 || TernaryOp(op) == TernaryOp::Addcdiv)
    e.in = Arithmetic::Double;
  return cuda_kernels().ternary(e, TernaryOp(op), s, Stream{});
}
int unary(const int32_t* f, int op, const void* a, void* out, int64_t n, uint64_t seed) {
  const Format format = format_of(f);
  return cuda_kernels().unary(contiguous(format, {a}, out, n, seed), UnaryOp(op), Stream{});
}
// Runs an operator of any layout. The layout has sizes from the fastest dimension on, then strides
// in bytes of the output and of each tensor operand. An operand without data is `number`, which in
// `mixed` arithmetic may be no float32.
int elementwise(const int32_t* f, int64_t operands, int64_t op, const void* a, const void* b,
                const void* c, double number, int64_t mixed, const int64_t* layout, int64_t dims,
                void* out, int64_t n, uint64_t seed) {
  const Format format = format_of(f);
  Elementwise e = contiguous(format, {a, b, c}, out, n, seed);
  if (mixed) e.in = Arithmetic::Mixed;
  int rows = 1;
  for (int j = 0; j < operands; ++j) {
    if (e.inputs[j].data) ++rows;
    else e.inputs[j] = {nullptr, nullptr, number};
  }
  e.layout.dims = int(dims);
  std::copy_n(layout, dims, e.layout.sizes);
  for (int row = 0; row < rows; ++row)
    std::copy_n(layout + (row + 1) * dims, dims, e.layout.strides[row]);
  if (operands == 1) return cuda_kernels().unary(e, UnaryOp(op), Stream{});
  if (operands == 2) return cuda_kernels().binary(e, BinaryOp(op), Stream{});
  return cuda_kernels().ternary(e, TernaryOp(op), number, Stream{});
}
int encode_with_row(const int32_t* f, const void* values, const void* row, int64_t columns,
                    void* codes, int64_t n, uint64_t seed) {
  return cuda_kernels().encode_with_row(format_of(f), static_cast<const float*>(values), row,
                                        columns, codes, n, {seed_of(seed)}, Stream{});
}
int gate(const int32_t* f, const void* codes, const void* numbers, double threshold, void* out,
         int64_t n) {
  return cuda_kernels().gate(format_of(f), codes, numbers, threshold, out, n, Stream{});
}
int steps(const int32_t* f, const int32_t* product, const int32_t* sum, const int64_t* options,
          const int64_t* shape, const void* a, const void* b, const void* start,
          const uint8_t* present, const uint8_t* present_rows, void* out, uint64_t seed) {
  const Format format = format_of(f);
  const StepPolicy policy{.product = format_of(product),
                          .sum = format_of(sum),
                          .outer = format,
                          .result = format,
                          .fused = options[0] != 0,
                          .kahan = options[1] != 0,
                          .exact_product = options[7] != 0,
                          .chunk = options[2],
                          .chunks_in_float = options[3] != 0,
                          .order = SumOrder(options[5]),
                          .lanes = options[6],
                          .divisor = options[4],
                          .seed = seed_of(seed)};
  const bool sums_in_float = policy.sum.arithmetic_in_float() ||
      (sums_in_binary32(policy) && !policy.fused && !policy.kahan && policy.chunk == 0 &&
       policy.order == SumOrder::Sequential);
  const bool in_float = policy.result.arithmetic_in_float() &&
      policy.product.arithmetic_in_float() && sums_in_float &&
      !(policy.fused && policy.sum.significand_bits() > 12) &&
      !(policy.exact_product && 2 * format.significand_bits() > 24);
  if (in_float) {
    const Values<float> values(format, shape, a, b, start, present, present_rows);
    return cuda_kernels().on_float.steps(policy, values.dots, out, Stream{});
  }
  const Values<double> values(format, shape, a, b, start, present, present_rows);
  return cuda_kernels().on_double.steps(policy, values.dots, out, Stream{});
}
// options: terms, extra bits, alignment's mode, interleave, bits kept of a late register or -1,
// smallest exponent or 1, whether products have a limit, divisor.
int blocks(const int32_t* f, const int32_t* reg, const int64_t* options, const int64_t* shape,
           const void* a, const void* b, const void* start, void* out, uint64_t seed) {
  const Format format = format_of(f);
  const Values<double> values(format, shape, a, b, start, nullptr, nullptr);
  const BlockPolicy policy = block_policy(format, format_of(reg), options, seed);
  return cuda_kernels().blocks(policy, values.dots, out, Stream{});
}
int running_blocks(const int32_t* f, const int32_t* reg, const int64_t* options,
                   const int64_t* shape, const void* b, void* out, uint64_t seed) {
  const Format format = format_of(f);
  const Values<double> values(format, shape, nullptr, b, nullptr, nullptr, nullptr);
  return cuda_kernels().running_blocks(block_policy(format, format_of(reg), options, seed),
                                       values.dots.shape, values.dots.b, out, Stream{});
}
int exact(const int32_t* f, const int64_t* shape, const void* a, const void* b, const void* start,
          const uint8_t* present, const uint8_t* present_rows, int64_t divisor, void* out,
          uint64_t seed) {
  const Format format = format_of(f);
  const Values<double> values(format, shape, a, b, start, present, present_rows);
  return cuda_kernels().exact(format, format, values.dots, divisor, out, {seed_of(seed)}, Stream{});
}
// Adds up the copies of the table.
int count(const int32_t* f, const double* limits, const void* numbers, int64_t wide,
          const void* rounded, int64_t coded, int64_t n, uint64_t* sums) {
  const Format format = format_of(f);
  std::vector<CountTable> tables(kCountCopies);
  const Counting counting{.limits = {limits[0], limits[1], limits[2], limits[3]},
                          .exact = numbers,
                          .rounded = rounded,
                          .wide = wide != 0,
                          .format = coded ? &format : nullptr,
                          .n = n,
                          .layout = {},
                          .tables = tables.data()};
  const int status = cuda_kernels().count(counting, Stream{});
  constexpr size_t kWords = sizeof(CountTable) / sizeof(uint64_t);
  std::fill_n(sums, kWords, uint64_t{0});
  for (const CountTable& table : tables) {
    for (size_t i = 0; i < kWords; ++i) sums[i] += reinterpret_cast<const uint64_t*>(&table)[i];
  }
  return status;
}
}
