// Formats, dtypes and numerics in Python: the part common to a wheel and PyTorch's own tree.
#pragma once
#include <pybind11/pybind11.h>

#include <initializer_list>
#include <utility>

namespace torch::formats {

void bind_formats(pybind11::module_& m);
void bind_numerics(pybind11::module_& m);

template <typename Enum>
void bind_enum(pybind11::module_& m, const char* name,
               std::initializer_list<std::pair<const char*, Enum>> values) {
  pybind11::enum_<Enum> e(m, name);
  for (const auto& [label, value] : values) e.value(label, value);
}

} // namespace torch::formats
