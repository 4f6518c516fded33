// What functions of the extension module take from Python.
#pragma once
#include <pybind11/pybind11.h>
#include <torch/csrc/formats/DtypeObject.h>

#include <string>

namespace torch::formats {

// The format of a dtype of ours; a TypeError for anything else.
inline const c10::formats::FormatEntry& expect_format(pybind11::handle dtype) {
  const c10::formats::FormatEntry* entry = format_of_dtype(dtype.ptr());
  if (!entry) throw pybind11::type_error("expected a dtype of a number format, but got " + pybind11::repr(dtype).cast<std::string>());
  return *entry;
}

} // namespace torch::formats
