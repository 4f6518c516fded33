// Exchanging a virtual function of a class that no one can derive from in its place.
#pragma once
#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <typeinfo>

namespace torch::formats {

// Where a virtual function stands in its class's table: what a pointer to it holds (Itanium C++
// ABI, section 2.3; on Arm without the one).
template <typename Member>
size_t place_in_table(Member member) {
  uintptr_t offset;
  static_assert(sizeof member >= sizeof offset);
  std::memcpy(&offset, &member, sizeof offset);
  return offset / sizeof(void*);
}

// Puts a function in the place of an object's virtual one, for all objects of its class, and
// returns what was there. A member function is called as the compiler calls these: `this` is the
// first argument. type: a part of the class's name, to be sure of it.
template <typename Function, typename Object>
Function replace_virtual(Object& object, const char* type, size_t place, Function own) {
  TORCH_CHECK(std::strstr(typeid(object).name(), type), "expected an object of the type ", type,
              ", as in the supported releases, but got ", typeid(object).name());
  void** entry = *reinterpret_cast<void***>(&object) + place;
  const auto size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  void* page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(entry) & ~(size - 1));
  TORCH_CHECK(mprotect(page, size, PROT_READ | PROT_WRITE) == 0, "cannot exchange a function of ",
              type);
  void* stock = *entry;
  *entry = reinterpret_cast<void*>(own);
  mprotect(page, size, PROT_READ); // as the loader leaves virtual tables
  return reinterpret_cast<Function>(stock);
}

} // namespace torch::formats
