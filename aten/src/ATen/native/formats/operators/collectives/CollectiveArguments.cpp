#include <ATen/native/formats/operators/collectives/CollectiveArguments.h>

#include <algorithm>
#include <numeric>

namespace at::formats {

Tensors flat(const c10::IValue& value) {
  Tensors all;
  each_tensor(value, [&](const at::Tensor& t) { all.push_back(t); });
  return all;
}

std::string fault_of_lists(c10::ArrayRef<c10::IValue> outputs_and_inputs, int64_t ranks) {
  for (size_t i = 0; i < 2; ++i) {
    const c10::IValue& lists = outputs_and_inputs[i];
    if (!lists.isList() || lists.toListRef().empty() || !lists.toListRef()[0].isList()) continue;
    const Tensors others = flat(outputs_and_inputs[1 - i]);
    for (const c10::IValue& list : lists.toListRef()) {
      const Tensors parts = flat(list);
      if (static_cast<int64_t>(parts.size()) != ranks)
        return c10::str("a tensor for each of ", ranks, " ranks, but got ", parts.size(),
                        " tensors");
      for (const at::Tensor& part : parts) {
        if (others.size() == 1 && part.numel() != others[0].numel())
          return c10::str("tensors of ", others[0].numel(), " elements, as the ",
                          i ? "output" : "input", " has, but got one of ", part.numel());
      }
    }
  }
  return {};
}

std::vector<int64_t> parts_by_rank(const c10::IValue& tensors, const c10::IValue* splits,
                                   const char* what, int64_t ranks, std::string& fault) {
  std::vector<int64_t> elements;
  if (tensors.isList()) {
    for (const at::Tensor& t : flat(tensors)) elements.push_back(t.numel());
    if (static_cast<int64_t>(elements.size()) != ranks)
      fault = c10::str("a tensor for each of ", ranks, " ranks as ", what, ", but got ",
                       elements.size(), " tensors");
    return elements;
  }
  const at::Tensor& t = tensors.toTensor();
  const int64_t rows = t.dim() ? t.size(0) : 0, width = rows ? t.numel() / rows : 0;
  if (splits) elements = splits->toIntVector();
  const int64_t together = std::accumulate(elements.begin(), elements.end(), int64_t{0});
  if (elements.empty()) {
    if (rows % ranks)
      fault = c10::str("an ", what, " whose first size ", ranks, " ranks divide, but got ", rows);
    elements.assign(ranks, rows / ranks);
  } else if (*std::min_element(elements.begin(), elements.end()) < 0) {
    fault = c10::str("split sizes of at least 0 for the ", what, ", but got ",
                     *std::min_element(elements.begin(), elements.end()));
  } else if (static_cast<int64_t>(elements.size()) != ranks || together != rows) {
    fault = c10::str(ranks, " split sizes that sum to ", rows, ", as the ", what,
                     " has rows, but got ", elements.size(), " that sum to ", together);
  }
  for (int64_t& n : elements) n *= width;
  return elements;
}

} // namespace at::formats
