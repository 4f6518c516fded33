// How deep C++ has called Python.
#pragma once
#include <torch/csrc/python_headers.h>

#include <cstdint>

namespace torch::formats {

// CPython counts the calls of PyGILState_Ensure that are under way on a thread, and pybind11's
// gil_scoped_acquire counts there too: C++ has no other way into Python. The field is the thread's
// own and may be read without the GIL.
inline int64_t python_depth() {
  const PyThreadState* state = PyGILState_GetThisThreadState();
  return state ? state->gilstate_counter : 0;
}

} // namespace torch::formats
