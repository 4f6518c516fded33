#include <ATen/native/formats/operators/Tracing.h>

#include <ATen/Context.h>
#include <ATen/Float32Products.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/resource_guard.h>

namespace at::formats {

namespace tracer = torch::jit::tracer;

bool is_tracing() {
  return tracer::isTracing();
}

// convolution, the only such operator, is _convolution with the switches of now, which who counts a graph's operations looks for.
void recorded(const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::function<void()>& run) {
  TORCH_INTERNAL_ASSERT(op.schema().name() == "aten::convolution", "expected the operator that stock leaves out, but got ", op.schema().name());
  const auto state = tracer::getTracingState();
  torch::jit::Node* node = state->createNode(c10::Symbol::fromQualString("aten::_convolution"), 0);
  tracer::recordSourceLocation(node);
  const size_t arguments = op.schema().arguments().size();
  for (size_t i = 0; i < arguments; ++i) node->addInput(tracer::getValueTrace(torch::jit::peek(*stack, i, arguments)));
  const at::Context& context = at::globalContext();
  const bool allow_tf32 = !float32_keeps(kFloat32Bits, op.schema().name(), c10::DeviceType::CUDA);
  for (const bool on : {context.benchmarkCuDNN(), context.deterministicCuDNN(), context.userEnabledCuDNN(), allow_tf32}) {
    node->addInput(state->graph->insertConstant(on));
  }
  state->insertNode(node);
  {
    const torch::jit::ResourceGuard paused = tracer::pauseTracing();
    run();
  }
  tracer::addOutput(node, stack->back().toTensor());
}

} // namespace at::formats
