// From a format known at run time to code compiled for it, as PyTorch's AT_DISPATCH_* go from a ScalarType to scalar_t.
//
//   AT_DISPATCH_POSIT_TYPES(format, "name", [&]<typename scalar_t>() { ... scalar_t::format ... });
//   AT_DISPATCH_CUSTOM_FLOAT_TYPES(format, "name", [&]<typename scalar_t>() { ... });
//   AT_DISPATCH_ALL_FORMATS(format, [&](auto tag) { const Format f = tag; ... });
//
// The first two are for the built-in formats of their kind, with scalar_t a c10::formats::Number, and throw std::invalid_argument for any
// other. The third takes every format: tag turns into a compile-time constant for the built-in ones (its fields fold away) and into the
// format itself for those made at run time.
#pragma once
#include <c10/formats/NumberTypes.h>

#include <stdexcept>
#include <string>

#define AT_DISPATCH_POSIT_TYPES(FORMAT, NAME, ...) ::at::formats::dispatch_posit_types(FORMAT, NAME, __VA_ARGS__)
#define AT_DISPATCH_CUSTOM_FLOAT_TYPES(FORMAT, NAME, ...) ::at::formats::dispatch_custom_float_types(FORMAT, NAME, __VA_ARGS__)
#define AT_DISPATCH_ALL_FORMATS(FORMAT, ...) ::at::formats::dispatch_all_formats(FORMAT, __VA_ARGS__)

namespace at::formats {

template <c10::formats::Format F>
struct StaticFormat {
  TD_HOST_DEVICE constexpr operator c10::formats::Format() const { return F; }
};

#define TD_TYPE_CASE(name, ...) \
  case c10::formats::Builtin::name: return body.template operator()<c10::formats::name>();

template <typename Body>
inline decltype(auto) dispatch_posit_types(const c10::formats::Format& format, const char* name, Body&& body) {
  switch (c10::formats::builtin_of(format)) {
    AT_FORALL_POSIT_TYPES(TD_TYPE_CASE)
    default: throw std::invalid_argument(std::string(name) + ": expected a built-in posit format, but got another");
  }
}

template <typename Body>
inline decltype(auto) dispatch_custom_float_types(const c10::formats::Format& format, const char* name, Body&& body) {
  switch (c10::formats::builtin_of(format)) {
    AT_FORALL_CUSTOM_FLOAT_TYPES(TD_TYPE_CASE)
    default: throw std::invalid_argument(std::string(name) + ": expected a built-in float format, but got another");
  }
}
#undef TD_TYPE_CASE

#define TD_TAG_CASE(name, ...) \
  case c10::formats::Builtin::name: return body(StaticFormat<c10::formats::name::format>{});

template <typename Body>
inline decltype(auto) dispatch_all_formats(const c10::formats::Format& format, Body&& body) {
  switch (c10::formats::builtin_of(format)) {
    AT_FORALL_POSIT_TYPES(TD_TAG_CASE)
    AT_FORALL_CUSTOM_FLOAT_TYPES(TD_TAG_CASE)
    default: return body(format);
  }
}
#undef TD_TAG_CASE

} // namespace at::formats
