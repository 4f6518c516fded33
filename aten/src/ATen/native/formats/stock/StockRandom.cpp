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

// A seed's low and high half, the keys of the first round.
std::pair<int64_t, int64_t> keys_of(uint64_t seed) {
  return {static_cast<int64_t>(seed & kLow), static_cast<int64_t>(seed >> 32)};
}
std::pair<at::Tensor, at::Tensor> keys_of(const at::Tensor& seed) {
  return {seed.bitwise_and(kLow), seed.__rshift__(32).bitwise_and(kLow)};
}

// Halves of n words: stream 0 the high ones, 1 the low ones. Numbers of 32 bits stand in int64,
// where a product's low 64 bits are right. x1, x3 and the keys have more bits above, which a mask
// takes from the next x0 and x2.
template <typename Seed>
at::Tensor compute_halves(const Seed& seed, const c10::SymInt& n, int64_t stream,
                          c10::Device device) {
  const auto ints = at::TensorOptions().dtype(at::kLong).device(device);
  const c10::SymInt groups = (n + (kPhiloxGroup - 1)) / kPhiloxGroup;
  at::Tensor x0 = at::arange(groups * kPhiloxLanes, ints), x1 = at::zeros_like(x0);
  at::Tensor x2 = at::full_like(x0, stream), x3 = x1;
  auto [k0, k1] = keys_of(seed);
  const auto mixed = [](const at::Tensor& product, const at::Tensor& x, const auto& key) {
    return product.__rshift__(32).bitwise_xor_(x).bitwise_xor_(key).bitwise_and_(kLow);
  };
  for (int round = 0; round < c10::formats::kPhiloxRounds; ++round) {
    const at::Tensor a = x0 * int64_t{kPhiloxMultiplier0}, b = x2 * int64_t{kPhiloxMultiplier1};
    x0 = mixed(b, x1, k0);
    x2 = mixed(a, x3, k1);
    x1 = b;
    x3 = a;
    k0 = k0 + int64_t{kPhiloxKeyStep0};
    k1 = k1 + int64_t{kPhiloxKeyStep1};
  }
  const auto lanes = [&](const at::Tensor& x) {
    return x.to(at::kInt).view_symint({groups, kPhiloxLanes});
  };
  return at::stack({lanes(x0), lanes(x1), lanes(x2), lanes(x3)}, 1).view(-1).narrow_symint(0, 0, n);
}

} // namespace

// There is a carry where part * 2^64 >= needed * whole, with needed = 2^64 - word. The product is
// made of halves; if its low 64 bits are 0, its high bits decide. (For the word 0 needed is 2^64,
// and there is no carry.)
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

at::Tensor StockWords::halves(int64_t stream) const {
  return in_graph() ? compute_halves(graph_seed_, n_, stream, device_)
                    : compute_halves(seed_, n_, stream, device_);
}

const at::Tensor& StockWords::high() const {
  if (!high_.defined()) high_ = halves(0);
  return high_;
}

const at::Tensor& StockWords::all() const {
  if (!all_.defined())
    all_ =
        high().to(at::kLong).__lshift__(32).bitwise_or_(halves(1).to(at::kLong).bitwise_and_(kLow));
  return all_;
}

at::Tensor StockWords::coins() const {
  return high().lt(0);
}

} // namespace at::formats
