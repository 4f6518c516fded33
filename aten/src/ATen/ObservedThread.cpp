// Finds the layer and pass that the calling thread's roundings belong to.
#include <ATen/Observation.h>

#include <torch/csrc/autograd/function.h>

namespace at::formats {

std::atomic<int> observers_open{0};

ObservedThread& observed_thread() {
  thread_local ObservedThread state;
  return state;
}

// True while a node runs: its hooks and the formulas of a backward pass.
static bool in_backward() {
  return static_cast<bool>(torch::autograd::get_current_node());
}

Recorder find_recorder(const Format& named, const void* written, const void* read) {
  const ObservedThread& now = observed_thread();
  if (!now.observer) return {};
  Observer& observer = *now.observer;
  const bool backward = in_backward();
  const int layer = backward ? now.backward_layer : now.forward_layer;
  if (now.pass >= 0) return Recorder(observer.record(layer, static_cast<Pass>(now.pass), named));
  if (now.updating) {
    if (now.destination) written = now.destination;
    if (const int to = observer.layer_of_parameter(written); to >= 0)
      return Recorder(observer.record(to, Pass::Updates, named));
    for (const void* memory : {written, read, now.updated}) {
      for (const int of : {observer.layer_of_state(memory), observer.layer_of_parameter(memory)}) {
        if (of >= 0) return Recorder(observer.record(of, Pass::States, named));
      }
    }
    return Recorder(observer.record(0, Pass::States, named));
  }
  if (backward)
    return Recorder(written ? observer.pending(layer, named, written)
                            : observer.record(layer, Pass::Backward, named));
  if (const int of = observer.layer_of_parameter(read); of >= 0)
    return Recorder(observer.record(of, Pass::Weights, named));
  return Recorder(observer.record(layer, Pass::Forward, named));
}

Recorder find_step_recorder(const Format& named) {
  const ObservedThread& now = observed_thread();
  if (!now.observer) return {};
  return Recorder(now.observer->record(in_backward() ? now.backward_layer : now.forward_layer,
                                       Pass::Accumulation, named));
}

} // namespace at::formats
