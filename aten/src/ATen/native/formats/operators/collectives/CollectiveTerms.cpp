#include <ATen/native/formats/operators/collectives/CollectiveTerms.h>

#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/native/formats/sums/BlockSums.h>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace at::formats {
namespace {

// A message: the mark, the number, and the texts, each followed by a 0.
constexpr char kMark[8] = {'T', 'D', 't', 'e', 'r', 'm', 's', '2'};
constexpr std::array<std::string Terms::*, 7> kTexts{&Terms::fault, &Terms::call, &Terms::root,
                                                     &Terms::dtype, &Terms::size, &Terms::rounding,
                                                     &Terms::policy};

// "torch.posit16es2 on ranks 0, 2 and torch.q43 on rank 1"
std::string by_rank(const std::vector<Terms>& terms, const std::string Terms::* field) {
  std::vector<std::pair<std::string, std::vector<size_t>>> groups;
  for (size_t rank = 0; rank < terms.size(); ++rank) {
    const std::string& value = terms[rank].*field;
    auto found =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == value; });
    if (found == groups.end()) found = groups.insert(groups.end(), {value, {}});
    found->second.push_back(rank);
  }
  std::string text;
  for (const auto& [value, ranks] : groups) {
    text += c10::str(text.empty() ? "" : " and ", value,
                     ranks.size() == 1 ? " on rank " : " on ranks ");
    for (size_t i = 0; i < ranks.size(); ++i) text += c10::str(i ? ", " : "", ranks[i]);
  }
  return text;
}

} // namespace

void Terms::write(void* message) const {
  char* to = static_cast<char*>(message);
  std::memset(to, 0, kTermsSize);
  std::memcpy(to, kMark, sizeof(kMark));
  std::memcpy(to + 8, &number, sizeof(number));
  int64_t at = 16;
  for (const auto text : kTexts) {
    std::string value = this->*text;
    // The fault is cut so that the names fit.
    if (text == &Terms::fault) value.resize(std::min(value.size(), size_t{160}));
    const auto length = static_cast<int64_t>(value.size()) + 1;
    TORCH_CHECK(at + length <= kTermsSize, "expected names of at most ", kTermsSize - 16,
                " characters together, but got ", dtype, ", ", policy);
    std::memcpy(to + at, value.c_str(), length);
    at += length;
  }
}

bool Terms::read(const void* message) {
  const char* from = static_cast<const char*>(message);
  if (std::memcmp(from, kMark, sizeof(kMark)) != 0 || from[kTermsSize - 1] != 0) return false;
  std::memcpy(&number, from + 8, sizeof(number));
  const char* text = from + 16;
  for (const auto field : kTexts) {
    if (text >= from + kTermsSize) return false;
    std::string& value = this->*field;
    value = text;
    text += value.size() + 1;
  }
  return true;
}

std::string describe(const Accumulation& policy) {
  using Kind = Accumulation::Kind;
  switch (policy.kind) {
    case Kind::Machine: return "machine";
    case Kind::Float32: return "float32";
    case Kind::Float64: return "float64";
    case Kind::Exact: return "exact";
    case Kind::Steps:
    case Kind::Chunked:
    case Kind::Block: break;
  }
  std::string text = policy.kind == Kind::Steps ? "format" : "block";
  if (policy.kind == Kind::Chunked) text = c10::str("chunked(", policy.chunk, ")");
  if (policy.kind == Kind::Block) {
    const BlockSum& b = policy.block;
    text = policy.preset >= 0
        ? block_presets().at(policy.preset).name
        : c10::str("block terms=", b.terms, " extra_bits=", b.extra_bits,
                   " align=", static_cast<int>(b.align), " interleave=", b.interleave,
                   " late=", b.late.value_or(-1),
                   " min_exponent=", b.min_exponent ? std::to_string(*b.min_exponent) : "none",
                   " product_limit=", b.product_limit);
  }
  if (policy.product) text += " product=" + policy.product->name;
  if (policy.chunks_of_chip()) text += " accumulator=" + block_presets().at(policy.preset).name;
  if (policy.accumulator) text += " accumulator=" + policy.accumulator->name;
  if (policy.rounding)
    text += c10::str(" rounding=",
                     c10::formats::kRoundingModes[static_cast<int>(*policy.rounding)].name);
  if (policy.fused) text += " fused";
  if (policy.kahan) text += " kahan";
  if (policy.exact_product) text += " exact product";
  if (policy.order != Accumulation::Order::Sequential)
    text += c10::str(" order=", static_cast<int>(policy.order), "/", policy.lanes);
  if (policy.outer) text += " outer=" + policy.outer->name;
  return text;
}

namespace {

// One message per rank, one after the other, all of one size.
using Bytes = std::vector<uint8_t>;

Bytes exchange_on_host(const Bytes& own, c10d::ProcessGroup& group,
                       std::chrono::milliseconds timeout) {
  const int64_t ranks = group.getSize(), size = static_cast<int64_t>(own.size());
  Bytes messages(ranks * size);
  at::Tensor message = at::empty({size}, at::kByte), all = at::empty({ranks, size}, at::kByte);
  std::memcpy(message.mutable_data_ptr(), own.data(), size);
  std::vector<std::vector<at::Tensor>> outputs{all.unbind()};
  std::vector<at::Tensor> inputs{message};
  c10d::AllgatherOptions options;
  options.timeout = timeout;
  group.allgather(outputs, inputs, options)->wait();
  std::memcpy(messages.data(), all.const_data_ptr(), messages.size());
  return messages;
}

Bytes exchange_by_store(const Bytes& own, c10d::ProcessGroup& group, c10::DeviceType device,
                        std::chrono::milliseconds timeout) {
  const int size = group.getSize(), rank = group.getRank();
  const c10::intrusive_ptr<c10d::Store> store = group.getStore();
  const auto key = [](int64_t number, int of) {
    return c10::str("torch_dtypes/terms/", number, "/", of);
  };
  // The store counts meetings, because another group may have used it before.
  const int64_t meeting = store->add(c10::str("torch_dtypes/meetings/", rank), 1);
  store->set(key(meeting, rank), own);
  std::vector<std::string> keys;
  for (int other = 0; other < size; ++other) keys.push_back(key(meeting, other));
  store->wait(keys,
              timeout == c10d::kUnsetTimeout
                  ? group.getBackend(device)->getBackendOptions()->timeout
                  : timeout);
  Bytes messages;
  for (const std::string& one : keys) {
    const Bytes read = store->get(one);
    TORCH_CHECK(read.size() == own.size(), "expected ", own.size(),
                " bytes of terms in the group's store, but got ", read.size());
    messages.insert(messages.end(), read.begin(), read.end());
  }
  // Its readers are done: all ranks have been at the meeting in between.
  if (meeting > 2) store->deleteKey(key(meeting - 2, rank));
  return messages;
}

Bytes exchange(const Terms& own, const Bytes& message, c10d::ProcessGroup& group,
               c10::Device device, std::chrono::milliseconds timeout) {
  try {
    return on_host(device) ? exchange_on_host(message, group, timeout)
                           : exchange_by_store(message, group, device.type(), timeout);
  } catch (const std::exception& error) {
    TORCH_CHECK_WITH(DistBackendError, false, own.call, " of ", own.dtype, " on rank ",
                     group.getRank(),
                     ": a rank did not take part in comparing dtypes. It has ended, has called "
                     "something else, or holds a tensor of a stock "
                     "dtype. The process group says: ",
                     error.what());
  }
}

} // namespace

uint64_t agree(const Terms& own, const c10::intrusive_ptr<c10d::ProcessGroup>& group,
               c10::Device device, std::chrono::milliseconds timeout) {
  const int64_t size = group->getSize();
  if (size <= 1) return own.number;
  Bytes message(kTermsSize);
  own.write(message.data());
  const Bytes messages = exchange(own, message, *group, device, timeout);
  std::vector<Terms> terms(size);
  for (int64_t rank = 0; rank < size; ++rank) {
    const bool known = terms[rank].read(messages.data() + rank * kTermsSize);
    TORCH_CHECK(known, own.call, " of ", own.dtype,
                ": expected a call of torch_dtypes of the same release on rank ", rank,
                ", but got something else.");
  }
  for (int64_t rank = 0; rank < size; ++rank) {
    TORCH_CHECK(terms[rank].fault.empty(), terms[rank].call, ": expected ", terms[rank].fault,
                " on rank ", rank, ". Nothing was sent.");
  }
  struct Field {
    const char* what;
    const std::string Terms::* text;
  };
  constexpr std::array<Field, 6> kFields{{{"the same collective", &Terms::call},
                                          {"the same root", &Terms::root},
                                          {"tensors of one dtype", &Terms::dtype},
                                          {"tensors of one size", &Terms::size},
                                          {"the same rounding mode", &Terms::rounding},
                                          {"the same accumulation policy", &Terms::policy}}};
  for (const Field& field : kFields) {
    for (const Terms& other : terms) {
      TORCH_CHECK(other.*field.text == own.*field.text, own.call, ": expected ", field.what,
                  " on all ranks, but got ", by_rank(terms, field.text), ". Nothing was sent.");
    }
  }
  return terms[0].number;
}

void agree_on_parts(const Terms& own, const std::vector<int64_t>& sent,
                    const std::vector<int64_t>& awaited,
                    const c10::intrusive_ptr<c10d::ProcessGroup>& group, c10::Device device,
                    std::chrono::milliseconds timeout) {
  const int64_t size = group->getSize();
  if (size <= 1) return;
  const int64_t row = 2 * size; // the counts that a rank sends, then those it expects
  std::vector<int64_t> parts(sent);
  parts.insert(parts.end(), awaited.begin(), awaited.end());
  Bytes message(row * sizeof(int64_t));
  std::memcpy(message.data(), parts.data(), message.size());
  const Bytes messages = exchange(own, message, *group, device, timeout);
  std::vector<int64_t> all(size * row);
  std::memcpy(all.data(), messages.data(), messages.size());
  for (int64_t from = 0; from < size; ++from) {
    for (int64_t to = 0; to < size; ++to) {
      const int64_t comes = all[from * row + to], room = all[to * row + size + from];
      TORCH_CHECK(comes == room, own.call, ": expected rank ", to, " to receive all that rank ",
                  from, " sends to it, but got ", comes, " elements sent and ", room,
                  " expected. Nothing was sent.");
    }
  }
}

} // namespace at::formats
