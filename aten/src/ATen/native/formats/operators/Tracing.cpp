#include <ATen/native/formats/operators/Tracing.h>

#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/resource_guard.h>

namespace at::formats {

namespace tracer = torch::jit::tracer;

bool is_tracing() {
  return tracer::isTracing();
}

void recorded(const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::function<void()>& run) {
  const auto state = tracer::getTracingState();
  torch::jit::Node* node = state->createNode(c10::Symbol::fromQualString(op.schema().name()), 0);
  tracer::recordSourceLocation(node);
  const size_t arguments = op.schema().arguments().size();
  for (size_t i = 0; i < arguments; ++i) node->addInput(tracer::getValueTrace(torch::jit::peek(*stack, i, arguments)));
  state->insertNode(node);
  {
    const torch::jit::ResourceGuard paused = tracer::pauseTracing();
    run();
  }
  tracer::addOutput(node, stack->back().toTensor());
}

} // namespace at::formats
