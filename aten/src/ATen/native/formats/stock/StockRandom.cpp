#include <ATen/native/formats/stock/StockRandom.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <c10/formats/codec/Philox.h>

#include <utility>

namespace at::formats {
namespace {

using c10::formats::kPhiloxGroup;
using c10::formats::kPhiloxKeyStep0;
using c10::formats::kPhiloxKeyStep1;
using c10::formats::kPhiloxLanes;
using c10::formats::kPhiloxMultiplier0;
using c10::formats::kPhiloxMultiplier1;

constexpr int64_t kLow = 0xffff'ffff;

// Halves of n words: stream 0 the high ones, 1 the low ones. Numbers of 32 bits stand in int64,
// where a product's low 64 bits are right. x1 and x3 have more bits above, which a mask takes from
// the next x0 and x2.
at::Tensor halves(uint64_t seed, int64_t n, int64_t stream, c10::Device device) {
  const auto ints = at::TensorOptions().dtype(at::kLong).device(device);
  const int64_t groups = (n + kPhiloxGroup - 1) / kPhiloxGroup;
  at::Tensor x0 = at::arange(groups * kPhiloxLanes, ints), x1 = at::zeros_like(x0);
  at::Tensor x2 = at::full_like(x0, stream), x3 = x1;
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  const auto mixed = [](const at::Tensor& product, const at::Tensor& x, uint32_t key) {
    return product.__rshift__(32).bitwise_xor_(x).bitwise_xor_(int64_t{key}).bitwise_and_(kLow);
  };
  for (int round = 0; round < c10::formats::kPhiloxRounds; ++round) {
    const at::Tensor a = x0 * int64_t{kPhiloxMultiplier0}, b = x2 * int64_t{kPhiloxMultiplier1};
    x0 = mixed(b, x1, k0);
    x2 = mixed(a, x3, k1);
    x1 = b;
    x3 = a;
    k0 += kPhiloxKeyStep0;
    k1 += kPhiloxKeyStep1;
  }
  const auto lanes = [&](const at::Tensor& x) { return x.view({groups, kPhiloxLanes}); };
  return at::stack({lanes(x0), lanes(x1), lanes(x2), lanes(x3)}, 1)
      .view(-1)
      .narrow(0, 0, n)
      .bitwise_and_(kLow);
}

} // namespace

// The fraction is enough where part * 2^64 >= needed * whole, with needed = 2^64 - word. The
// product is made of halves; one whose low 64 bits are 0 needs no more than its high ones. (Of the
// word 0, needed is 2^64, and no fraction is enough.)
at::Tensor carries(const at::Tensor& words, const at::Tensor& part, const at::Tensor& whole) {
  const auto high = [](const at::Tensor& x) { return x.__rshift__(32).bitwise_and(kLow); };
  const auto low = [](const at::Tensor& x) { return x.bitwise_and(kLow); };
  const at::Tensor needed = words.neg();
  const at::Tensor a = high(needed), b = low(needed), c = high(whole), d = low(whole);
  const at::Tensor last = b * d;
  const at::Tensor first_cross = a * d + high(last);
  const at::Tensor cross = b * c + low(first_cross);
  const at::Tensor most = a * c + high(first_cross) + high(cross);
  const at::Tensor rest = low(cross) | low(last);
  return words.ne(0) & (part.gt(most) | (part.eq(most) & rest.eq(0)));
}

const at::Tensor& StockWords::high() const {
  if (!high_.defined()) high_ = halves(seed_, n_, 0, device_);
  return high_;
}

const at::Tensor& StockWords::all() const {
  if (!all_.defined()) all_ = high().__lshift__(32).bitwise_or_(halves(seed_, n_, 1, device_));
  return all_;
}

at::Tensor StockWords::coins() const {
  return high().ge(int64_t{1} << 31);
}

} // namespace at::formats
