// Sums of blocks of products, as tensor cores make them (c10/formats/sums/BlockRegister.h). One
// thread computes a result.
#include <ATen/native/formats/cuda/Codec.h>
#include <ATen/native/formats/cuda/CountTable.h>
#include <ATen/native/formats/cuda/Places.h>
#include <c10/formats/arithmetic/OddArithmetic.h>
#include <c10/formats/sums/BlockRegister.h>

namespace at::formats::cuda {
namespace {

using c10::formats::BlockRegister;
using c10::formats::BlockTerm;
using c10::formats::Unpacked;
using c10::formats::Unseen;

// Counts the values that registers are rounded from and to.
struct Seen {
  StepCounts counts;
  int64_t place;
  TD_HOST_DEVICE void operator()(const Unpacked& exact, double rounded) const {
    count_step(counts, c10::formats::to_odd_double(exact), rounded, place);
  }
};
TD_HOST_DEVICE inline Unseen seen_by(const Unseen&, const StepCounts&, int64_t) {
  return {};
}
TD_HOST_DEVICE inline Seen seen_by(const Seen&, const StepCounts& counts, int64_t place) {
  return {counts, place};
}

// The terms of result i, beginning at `from`; absent or non-finite terms count as 0.
struct Block {
  const Places& places;
  const double *a, *b;
  int low_left, low_right;
  int64_t i, from;

  TD_HOST_DEVICE static BlockTerm term(double x, bool there, int low_exponent) {
    return there && c10::formats::finite(x) ? c10::formats::block_term(x, low_exponent)
                                            : BlockTerm{};
  }
  TD_HOST_DEVICE BlockTerm x(int64_t j) const {
    if (!a) return {int64_t{1} << 52, 0};
    return term(a[places.left(i, from + j)], places.has_row(i, from + j), low_left);
  }
  TD_HOST_DEVICE BlockTerm y(int64_t j) const {
    return term(b[places.right(i, from + j)], places.has(i, from + j), low_right);
  }

  // The sum of the non-finite products among the first n, by IEEE arithmetic; 0 if all are finite.
  TD_HOST_DEVICE double special(int64_t n) const {
    double sum = 0;
    for (int64_t term = from; term < from + n; ++term) {
      if (!places.has_row(i, term) || !places.has(i, term)) continue;
      sum +=
          c10::formats::special_product(a ? a[places.left(i, term)] : 1, b[places.right(i, term)]);
    }
    return sum;
  }
};

// Turns a finished register into a code. Its random word follows those of the registers.
struct BlockOutput {
  Encoder<double> encoder;
  CodesOut codes;
  int64_t divisor;
  uint64_t words;

  BlockOutput(const BlockPolicy& policy, void* out, int64_t k, int64_t all)
      : encoder(policy.result, {policy.seed}),
        codes{out, policy.result.itemsize()},
        divisor(policy.divisor),
        words(static_cast<uint64_t>((k + policy.adder.sum.terms - 1) / policy.adder.sum.terms + 1) *
              static_cast<uint64_t>(all)) {}

  TD_HOST_DEVICE void put(int64_t at, double sum) const {
    if (divisor != 1) sum = c10::formats::divide_odd(sum, static_cast<double>(divisor));
    codes.put(at, encoder.at_word(sum, words + static_cast<uint64_t>(at)));
  }
};

template <typename By>
struct BlockDots {
  Places places;
  const double *a, *b, *start;
  c10::formats::BlockAdder adder;
  Seed seed;
  StepCounts seen;
  int64_t all;
  BlockOutput out;

  TD_HOST_DEVICE void operator()(int64_t i) const {
    BlockRegister<By> reg(adder, seed.drawn(), seen_by(By(), seen, i));
    reg.begin(start ? start[i] : 0, static_cast<uint64_t>(i), static_cast<uint64_t>(all),
              /*counts=*/start != nullptr);
    const int64_t k = places.shape.k, terms = adder.sum.terms;
    for (int64_t from = 0; from < k; from += terms) {
      const Block block{places, a, b, adder.low_left, adder.low_right, i, from};
      const int64_t n = k - from < terms ? k - from : terms;
      reg.add(block, n, block.special(n));
    }
    out.put(i, reg.value());
  }
};

Status block_dots(const BlockPolicy& policy, const Dots<double>& dots, void* out, Stream stream) {
  const int64_t n = dots.shape.batches * dots.shape.m * dots.shape.n;
  const Places places{dots.shape, dots.present, dots.present_rows};
  const auto run = [&](auto by) {
    return for_each(n, stream,
                    BlockDots<decltype(by)>{places,
                                            dots.a,
                                            dots.b,
                                            dots.start,
                                            policy.adder,
                                            policy.seed,
                                            policy.seen,
                                            n,
                                            {policy, out, dots.shape.k, n}});
  };
  return policy.seen.tables ? run(Seen()) : run(Unseen());
}

// A column's running sums: one thread goes down the column.
template <typename By>
struct RunningBlocks {
  Places places;
  const double* values;
  c10::formats::BlockAdder adder;
  Seed seed;
  StepCounts seen;
  int64_t all;
  BlockOutput out;

  TD_HOST_DEVICE void operator()(int64_t column) const {
    const int64_t k = places.shape.k, n = places.shape.n, first = column / n * k * n + column % n,
                  terms = adder.sum.terms;
    BlockRegister<By> full(adder, seed.drawn(), seen_by(By(), seen, column)), part = full;
    full.begin(0, static_cast<uint64_t>(first), static_cast<uint64_t>(all), /*counts=*/false);
    for (int64_t i = 0; i < k; ++i) {
      // The sum so far: whole blocks, and the terms of the next block up to here.
      const int64_t from = i / terms * terms;
      const Block block{places, nullptr, values, adder.low_left, adder.low_right, column, from};
      part.assign(full);
      part.add(block, i + 1 - from, block.special(i + 1 - from));
      out.put(first + i * n, part.value());
      if (i + 1 - from == terms) full.assign(part);
    }
  }
};

Status running_blocks(const BlockPolicy& policy, const DotShape& shape, const double* values,
                      void* out, Stream stream) {
  const int64_t columns = shape.batches * shape.n, all = columns * shape.k;
  const auto run = [&](auto by) {
    return for_each(columns, stream,
                    RunningBlocks<decltype(by)>{{shape, nullptr, nullptr},
                                                values,
                                                policy.adder,
                                                policy.seed,
                                                policy.seen,
                                                all,
                                                {policy, out, shape.k, all}});
  };
  return policy.seen.tables ? run(Seen()) : run(Unseen());
}

} // namespace

void fill_block_sums(CudaKernels& k) {
  k.blocks = &block_dots;
  k.running_blocks = &running_blocks;
}

} // namespace at::formats::cuda
