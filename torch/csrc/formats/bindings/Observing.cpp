#include <torch/csrc/formats/bindings/Observing.h>

#include <ATen/FormatTensor.h>
#include <ATen/Observation.h>
#include <ATen/native/formats/chop/BlockChop.h>
#include <ATen/native/formats/chop/BlockTally.h>
#include <ATen/native/formats/chop/Measure.h>
#include <pybind11/stl.h>
#include <torch/csrc/formats/bindings/Arguments.h>

namespace py = pybind11;

namespace torch::formats {
namespace {

using at::formats::observed_thread;
using at::formats::Observer;
using at::formats::Pass;
using c10::formats::Format;

const void* memory_of(py::handle object) {
  return expect_tensor(object).unsafeGetTensorImpl()->data();
}

// Returns the layer of each tensor by its address; of tensors at one address, the first one's.
Observer::Memory memory(const py::list& tensors, const std::vector<int>& layers) {
  if (tensors.size() != layers.size())
    throw py::value_error("expected a layer for each tensor, but got " +
                          std::to_string(layers.size()) + " layers for " +
                          std::to_string(tensors.size()) + " tensors");
  Observer::Memory layer_of;
  for (size_t i = 0; i < layers.size(); ++i) layer_of.emplace(memory_of(tensors[i]), layers[i]);
  return layer_of;
}

py::dict as_dict(const at::formats::Counts& c) {
  py::dict d;
  d["elements"] = c.elements;
  d["nan_in"] = c.flags.nan_in;
  d["infinite_in"] = c.flags.infinite_in;
  d["nan_made"] = c.flags.nan_made;
  d["overflow"] = c.flags.overflow;
  d["saturated"] = c.flags.saturated;
  d["underflow"] = c.flags.underflow;
  d["to_zero"] = c.flags.to_zero;
  d["subnormal"] = c.flags.subnormal;
  d["zeros"] = c.flags.zeros;
  d["inexact"] = c.flags.inexact;
  // (exponent, elements, sum of squares, sum of squared errors), the sums in units of 2^(2 *
  // exponent - 22)
  py::list bins;
  for (const auto& [field, bin] : c.bins) {
    const uint64_t count =
        field == 0 ? bin.count - std::min(bin.count, c.flags.zero_in) : bin.count;
    if (field != 2047) bins.append(py::make_tuple(field - 1023, count, bin.squares, bin.errors));
  }
  d["bins"] = bins;
  return d;
}

py::list entries(const std::shared_ptr<Observer>& observer) {
  std::vector<Observer::Entry> all;
  {
    const py::gil_scoped_release released;
    all = observer->entries();
  }
  py::list list;
  for (const Observer::Entry& e : all)
    list.append(py::make_tuple(e.layer, static_cast<int>(e.pass), e.format, as_dict(e.counts)));
  return list;
}

// Makes the thread count into an observer (or none), for a layer and a pass. Returns the settings
// before.
py::tuple enter(const std::shared_ptr<Observer>& observer, int forward_layer, int pass,
                bool updating) {
  auto& now = observed_thread();
  const py::tuple before = py::make_tuple(now.observer, now.forward_layer, now.pass, now.updating);
  now.observer = observer;
  now.forward_layer = forward_layer;
  now.pass = pass;
  now.updating = updating;
  return before;
}

// Counts of numbers as Observer has them, by the ranges of their blocks, and of blocks.
py::dict count_blocks(py::handle values, std::string_view element, const std::vector<int64_t>& size,
                      const std::vector<int64_t>& axis, std::string_view scale,
                      const std::vector<double>& rule) {
  const at::Tensor in = expect_tensor(values);
  at::formats::BlockCounts counts;
  {
    const py::gil_scoped_release released;
    counts = at::formats::count_blocks(in, element, size, axis, scale, rule);
  }
  py::dict d = as_dict(counts.numbers);
  d["overflow"] = counts.quotients.overflow;
  d["saturated"] = counts.quotients.saturated;
  d["underflow"] = counts.quotients.underflow;
  d["subnormal"] = counts.quotients.subnormal;
  d["blocks"] = counts.blocks;
  d["scales"] = counts.scales;
  d["clipped"] = counts.clipped;
  d["flushed"] = counts.flushed;
  return d;
}

} // namespace

void bind_observing(py::module_& m) {
  py::class_<Observer, std::shared_ptr<Observer>>(m, "Observer")
      .def(py::init<>())
      .def("entries", &entries)
      .def("claim",
           [](Observer& o, py::handle gradient, int layer) { o.claim(memory_of(gradient), layer); })
      .def("know_parameters",
           [](Observer& o, const py::list& tensors, const std::vector<int>& layers) {
             o.know_parameters(memory(tensors, layers));
           })
      .def("know_states",
           [](Observer& o, const py::list& tensors, const std::vector<int>& layers) {
             o.know_states(memory(tensors, layers));
           })
      // Measures a stock tensor's values against formats, without rounding the tensor: (layer,
      // pass, formats). Draws no random numbers.
      .def("measure",
           [](const std::shared_ptr<Observer>& o, py::handle t, int layer, int pass,
              const std::vector<Format>& formats) {
             const at::Tensor values = expect_tensor(t);
             const py::gil_scoped_release released;
             for (const Format& f : formats)
               at::formats::measure(
                   values, f, at::formats::Recorder(o->record(layer, static_cast<Pass>(pass), f)));
           })
      // Counts the numbers of a format tensor, which are all exact.
      .def("measure_exact",
           [](const std::shared_ptr<Observer>& o, py::handle t, int layer, int pass) {
             const at::Tensor own = expect_tensor(t);
             const py::gil_scoped_release released;
             const Format& f = at::formats::entry_of(own).format;
             at::formats::measure(
                 at::formats::decoded(own), f,
                 at::formats::Recorder(o->record(layer, static_cast<Pass>(pass), f)));
           });
  m.def("count_blocks", &count_blocks);
  m.def("observe_enter", &enter);
  m.def("observe_pass", [](int pass) { return std::exchange(observed_thread().pass, pass); });
  m.def("observed_layer",
        [] { return observed_thread().observer ? observed_thread().forward_layer : 0; });
  m.def("observe_backward_layer", [](const std::shared_ptr<Observer>& observer, int layer) {
    auto& now = observed_thread();
    if (observer) now.observer = observer; // a thread of the engine begins without one
    now.backward_layer = layer;
  });
  m.def("observers_open",
        [](int more) { return at::formats::observers_open.fetch_add(more) + more; });
  m.def("observing", &at::formats::observing);
}

} // namespace torch::formats
