// The depth of calls from C++ into Python.
#pragma once
#include <torch/csrc/python_headers.h>

#include <cstdint>

namespace torch::formats {

// CPython counts the calls of PyGILState_Ensure in progress on a thread, and pybind11's
// gil_scoped_acquire counts there too. C++ has no other way into Python. The field belongs to the
// thread and may be read without the GIL.
inline int64_t python_depth() {
  const PyThreadState* state = PyGILState_GetThisThreadState();
  return state ? state->gilstate_counter : 0;
}

} // namespace torch::formats
