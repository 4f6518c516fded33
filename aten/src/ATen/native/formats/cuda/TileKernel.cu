// Matrix products in which products and sums are rounded to nearest even, or sums are float32's:
// the common cases of StepSum.h in fewer instructions. A thread has several rows and columns of
// results, so that a loaded number serves several. It rounds by magic numbers
// (c10/formats/codec/AdditionRound.h). NaN means an undecided result, which is computed again step
// by step.
#include <ATen/native/formats/cuda/StepSum.h>
#include <c10/formats/codec/AdditionRound.h>

namespace at::formats::cuda {
namespace {

using c10::formats::FloatAdditionRounder;
using c10::formats::PositAdditionRounder;
using c10::formats::PositAdditionRounderToEnds;

constexpr int64_t kThreadsForLargeTiles = 1 << 15; // 128 blocks; fewer would leave a large GPU idle
// Threads that work side by side, on neighbouring columns, so that they load neighbouring numbers.
constexpr int kWarp = 32;

// ---- how a product is added to an accumulator ----
//
// columns: of a large tile; more columns suit cheaper steps. in_chunks: sums of chunks can be made
// of these sums. Wide: the type of the step by step computation. Shared: tables. left(), right():
// factors as next() takes them. begun(): an accumulator's initial value. Accumulators are numbers
// times 1 / unscale. An accumulator is never -0 if nothing else tells -0 from 0: begun() gives NaN
// for a -0, and no sum of other numbers is -0.

TD_INLINE float unknown_if_negative_zero(float held, float start) {
  return held == 0 && !is_positive(start)
      ? c10::formats::bits_as<float>(c10::formats::nan_bits<float>())
      : held;
}

// Products and sums of one format; float32's sums round to it as exact sums do.
template <typename Rounder>
struct OneFormat {
  static constexpr int columns = 4;
  static constexpr bool in_chunks = true;
  using Wide = float;
  using Right = typename Rounder::Right;
  using Shared = typename Rounder::Table;
  Rounder rounder;
  float scale, unscale;

  explicit OneFormat(const StepPolicy& policy)
      : rounder(policy.sum),
        scale(c10::formats::power_of_two<float>(rounder.scale)),
        unscale(c10::formats::power_of_two<float>(-rounder.scale)) {}

  TD_HOST_DEVICE void prepare(Shared& shared, int thread, int threads) const {
    rounder.fill(shared, thread, threads);
  }
  TD_INLINE float left(float x) const { return rounder.left(x); }
  TD_INLINE Right right(float y) const { return rounder.right(y); }
  TD_INLINE float begun(float start, const Shared& shared) const {
    return unknown_if_negative_zero(rounder.unsigned_rounded(start * scale, shared), start);
  }
  TD_INLINE float next(const Shared& shared, float acc, float x, const Right& y) const {
    return rounder.unsigned_rounded_multiple(acc + rounder.unsigned_rounded_product(x, y, shared),
                                             shared);
  }
};

// Any two formats, or products that are not rounded.
template <typename Rounder, bool exact_product>
struct TwoFormats {
  static constexpr int columns = 4;
  static constexpr bool in_chunks = true;
  using Wide = float;
  using Right = std::conditional_t<exact_product, float, typename Rounder::Right>;
  struct Shared {
    typename Rounder::Table product, sum;
  };
  Rounder product, sum;
  // from_product: a factor that turns a product's scale into a sum's
  float scale, from_product, unscale;

  explicit TwoFormats(const StepPolicy& policy)
      : product(policy.product),
        sum(policy.sum),
        scale(c10::formats::power_of_two<float>(sum.scale)),
        from_product(c10::formats::power_of_two<float>(sum.scale - product.scale)),
        unscale(c10::formats::power_of_two<float>(-sum.scale)) {}

  TD_HOST_DEVICE void prepare(Shared& shared, int thread, int threads) const {
    product.fill(shared.product, thread, threads);
    sum.fill(shared.sum, thread, threads);
  }
  TD_INLINE float left(float x) const {
    if constexpr (exact_product) return Rounder::is_scaled ? x * scale : x;
    else return product.left(x);
  }
  TD_INLINE Right right(float y) const {
    if constexpr (exact_product) return y;
    else return product.right(y);
  }
  TD_INLINE float begun(float start, const Shared& shared) const {
    return sum.rounded(Rounder::is_scaled ? start * scale : start, shared.sum);
  }
  TD_INLINE float next(const Shared& shared, float acc, float x, const Right& y) const {
    return sum.rounded(c10::formats::add_odd(acc, term(shared, x, y)), shared.sum);
  }

 private:
  TD_INLINE float term(const Shared& shared, float x, const Right& y) const {
    if constexpr (exact_product) return c10::formats::multiply_odd(x, y);
    else if constexpr (Rounder::is_scaled)
      return product.rounded_product(x, y, shared.product) * from_product;
    else return product.rounded_product(x, y, shared.product);
  }
};

// Rounded products, added up in float32.
template <typename Rounder>
struct Float32Sums {
  // A posit's table look-up takes time: two blocks help more than fewer loads.
  static constexpr int columns = Rounder::is_scaled ? 8 : 4;
  static constexpr bool in_chunks = false;
  using Wide = double;
  using Right = typename Rounder::Right;
  using Shared = typename Rounder::Table;
  static constexpr float unscale = 1;
  Rounder rounder;
  float from_product;

  explicit Float32Sums(const StepPolicy& policy)
      : rounder(policy.product),
        from_product(c10::formats::power_of_two<float>(-rounder.scale)) {}

  TD_HOST_DEVICE void prepare(Shared& shared, int thread, int threads) const {
    rounder.fill(shared, thread, threads);
  }
  TD_INLINE float left(float x) const { return rounder.left(x); }
  TD_INLINE Right right(float y) const { return rounder.right(y); }
  TD_INLINE float begun(float start, const Shared&) const {
    return unknown_if_negative_zero(start, start);
  }
  TD_INLINE float next(const Shared& shared, float acc, float x, const Right& y) const {
    const float term = rounder.unsigned_rounded_product(x, y, shared);
    return Rounder::is_scaled ? c10::formats::fused(term, from_product, acc) : acc + term;
  }
};

// Products that float32 has exactly, added up in it.
struct Float32 {
  static constexpr int columns = 8;
  static constexpr bool in_chunks = false;
  using Wide = double;
  using Right = float;
  struct Shared {}; // no tables
  static constexpr float unscale = 1;

  explicit Float32(const StepPolicy&) {}

  TD_HOST_DEVICE void prepare(Shared&, int, int) const {}
  TD_INLINE float left(float x) const { return x; }
  TD_INLINE Right right(float y) const { return y; }
  TD_INLINE float begun(float start, const Shared&) const { return start; }
  TD_INLINE float next(const Shared&, float acc, float x, Right y) const {
    return c10::formats::fused(x, y, acc);
  }
};

// ---- tiles ----

// chunked: each chunk of terms starts a new sum; the sums are added in float32.
template <typename Step, int rows, int columns, bool chunked>
struct Tiles : StepOperands<typename Step::Wide, float> {
  using Wide = typename Step::Wide;
  using Operands = StepOperands<Wide, float>;
  using Shared = typename Step::Shared;
  using Operands::places;
  // Two blocks hide each other's waiting; sums of chunks leave no registers for that.
  static constexpr int kLeastBlocks = !chunked && rows * columns <= 32 ? 2 : 1;

  Step step;

  Tiles(const StepPolicy& policy, const Dots<float>& dots, void* out)
      : Operands(policy, dots, out),
        step(policy) {}

  TD_HOST_DEVICE int64_t tiles_down() const { return (places.shape.m + rows - 1) / rows; }
  TD_HOST_DEVICE int64_t tiles_across() const {
    return (places.shape.n + kWarp * columns - 1) / (kWarp * columns);
  }
  int64_t threads() const { return places.shape.batches * tiles_down() * tiles_across() * kWarp; }

  TD_HOST_DEVICE void prepare(Shared& shared, int thread, int of) const {
    step.prepare(shared, thread, of);
  }

  // Neighbouring warps of a block have the same columns, which then come from the cache.
  TD_HOST_DEVICE void operator()(const Shared& shared, int64_t thread) const {
    const DotShape& s = places.shape;
    const int64_t tile = thread / kWarp, band = tile / tiles_down(), batch = band / tiles_across();
    // A row beyond the last one repeats it and is not written. The last tile of columns ends with
    // the matrix, so that each thread's columns are at constant distances. Columns that it shares
    // with the tile before are computed twice.
    const int64_t row = tile % tiles_down() * rows,
                  begin = band % tiles_across() * (kWarp * columns);
    const int64_t last = s.n > kWarp * columns ? s.n - kWarp * columns : 0,
                  column = (begin < last ? begin : last) + thread % kWarp;
    const float* left[rows];
    for (int r = 0; r < rows; ++r)
      left[r] = this->a + (batch * s.m + (row + r < s.m ? row + r : s.m - 1)) * s.k;
    const float* right =
        this->b + batch * s.k * s.n + (columns > 1 || column < s.n ? column : s.n - 1);

    float acc[rows][columns], chunks[rows][columns]; // chunks: the sum of the finished chunks
    TD_UNROLL
    for (int r = 0; r < rows; ++r) {
      TD_UNROLL
      for (int c = 0; c < columns; ++c) {
        const int64_t i = place(batch, row + r, column + c * kWarp);
        const bool starts = this->start && i >= 0;
        if constexpr (chunked) chunks[r][c] = starts ? this->start[i] : 0;
        acc[r][c] = !chunked && starts ? step.begun(this->start[i], shared) : 0;
      }
    }
    for (int64_t first = 0; first < s.k; first += this->steps.chunk) {
      const int64_t end =
          chunked && this->steps.chunk < s.k - first ? first + this->steps.chunk : s.k;
      TD_UNROLL_BY(4)
      for (int64_t term = first; term < end; ++term) {
        float x[rows];
        typename Step::Right y[columns];
        for (int r = 0; r < rows; ++r) x[r] = step.left(left[r][term]);
        for (int c = 0; c < columns; ++c) y[c] = step.right(right[c * kWarp]);
        right += s.n;
        for (int r = 0; r < rows; ++r) {
          for (int c = 0; c < columns; ++c) acc[r][c] = step.next(shared, acc[r][c], x[r], y[c]);
        }
      }
      if constexpr (chunked) {
        TD_UNROLL
        for (int r = 0; r < rows; ++r) {
          TD_UNROLL
          for (int c = 0; c < columns; ++c) {
            chunks[r][c] += acc[r][c] * step.unscale;
            acc[r][c] = 0;
          }
        }
      } else {
        break;
      }
    }
    TD_UNROLL
    for (int r = 0; r < rows; ++r) {
      TD_UNROLL
      for (int c = 0; c < columns; ++c) {
        if (const int64_t i = place(batch, row + r, column + c * kWarp); i >= 0)
          finish(*this, i, chunked ? chunks[r][c] : acc[r][c] * step.unscale);
      }
    }
  }

 private:
  // The index of a result, or -1 if there is none.
  TD_INLINE int64_t place(int64_t batch, int64_t row, int64_t column) const {
    const DotShape& s = places.shape;
    return row < s.m && column < s.n ? (batch * s.m + row) * s.n + column : -1;
  }
  TD_HOST_DEVICE TD_NOINLINE static void finish(const Tiles& tiles, int64_t i, float sum) {
    const bool known = sum == sum;
    tiles.out.put(i, known ? Sum<Wide>(tiles.steps, i).result(sum) : tiles.sequential(i));
  }
};

template <typename Step, int columns, bool chunked>
Status launch_sized(const StepPolicy& policy, const Dots<float>& dots, void* out, Stream stream) {
  constexpr int rows = 8;
  const Tiles<Step, rows, columns, chunked> large(policy, dots, out);
  // in rows; a small tile's results take up to twice as long
  const int64_t computed = large.tiles_down() * rows;
  const bool fits = dots.shape.n >= kWarp * columns && 5 * computed <= 9 * dots.shape.m;
  if (fits && large.threads() >= kThreadsForLargeTiles)
    return for_each(large.threads(), stream, large);
  const Tiles<Step, 1, 1, chunked> small(policy, dots, out);
  return for_each(small.threads(), stream, small);
}

template <typename Step>
Status launch(const StepPolicy& policy, const Dots<float>& dots, void* out, Stream stream) {
  if constexpr (Step::in_chunks) {
    if (policy.chunk) return launch_sized<Step, Step::columns, true>(policy, dots, out, stream);
  }
  return launch_sized<Step, Step::columns, false>(policy, dots, out, stream);
}

template <typename Rounder>
Status launch_by(const StepPolicy& p, const Dots<float>& dots, void* out, Stream stream) {
  if (sums_in_binary32(p)) return launch<Float32Sums<Rounder>>(p, dots, out, stream);
  if (p.exact_product) return launch<TwoFormats<Rounder, true>>(p, dots, out, stream);
  const bool one = p.product == p.sum && Rounder::sums_in_float(p.sum);
  return one ? launch<OneFormat<Rounder>>(p, dots, out, stream)
             : launch<TwoFormats<Rounder, false>>(p, dots, out, stream);
}

template <typename Rounder>
bool serves(const StepPolicy& p) {
  return Rounder::serves(p.product) && (sums_in_binary32(p) || Rounder::serves(p.sum));
}

} // namespace

bool serves_tiles(const StepPolicy& p, const Dots<float>& dots) {
  if (!dots.a || dots.present || dots.present_rows || p.fused || p.kahan ||
      p.order != SumOrder::Sequential)
    return false;
  if (p.chunk && (p.rounds_chunks || !p.chunks_in_float || sums_in_binary32(p))) return false;
  if (p.result.rounding != Rounding::NearestEven) return false; // other modes may draw random bits
  // Formats that PositAdditionRounder serves, PositAdditionRounderToEnds serves too.
  return (sums_in_binary32(p) && p.exact_product) || serves<FloatAdditionRounder>(p) ||
      serves<PositAdditionRounder>(p);
}

Status tile_sums(const StepPolicy& p, const Dots<float>& dots, void* out, Stream stream) {
  if (sums_in_binary32(p) && p.exact_product) return launch<Float32>(p, dots, out, stream);
  if (serves<PositAdditionRounderToEnds>(p))
    return launch_by<PositAdditionRounderToEnds>(p, dots, out, stream);
  return p.product.is_posit() ? launch_by<PositAdditionRounder>(p, dots, out, stream)
                              : launch_by<FloatAdditionRounder>(p, dots, out, stream);
}

} // namespace at::formats::cuda
