// The tensors among a collective's arguments: single, in lists, or in lists of lists.
#pragma once
#include <ATen/core/List_inl.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace at::formats {

using Tensors = std::vector<at::Tensor>;

template <typename Body>
void each_tensor(const c10::IValue& value, Body&& body) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) body(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) each_tensor(element, body);
  }
}

template <typename Body>
c10::IValue mapped(const c10::IValue& value, Body&& body) {
  if (value.isTensor())
    return value.toTensor().defined() ? c10::IValue(body(value.toTensor())) : value;
  if (!value.isList()) return value;
  c10::List<c10::IValue> list = value.toList();
  c10::impl::GenericList copy(list.elementType());
  for (const c10::IValue& element : value.toListRef()) copy.push_back(mapped(element, body));
  return copy;
}

Tensors flat(const c10::IValue& value);

// Finds a fault in lists of one tensor per rank among a call's outputs and inputs, on the rank that
// passes them; empty if there is none.
std::string fault_of_lists(c10::ArrayRef<c10::IValue> outputs_and_inputs, int64_t ranks);

// The number of elements for each rank in an all_to_all's outputs or inputs: of a list's tensors,
// or of a tensor's split sizes. A fault is written to `fault`.
std::vector<int64_t> parts_by_rank(const c10::IValue& tensors, const c10::IValue* splits,
                                   const char* what, int64_t ranks, std::string& fault);

} // namespace at::formats
