// What torch.dtype and Tensor.dtype say of a format.
#pragma once
#include <torch/csrc/formats/dtype/DtypeObject.h>

namespace torch::formats {

// Teach Tensor.dtype our dtypes.
void patch_tensor_dtype();
// Teach the attributes of torch.dtype our dtypes. `reduce` is called with a dtype of ours for
// __reduce__.
void patch_dtype(PyObject* reduce);
// Replaces `name` in a static type's dictionary by a getter that falls back on the one found there.
// Needed where the type's own table lies in read-only memory (torch.dtype, torch.finfo).
getter replace_getter(PyTypeObject* type, const char* name, getter own);

// The same, where `answer` (a lambda of this call's own) says the attribute of what EntryOf finds a
// format in.
template <auto EntryOf, typename Answer>
void add_property(PyTypeObject* type, const char* name, Answer) {
  static getter stock;
  stock = replace_getter(type, name, [](PyObject* self, void* closure) -> PyObject* {
    if (const auto* entry = EntryOf(self)) return Answer{}(*entry);
    return stock(self, closure);
  });
}

} // namespace torch::formats
