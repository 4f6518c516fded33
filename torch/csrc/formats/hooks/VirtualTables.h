// Exchanges a virtual function in place, for a class that no other can derive from.
#pragma once
#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <typeinfo>

namespace torch::formats {

// Returns the place of a virtual function in its class's table, which a pointer to it holds
// (Itanium C++ ABI, section 2.3; without its added one on Arm).
template <typename Member>
size_t place_in_table(Member member) {
  uintptr_t offset;
  static_assert(sizeof member >= sizeof offset);
  std::memcpy(&offset, &member, sizeof offset);
  return offset / sizeof(void*);
}

// Replaces an object's virtual function, for all objects of its class, and returns the previous
// one. The function has a member's calling convention: `this` is the first argument. type: a part
// of the class's name, as a check.
template <typename Function, typename Object>
Function replace_virtual(Object& object, const char* type, size_t place, Function own) {
  TORCH_CHECK(std::strstr(typeid(object).name(), type), "expected an object of the type ", type,
              ", but got ", typeid(object).name(), "; use a supported release");
  void** entry = *reinterpret_cast<void***>(&object) + place;
  const auto size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  void* page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(entry) & ~(size - 1));
  TORCH_CHECK(mprotect(page, size, PROT_READ | PROT_WRITE) == 0,
              "expected writable virtual tables for ", type,
              ", but got none; allow mprotect in this process");
  void* stock = *entry;
  *entry = reinterpret_cast<void*>(own);
  mprotect(page, size, PROT_READ); // as the loader leaves virtual tables
  return reinterpret_cast<Function>(stock);
}

} // namespace torch::formats
