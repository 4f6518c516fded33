#include <ATen/native/formats/operators/CollectiveTerms.h>

#include <ATen/native/formats/BlockSums.h>
#include <ATen/native/formats/GpuKernels.h>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace at::formats {
namespace {

// A message: the mark, the number, and five texts that end with a 0.
constexpr char kMark[8] = {'T', 'D', 't', 'e', 'r', 'm', 's', '1'};

// "torch.posit16es2 on ranks 0, 2 and torch.q43 on rank 1"
std::string by_rank(const std::vector<Terms>& terms, const std::string Terms::* field) {
  std::vector<std::pair<std::string, std::vector<size_t>>> groups;
  for (size_t rank = 0; rank < terms.size(); ++rank) {
    const std::string& value = terms[rank].*field;
    auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == value; });
    if (found == groups.end()) found = groups.insert(groups.end(), {value, {}});
    found->second.push_back(rank);
  }
  std::string text;
  for (const auto& [value, ranks] : groups) {
    text += c10::str(text.empty() ? "" : " and ", value, ranks.size() == 1 ? " on rank " : " on ranks ");
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
  for (const std::string* text : {&call, &dtype, &size, &rounding, &policy}) {
    const auto length = static_cast<int64_t>(text->size()) + 1;
    TORCH_CHECK(at + length <= kTermsSize, "expected names of at most ", kTermsSize - 16, " characters together, but got ", dtype, ", ", policy);
    std::memcpy(to + at, text->c_str(), length);
    at += length;
  }
}

bool Terms::read(const void* message) {
  const char* from = static_cast<const char*>(message);
  if (std::memcmp(from, kMark, sizeof(kMark)) != 0 || from[kTermsSize - 1] != 0) return false;
  std::memcpy(&number, from + 8, sizeof(number));
  const char* text = from + 16;
  for (std::string* field : {&call, &dtype, &size, &rounding, &policy}) {
    if (text >= from + kTermsSize) return false;
    *field = text;
    text += field->size() + 1;
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
  std::string text = policy.kind == Kind::Steps ? "format" : policy.kind == Kind::Block ? "block" : c10::str("chunked(", policy.chunk, ")");
  if (policy.kind == Kind::Block) {
    const BlockSum& b = policy.block;
    text = policy.preset >= 0
        ? block_presets().at(policy.preset).name
        : c10::str("block terms=", b.terms, " extra_bits=", b.extra_bits, " align=", static_cast<int>(b.align), " interleave=", b.interleave,
                   " late=", b.late.value_or(-1), " min_exponent=", b.min_exponent ? std::to_string(*b.min_exponent) : "none",
                   " product_limit=", b.product_limit);
  }
  if (policy.product) text += " product=" + policy.product->name;
  if (policy.accumulator) text += " accumulator=" + policy.accumulator->name;
  if (policy.rounding) text += c10::str(" rounding=", c10::formats::kRoundingModes[static_cast<int>(*policy.rounding)].name);
  if (policy.fused) text += " fused";
  if (policy.kahan) text += " kahan";
  if (policy.exact_product) text += " exact product";
  if (policy.order != Accumulation::Order::Sequential) text += c10::str(" order=", static_cast<int>(policy.order), "/", policy.lanes);
  if (policy.outer) text += " outer=" + policy.outer->name;
  return text;
}

namespace {

// A message of each rank, one after the other.
using Messages = std::vector<uint8_t>;

Messages exchange_on_host(const Terms& own, c10d::ProcessGroup& group, std::chrono::milliseconds timeout) {
  const int64_t size = group.getSize();
  Messages messages(size * kTermsSize);
  at::Tensor message = at::empty({kTermsSize}, at::kByte), all = at::empty({size, kTermsSize}, at::kByte);
  own.write(message.mutable_data_ptr());
  std::vector<std::vector<at::Tensor>> outputs{all.unbind()};
  std::vector<at::Tensor> inputs{message};
  c10d::AllgatherOptions options;
  options.timeout = timeout;
  group.allgather(outputs, inputs, options)->wait();
  std::memcpy(messages.data(), all.const_data_ptr(), messages.size());
  return messages;
}

Messages exchange_by_store(const Terms& own, c10d::ProcessGroup& group, c10::DeviceType device, std::chrono::milliseconds timeout) {
  const int size = group.getSize(), rank = group.getRank();
  const c10::intrusive_ptr<c10d::Store> store = group.getStore();
  const auto key = [](int64_t number, int of) { return c10::str("torch_dtypes/terms/", number, "/", of); };
  const int64_t meeting = store->add(c10::str("torch_dtypes/meetings/", rank), 1); // the store's count: another group may have had it before
  std::vector<uint8_t> message(kTermsSize);
  own.write(message.data());
  store->set(key(meeting, rank), message);
  std::vector<std::string> keys;
  for (int other = 0; other < size; ++other) keys.push_back(key(meeting, other));
  store->wait(keys, timeout == c10d::kUnsetTimeout ? group.getBackend(device)->getBackendOptions()->timeout : timeout);
  Messages messages;
  for (const std::string& one : keys) {
    const std::vector<uint8_t> read = store->get(one);
    TORCH_CHECK(read.size() == kTermsSize, "expected ", kTermsSize, " bytes of terms in the group's store, but got ", read.size());
    messages.insert(messages.end(), read.begin(), read.end());
  }
  if (meeting > 2) store->deleteKey(key(meeting - 2, rank)); // who is here has read it: all ranks were at the meeting between
  return messages;
}

} // namespace

uint64_t agree(const Terms& own, const c10::intrusive_ptr<c10d::ProcessGroup>& group, c10::Device device, std::chrono::milliseconds timeout) {
  const int64_t size = group->getSize();
  if (size <= 1) return own.number;
  Messages messages;
  try {
    messages = on_host(device) ? exchange_on_host(own, *group, timeout) : exchange_by_store(own, *group, device.type(), timeout);
  } catch (const std::exception& error) {
    TORCH_CHECK_WITH(DistBackendError, false, own.call, " of ", own.dtype, " on rank ", group->getRank(),
                     ": a rank did not take part in comparing dtypes. It has ended, has called something else, or holds a tensor of a stock "
                     "dtype. The process group says: ",
                     error.what());
  }
  std::vector<Terms> terms(size);
  for (int64_t rank = 0; rank < size; ++rank) {
    const bool known = terms[rank].read(messages.data() + rank * kTermsSize);
    TORCH_CHECK(known, own.call, " of ", own.dtype, ": expected a call of torch_dtypes of the same release on rank ", rank,
                ", but got something else.");
  }
  struct Field {
    const char* what;
    const std::string Terms::* text;
  };
  constexpr std::array<Field, 5> kFields{{{"the same collective", &Terms::call},
                                          {"tensors of one dtype", &Terms::dtype},
                                          {"tensors of one size", &Terms::size},
                                          {"the same rounding mode", &Terms::rounding},
                                          {"the same accumulation policy", &Terms::policy}}};
  for (const Field& field : kFields) {
    for (const Terms& other : terms) {
      TORCH_CHECK(other.*field.text == own.*field.text, own.call, ": expected ", field.what, " on all ranks, but got ", by_rank(terms, field.text),
                  ". Nothing was sent.");
    }
  }
  return terms[0].number;
}

} // namespace at::formats
