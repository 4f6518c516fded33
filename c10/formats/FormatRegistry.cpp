#include <c10/formats/FormatRegistry.h>

#include <c10/formats/ForkSafeMutex.h>
#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

namespace c10::formats {
namespace {

// Entries are never moved or removed, so readers need no lock: they see the count after the entry.
struct Registry {
  std::array<std::unique_ptr<FormatEntry>, kMaxFormats> entries;
  std::atomic<int> count{0};
  ForkSafeMutex mutex;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

// Containers. 8 bits: of the float8 types the one that hardly any model uses, because a dtype argument that names the container is
// ambiguous where stock code passes on a tensor's own type (docs/design.md, "The container").
ScalarType container_of(const Format& format) {
  switch (format.itemsize()) {
    case 1: return ScalarType::Float8_e5m2fnuz;
    case 2: return ScalarType::BFloat16;
    case 4: return ScalarType::Float;
    default: return ScalarType::Double;
  }
}

ScalarType bits_of(const Format& format) {
  switch (format.itemsize()) {
    case 1: return ScalarType::Byte;
    case 2: return ScalarType::Short;
    case 4: return ScalarType::Int;
    default: return ScalarType::Long;
  }
}

// Float32 where it has every value. Posits have no infinity for products that leave its range, so their squares must lie within it too.
ScalarType compute_of(const Format& format) {
  const bool products = !format.is_posit() || format.max_exponent() <= 63;
  return format.fits_float() && products ? ScalarType::Float : ScalarType::Double;
}

} // namespace

const FormatEntry* find_format(const Format& format) {
  Registry& r = registry();
  for (int i = 0, n = r.count.load(std::memory_order_acquire); i < n; ++i) {
    if (r.entries[i]->format == format) return r.entries[i].get();
  }
  return nullptr;
}

const FormatEntry& register_format(const Format& format, const std::string& name) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  if (const FormatEntry* known = find_format(format)) return *known;
  const int id = r.count.load(std::memory_order_relaxed);
  TORCH_CHECK(id < kMaxFormats, "expected at most ", kMaxFormats, " number formats in one process, but got one more (", name,
              "): PyTorch's ScalarType has room for no further dtype. A format once made stays until the process ends, so make fewer of them, "
              "or sweep over formats in several processes.");
  r.entries[id] = std::make_unique<FormatEntry>(FormatEntry{id, name, format, container_of(format), bits_of(format), compute_of(format)});
  r.count.store(id + 1, std::memory_order_release);
  return *r.entries[id];
}

const FormatEntry& format_entry(int id) {
  Registry& r = registry();
  TORCH_CHECK(id >= 0 && id < r.count.load(std::memory_order_acquire), "expected the id of a number format, but got ", id,
              " (formats registered: ", r.count.load(), ")");
  return *r.entries[id];
}

int format_count() {
  return registry().count.load(std::memory_order_acquire);
}

} // namespace c10::formats
