#include <c10/formats/FormatRegistry.h>

#include <c10/formats/ForkSafeMutex.h>
#include <c10/formats/FormatRegistryTypes.h>
#include <c10/util/Exception.h>
#include <c10/util/typeid.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

namespace c10::formats {
namespace {

ScalarType number_of(int id) {
  return static_cast<ScalarType>(id < kBuiltins ? static_cast<int>(ScalarType::TD_FIRST_FORMAT) + id
                                                : kFirstRunTimeNumber + id - kBuiltins);
}

// Entries are never moved or removed. Readers need no lock: they see the count after the entry.
struct Registry {
  std::array<std::unique_ptr<FormatEntry>, kMaxFormats> entries;
  std::array<RunTimeType, kMaxFormats> types{};
  std::atomic<int> count{0};
  ForkSafeMutex mutex;

  Registry() {
    for (const BuiltinFormat& row : kBuiltinFormats) add(row.format, row.name);
  }

  const FormatEntry& add(const Format& format, const std::string& name) {
    const int id = count.load(std::memory_order_relaxed);
    entries[id] = std::make_unique<FormatEntry>(
        FormatEntry{id, id, name, format, number_of(id), bits_of(format), compute_of(format)});
    types[id] = {entries[id]->name.c_str(), static_cast<uint8_t>(format.itemsize()),
                 format.is_signed};
    if (id >= kBuiltins)
      caffe2::TypeMeta::addFormat(number_of(id), types[id].itemsize, types[id].name);
    count.store(id + 1, std::memory_order_release);
    return *entries[id];
  }
};

Registry& registry() {
  static Registry instance;
  return instance;
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
  TORCH_CHECK(r.count.load() < kMaxFormats, "expected at most ", kMaxFormats - kBuiltins,
              " number formats made at run time in one process, but "
              "got one more (",
              name,
              "): PyTorch's ScalarType has room for no further dtype. A format once made stays "
              "until the process ends, "
              "so make fewer of them, or sweep over formats in several processes.");
  return r.add(format, name);
}

const FormatEntry& format_entry(int id) {
  Registry& r = registry();
  TORCH_CHECK(id >= 0 && id < r.count.load(std::memory_order_acquire),
              "expected the id of a number format, but got ", id,
              " (formats registered: ", r.count.load(), ")");
  return *r.entries[id];
}

int format_count() {
  return registry().count.load(std::memory_order_acquire);
}

const RunTimeType* run_time_type(int number) noexcept {
  Registry& r = registry();
  const int id = number - kFirstRunTimeNumber + kBuiltins;
  return id >= kBuiltins && id < r.count.load(std::memory_order_acquire) ? &r.types[id] : nullptr;
}

} // namespace c10::formats
