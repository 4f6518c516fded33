// Conversions of arguments and results of the extension's functions.
#pragma once
#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/formats/dtype/DtypeObject.h>

#include <string>
#include <utility>

namespace torch::formats {

// Returns the format of a format dtype; raises TypeError for anything else.
inline const c10::formats::FormatEntry& expect_format(pybind11::handle dtype) {
  const c10::formats::FormatEntry* entry = format_of_dtype(dtype.ptr());
  if (!entry)
    throw pybind11::type_error("expected a dtype of a number format, but got " +
                               pybind11::repr(dtype).cast<std::string>());
  return *entry;
}

inline const at::Tensor& expect_tensor(pybind11::handle object) {
  if (!THPVariable_Check(object.ptr()))
    throw pybind11::type_error(
        "expected a tensor, but got " +
        pybind11::repr(pybind11::type::handle_of(object)).cast<std::string>());
  return THPVariable_Unpack(object.ptr());
}

inline pybind11::object wrap(at::Tensor t) {
  return pybind11::reinterpret_steal<pybind11::object>(THPVariable_Wrap(std::move(t)));
}

} // namespace torch::formats
