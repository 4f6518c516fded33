#include <ATen/native/formats/stock/StockRandom.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
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

// Makes halves of n words. Numbers of 32 bits are held in int64: a product's low 64 bits are right,
// and an arithmetic shift keeps the 32 bits under the mask.
at::Tensor halves(uint64_t seed, int64_t n, int64_t stream, c10::Device device) {
  const auto ints = at::TensorOptions().dtype(at::kLong).device(device);
  const int64_t groups = (n + kPhiloxGroup - 1) / kPhiloxGroup;
  at::Tensor x0 = at::arange(groups * kPhiloxLanes, ints);
  at::Tensor x1 = at::scalar_tensor(0, ints), x2 = at::scalar_tensor(stream, ints), x3 = x1;
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < c10::formats::kPhiloxRounds; ++round) {
    const at::Tensor a = x0 * int64_t{kPhiloxMultiplier0}, b = x2 * int64_t{kPhiloxMultiplier1};
    x0 = (b.__rshift__(32).bitwise_and(kLow) ^ x1).bitwise_xor(int64_t{k0});
    x1 = b.bitwise_and(kLow);
    x2 = (a.__rshift__(32).bitwise_and(kLow) ^ x3).bitwise_xor(int64_t{k1});
    x3 = a.bitwise_and(kLow);
    k0 += kPhiloxKeyStep0;
    k1 += kPhiloxKeyStep1;
  }
  const auto lanes = [&](const at::Tensor& x) { return x.view({groups, kPhiloxLanes}); };
  return at::stack({lanes(x0), lanes(x1), lanes(x2), lanes(x3)}, 1).view(-1).narrow(0, 0, n);
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

at::Tensor random_words_by_stock(uint64_t seed, int64_t n, c10::Device device) {
  return halves(seed, n, 0, device).__lshift__(32) | halves(seed, n, 1, device);
}

} // namespace at::formats
