// From a format known at run time to code compiled for it, as AT_DISPATCH_* goes from a ScalarType to scalar_t.
//
// The body sees `format` (a constexpr c10::formats::Format for a built-in one, so that the compiler folds its fields) and, for the
// first two macros, `scalar_t` (c10::formats::Number). Every macro throws std::invalid_argument for a format outside its list.
//
//   AT_DISPATCH_POSIT_TYPES(fmt, "name", [&] { ... });
//   AT_DISPATCH_CUSTOM_FLOAT_TYPES(fmt, "name", [&] { ... });
//   AT_DISPATCH_ALL_FORMATS(fmt, [&](auto tag) { const c10::formats::Format format = tag; ... });   // parametric for run-time formats
#pragma once
#include <c10/core/NumberTypes.h>

#include <stdexcept>
#include <string>

#define TD_DISPATCH_CASE(name, ...)                           \
  case c10::formats::Builtin::name: {                         \
    using scalar_t [[maybe_unused]] = c10::formats::name;     \
    [[maybe_unused]] constexpr auto format = scalar_t::format; \
    return td_body();                                         \
  }

#define TD_DISPATCH(FORALL, FORMAT, NAME, ...)                                                      \
  [&] {                                                                                             \
    switch (c10::formats::builtin_of(FORMAT)) {                                                     \
      FORALL                                                                                        \
      default:                                                                                      \
        throw std::invalid_argument(std::string(NAME) + ": not implemented for this number format"); \
    }                                                                                               \
  }()

// The body is pasted into each case, so that `format` and `scalar_t` name that case's.
#define TD_POSIT_CASE(name, ...) TD_DISPATCH_CASE(name)

namespace at::formats {

template <c10::formats::Format F>
struct StaticFormat {
  TD_HOST_DEVICE constexpr operator c10::formats::Format() const { return F; }
};

template <typename Body>
inline decltype(auto) dispatch_all_formats(const c10::formats::Format& format, Body&& body) {
  using c10::formats::Builtin;
  switch (c10::formats::builtin_of(format)) {
#define TD_CASE(name, ...) \
  case Builtin::name: return body(StaticFormat<c10::formats::name::format>{});
    AT_FORALL_POSIT_TYPES(TD_CASE)
    AT_FORALL_CUSTOM_FLOAT_TYPES(TD_CASE)
#undef TD_CASE
    default: return body(format);
  }
}

} // namespace at::formats
