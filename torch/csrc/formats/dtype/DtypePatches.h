// Attributes of torch.dtype, and Tensor.dtype, for formats.
#pragma once
#include <torch/csrc/formats/dtype/DtypeObject.h>

namespace torch::formats {

// Makes Tensor.dtype return format dtypes.
void patch_tensor_dtype();
// Gives format dtypes the attributes of torch.dtype. `reduce` is called for their __reduce__.
void patch_dtype(PyObject* reduce);
// Replaces `name` in a static type's dictionary by a getter that may call the previous one. Needed
// where the type's own table is read-only (torch.dtype, torch.finfo).
getter replace_getter(PyTypeObject* type, const char* name, getter own);

// Replaces a getter for objects in which EntryOf finds a format. `answer`, a lambda of this call
// alone, returns the attribute.
template <auto EntryOf, typename Answer>
void add_property(PyTypeObject* type, const char* name, Answer) {
  static getter stock;
  stock = replace_getter(type, name, [](PyObject* self, void* closure) -> PyObject* {
    if (const auto* entry = EntryOf(self)) return Answer{}(*entry);
    return stock(self, closure);
  });
}

} // namespace torch::formats
