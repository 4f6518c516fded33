// Functional collectives (_c10d_functional::) whose results PyTorch makes of the container's dtype.
// All others make their results by operators; like these, they call c10d::. Also one that must be
// refused before it begins.
#include <ATen/FormatTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <utility>

namespace at::formats {
namespace {

using torch::jit::Stack;

// Calls the operator's variant that writes to a given tensor.
at::Tensor into(const char* op, Stack arguments, const at::Tensor& out) {
  arguments.emplace_back(out);
  c10::Dispatcher::singleton().findSchemaOrThrow(op, "").callBoxed(&arguments);
  return out;
}

// (input, group_size, group)
at::Tensor all_gather(const Stack& arguments) {
  const at::Tensor input = arguments[0].toTensor();
  std::vector<int64_t> sizes = input.sizes().vec();
  const int64_t ranks = arguments[1].toInt();
  if (sizes.empty()) {
    sizes.push_back(ranks);
  } else {
    sizes[0] *= ranks;
  }
  return into("_c10d_functional::all_gather_into_tensor_out", arguments,
              empty_format(sizes, entry_of(input), input.device()));
}

// (input, reduce_op, group_size, group)
at::Tensor reduce_and_scatter(const Stack& arguments) {
  const at::Tensor input = arguments[0].toTensor();
  const int64_t ranks = arguments[2].toInt();
  TORCH_CHECK(input.dim() > 0 && input.size(0) % ranks == 0,
              "_c10d_functional::reduce_scatter_tensor: expected a first dimension that ", ranks,
              " ranks divide, but got sizes ", input.sizes(), ".");
  std::vector<int64_t> sizes = input.sizes().vec();
  sizes[0] /= ranks;
  return into("_c10d_functional::reduce_scatter_tensor_out", arguments,
              empty_format(sizes, entry_of(input), input.device()));
}

template <at::Tensor (*One)(const Stack&)>
void run(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const size_t count = op.schema().arguments().size();
  Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  stack->resize(stack->size() - count);
  if (arguments[0].isTensor()) {
    stack->emplace_back(One(arguments));
    return;
  }
  std::vector<at::Tensor> results;
  for (const at::Tensor& input : arguments[0].toTensorVector()) {
    arguments[0] = input;
    results.push_back(One(arguments));
  }
  stack->emplace_back(std::move(results));
}

// Sends and receives in a group of NCCL calls. The group is open when they reach c10d::, and an
// error there would leave it open.
void run_batched(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const size_t place = *op.schema().argumentIndexWithName("tensors");
  for (const at::Tensor& t :
       torch::jit::peek(*stack, place, op.schema().arguments().size()).toTensorVector()) {
    TORCH_CHECK_NOT_IMPLEMENTED(!is_format_tensor(t) || !t.is_cuda(), op.schema().name(),
                                ": expected stock tensors on a GPU, but got one of torch.",
                                entry_of(t).name,
                                ": NCCL does not tell when one of several calls is done. Send and "
                                "receive torch_dtypes.codes(x), ",
                                "or use torch.distributed.batch_isend_irecv.");
  }
  // PyTorch's own kernel, one for all devices.
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

} // namespace

TORCH_LIBRARY_IMPL(_c10d_functional, PrivateUse2, m) {
  m.impl("all_gather_into_tensor", torch::CppFunction::makeFromBoxedFunction<&run<&all_gather>>());
  m.impl("all_gather_into_tensor_coalesced",
         torch::CppFunction::makeFromBoxedFunction<&run<&all_gather>>());
  m.impl("reduce_scatter_tensor",
         torch::CppFunction::makeFromBoxedFunction<&run<&reduce_and_scatter>>());
  m.impl("reduce_scatter_tensor_coalesced",
         torch::CppFunction::makeFromBoxedFunction<&run<&reduce_and_scatter>>());
  // Exists since PyTorch 2.13.
  m.impl("batch_p2p_ops", torch::CppFunction::makeFromBoxedFunction<&run_batched>());
}

} // namespace at::formats
