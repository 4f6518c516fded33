// Calls code compiled for a format that is known at run time, as PyTorch's AT_DISPATCH_* do for a
// ScalarType.
//
//   AT_DISPATCH_POSIT_TYPES(type, "name", [&]<typename scalar_t>() { ... scalar_t::format ... });
//   AT_DISPATCH_CUSTOM_FLOAT_TYPES(type, "name", [&]<typename scalar_t>() { ... });
//
// type: a c10::formats::Builtin, or a format. scalar_t is a c10::formats::Number. Its format is a
// compile-time constant, so its fields fold away. Only built-in formats of the macro's kind are
// taken; any other raises std::invalid_argument. Ask builtin_of() first, and pass run-time formats
// as values.
#pragma once
#include <c10/formats/NumberTypes.h>

#include <stdexcept>
#include <string>
#include <utility>

#define AT_DISPATCH_POSIT_TYPES(TYPE, NAME, ...) \
  ::at::formats::dispatch_posit_types(TYPE, NAME, __VA_ARGS__)
#define AT_DISPATCH_CUSTOM_FLOAT_TYPES(TYPE, NAME, ...) \
  ::at::formats::dispatch_custom_float_types(TYPE, NAME, __VA_ARGS__)

namespace at::formats {

#define TD_TYPE_CASE(name, ...) \
  case c10::formats::Builtin::name: return body.template operator()<c10::formats::name>();

template <typename Body>
inline decltype(auto) dispatch_posit_types(c10::formats::Builtin type, const char* name,
                                           Body&& body) {
  switch (type) {
    AT_FORALL_POSIT_TYPES(TD_TYPE_CASE)
    default:
      throw std::invalid_argument(std::string(name) +
                                  ": expected a built-in posit format, but got another");
  }
}

template <typename Body>
inline decltype(auto) dispatch_custom_float_types(c10::formats::Builtin type, const char* name,
                                                  Body&& body) {
  switch (type) {
    AT_FORALL_CUSTOM_FLOAT_TYPES(TD_TYPE_CASE)
    default:
      throw std::invalid_argument(std::string(name) +
                                  ": expected a built-in float format, but got another");
  }
}
#undef TD_TYPE_CASE

template <typename Body>
inline decltype(auto) dispatch_posit_types(const c10::formats::Format& format, const char* name,
                                           Body&& body) {
  return dispatch_posit_types(c10::formats::builtin_of(format), name, std::forward<Body>(body));
}

template <typename Body>
inline decltype(auto) dispatch_custom_float_types(const c10::formats::Format& format,
                                                  const char* name, Body&& body) {
  return dispatch_custom_float_types(c10::formats::builtin_of(format), name,
                                     std::forward<Body>(body));
}

} // namespace at::formats
