// Products of matrices of which every product and every sum is rounded to nearest even, in float32: the common case of StepSum.h in as few
// instructions as it takes. A thread has some rows and columns of results, so that what it loads serves several, and rounds by magic numbers
// (c10/formats/MagicRound.h). What comes out as NaN it does not know, and computes again step by step.
#include <ATen/native/formats/cuda/StepSum.h>
#include <c10/formats/MagicRound.h>

namespace at::formats::cuda {
namespace {

using c10::formats::FloatMagic;
using c10::formats::PositMagic;

constexpr int64_t kThreadsForLargeTiles = 1 << 16; // fewer would leave a large GPU idle
constexpr int kWarp = 32; // threads side by side: of neighbouring columns, so that they load neighbouring numbers

// plain: float32 has the products exactly, these and the sums are of one format, and float32's sums round as exact ones do. No accumulator is -0 then
// (begun() sees to it), and of a 0 that is added to another number the sign does not matter.
template <typename Magic, bool plain, int rows, int columns>
struct Tiles : StepOperands<float> {
  struct Shared {
    typename Magic::Table product, sum;
  };

  Magic product, sum;
  float scale, sum_scale, unscale; // of the left factors; from a product's scale to a sum's; from that to 1
  bool exact_product;

  Tiles(const StepPolicy& policy, const Dots<float>& dots, void* out)
      : StepOperands<float>(policy, dots, out),
        product(policy.product),
        sum(policy.sum),
        scale(c10::formats::power_of_two<float>(policy.exact_product ? sum.scale : product.scale)),
        sum_scale(c10::formats::power_of_two<float>(policy.exact_product ? 0 : sum.scale - product.scale)),
        unscale(c10::formats::power_of_two<float>(-sum.scale)),
        exact_product(policy.exact_product) {}

  TD_HOST_DEVICE int64_t tiles_down() const { return (places.shape.m + rows - 1) / rows; }
  TD_HOST_DEVICE int64_t tiles_across() const { return (places.shape.n + kWarp * columns - 1) / (kWarp * columns); }
  int64_t threads() const { return places.shape.batches * tiles_down() * tiles_across() * kWarp; }

  TD_HOST_DEVICE void prepare(Shared& shared, int thread, int of) const {
    product.fill(shared.product, thread, of);
    sum.fill(shared.sum, thread, of);
  }

  TD_INLINE float next(const Shared& shared, float acc, float x, float y) const {
    if constexpr (plain) {
      return sum.unsigned_rounded_multiple(acc + product.unsigned_rounded(x * y, shared.product), shared.sum);
    } else {
      float term = c10::formats::multiply_odd(x, y);
      if (!exact_product) term = product.rounded(term, shared.product);
      if constexpr (Magic::is_scaled) term *= sum_scale;
      return sum.rounded(c10::formats::add_odd(acc, term), shared.sum);
    }
  }

  // Neighbours in a block of threads have the same columns, which come from the cache then.
  TD_HOST_DEVICE void operator()(const Shared& shared, int64_t thread) const {
    const DotShape& s = places.shape;
    const int64_t tile = thread / kWarp, band = tile / tiles_down(), batch = band / tiles_across();
    const int64_t row = tile % tiles_down() * rows, column = band % tiles_across() * (kWarp * columns) + thread % kWarp;

    // Beyond the edges the last ones are computed once more and not written.
    const float *left[rows], *right[columns];
    for (int r = 0; r < rows; ++r) left[r] = a + (batch * s.m + (row + r < s.m ? row + r : s.m - 1)) * s.k;
    for (int c = 0; c < columns; ++c) right[c] = b + batch * s.k * s.n + (column + c * kWarp < s.n ? column + c * kWarp : s.n - 1);

    float acc[rows][columns];
    TD_UNROLL
    for (int r = 0; r < rows; ++r) {
      TD_UNROLL
      for (int c = 0; c < columns; ++c) {
        const int64_t i = place(batch, row + r, column + c * kWarp);
        acc[r][c] = start && i >= 0 ? begun(start[i], shared) : 0;
      }
    }
    TD_UNROLL_BY(4)
    for (int64_t term = 0; term < s.k; ++term) {
      float x[rows], y[columns];
      for (int r = 0; r < rows; ++r) x[r] = Magic::is_scaled ? left[r][term] * scale : left[r][term];
      for (int c = 0; c < columns; ++c) y[c] = *right[c];
      for (int c = 0; c < columns; ++c) right[c] += s.n;
      for (int r = 0; r < rows; ++r) {
        for (int c = 0; c < columns; ++c) acc[r][c] = next(shared, acc[r][c], x[r], y[c]);
      }
    }
    TD_UNROLL
    for (int r = 0; r < rows; ++r) {
      TD_UNROLL
      for (int c = 0; c < columns; ++c) {
        if (const int64_t i = place(batch, row + r, column + c * kWarp); i >= 0) finish(*this, i, acc[r][c]);
      }
    }
  }

 private:
  // The number of a result, or -1 where there is none.
  TD_INLINE int64_t place(int64_t batch, int64_t row, int64_t column) const {
    const DotShape& s = places.shape;
    return row < s.m && column < s.n ? (batch * s.m + row) * s.n + column : -1;
  }
  TD_INLINE float begun(float x, const Shared& shared) const {
    if constexpr (plain) {
      const float held = sum.unsigned_rounded(x * scale, shared.sum);
      return held == 0 && !is_positive(x) ? c10::formats::bits_as<float>(c10::formats::nan_bits<float>()) : held;
    } else {
      return sum.rounded(Magic::is_scaled ? x * (scale * sum_scale) : x, shared.sum);
    }
  }
  TD_HOST_DEVICE TD_NOINLINE static void finish(const Tiles& tiles, int64_t i, float acc) {
    const bool known = acc == acc;
    tiles.out.put(i, known ? Sum<float>(tiles.steps, i, nullptr).result(acc * tiles.unscale) : tiles.sequential(i));
  }
};

template <typename Magic, bool plain>
Status launch(const StepPolicy& policy, const Dots<float>& dots, void* out, Stream stream) {
  const Tiles<Magic, plain, 8, 4> large(policy, dots, out);
  if (large.threads() >= kThreadsForLargeTiles) return for_each(large.threads(), stream, large);
  const Tiles<Magic, plain, 1, 1> small(policy, dots, out);
  return for_each(small.threads(), stream, small);
}

template <typename Magic>
Status launch(const StepPolicy& p, const Dots<float>& dots, void* out, Stream stream) {
  const bool plain = p.product_digits <= 24 && !p.exact_product && p.product == p.sum && Magic::sums_in_float(p.sum);
  return plain ? launch<Magic, true>(p, dots, out, stream) : launch<Magic, false>(p, dots, out, stream);
}

} // namespace

bool serves_tiles(const StepPolicy& p, const Dots<float>& dots) {
  if (!dots.a || dots.present || dots.present_rows || p.fused || p.kahan || p.chunk != 0 || p.order != SumOrder::Sequential) return false;
  if (p.result.rounding != Rounding::NearestEven) return false; // it may draw
  return (FloatMagic::serves(p.product) && FloatMagic::serves(p.sum)) || (PositMagic::serves(p.product) && PositMagic::serves(p.sum));
}

Status tile_sums(const StepPolicy& p, const Dots<float>& dots, void* out, Stream stream) {
  return p.sum.is_posit() ? launch<PositMagic>(p, dots, out, stream) : launch<FloatMagic>(p, dots, out, stream);
}

} // namespace at::formats::cuda
