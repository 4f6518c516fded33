#include <c10/formats/FormatRegistry.h>

#include <c10/formats/ForkSafeMutex.h>
#include <c10/formats/FormatRegistryTypes.h>
#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

namespace c10::formats {
namespace {

// Entries are never moved or removed, so readers of a number need no lock.
struct Registry {
  std::array<std::atomic<const FormatEntry*>, kMaxFormats> by_id{};
  std::vector<std::unique_ptr<FormatEntry>> entries; // with the lock only
  std::atomic<bool (*)()> make_room{nullptr};
  ForkSafeMutex mutex;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

// Containers. 8 bits: of the float8 types the one that hardly any model uses, because a dtype
// argument that names the container is ambiguous where stock code passes on a tensor's own type
// (docs/design.md, "The storage dtype").
ScalarType container_of(const Format& format) {
  switch (format.itemsize()) {
    case 1: return ScalarType::Float8_e5m2fnuz;
    case 2: return ScalarType::BFloat16;
    case 4: return ScalarType::Float;
    default: return ScalarType::Double;
  }
}

// With the lock.
FormatEntry* find_entry(Registry& r, const Format& format) {
  for (const auto& entry : r.entries) {
    if (entry->format == format) return entry.get();
  }
  return nullptr;
}

bool take_number(Registry& r, const FormatEntry& entry) {
  for (int id = 0; id < kMaxFormats; ++id) {
    if (r.by_id[id].load(std::memory_order_relaxed)) continue;
    entry.id.store(id, std::memory_order_relaxed);
    r.by_id[id].store(&entry, std::memory_order_release);
    return true;
  }
  return false;
}

[[noreturn]] void refuse(const std::string& name) {
  TORCH_CHECK(false, "expected at most ", kMaxFormats,
              " number formats in one process, but got one more (", name,
              "): PyTorch's ScalarType has room for no further dtype at a time. A dtype's place is "
              "free again when nothing refers to it (variables, lists, "
              "modules' and optimizers' attributes; tensors alone do not count): let some go. "
              "chop, observe and the sweep command take any number "
              "of formats.");
}

} // namespace

int number_of_format(const FormatEntry& entry) {
  Registry& r = registry();
  for (int tries = 0;; ++tries) { // other threads may take the number that was made free
    {
      const std::lock_guard<std::mutex> lock(r.mutex);
      if (entry.id.load(std::memory_order_relaxed) >= 0 || take_number(r, entry))
        return entry.id.load(std::memory_order_relaxed);
    }
    const auto make_room = r.make_room.load();
    if (tries == kMaxFormats || !make_room || !make_room()) refuse(entry.name);
  }
}

const FormatEntry& register_format(const Format& format, const std::string& name) {
  Registry& r = registry();
  const FormatEntry* entry = nullptr;
  {
    const std::lock_guard<std::mutex> lock(r.mutex);
    entry = find_entry(r, format);
    if (!entry) {
      r.entries.push_back(std::unique_ptr<FormatEntry>(
          new FormatEntry{-1, false, static_cast<int>(r.entries.size()), name, format,
                          container_of(format), bits_of(format), compute_of(format)}));
      entry = r.entries.back().get();
    }
  }
  number_of_format(*entry);
  return *entry;
}

const FormatEntry* find_format_entry(int64_t id) {
  return id >= 0 && id < kMaxFormats ? registry().by_id[id].load(std::memory_order_acquire)
                                     : nullptr;
}

const FormatEntry& format_entry(int id) {
  const FormatEntry* entry = find_format_entry(id);
  TORCH_CHECK(entry, "expected the id of a number format, but got ", id,
              " (formats registered: ", format_count(), ")");
  return *entry;
}

std::vector<const FormatEntry*> numbered_formats() {
  std::vector<const FormatEntry*> all;
  for (int id = 0; id < kMaxFormats; ++id) {
    if (const FormatEntry* entry = find_format_entry(id)) all.push_back(entry);
  }
  return all;
}

int format_count() {
  return static_cast<int>(numbered_formats().size());
}

void set_room_maker(bool (*make_room)()) {
  registry().make_room.store(make_room);
}

void give_number_back(const FormatEntry& entry) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  const int id = entry.id.exchange(-1, std::memory_order_relaxed);
  if (id >= 0) r.by_id[id].store(nullptr, std::memory_order_release);
}

} // namespace c10::formats
