// Bindings of numerics: casts of stock tensors, settings of a thread, format tensors as codes, and
// the table of operators.
#include <torch/csrc/formats/bindings/Bindings.h>

#include <ATen/FewRandomBits.h>
#include <ATen/FormatRounding.h>
#include <ATen/FormatTensor.h>
#include <ATen/OverrideUses.h>
#include <ATen/native/formats/chop/BlockChop.h>
#include <ATen/native/formats/chop/Chop.h>
#include <ATen/native/formats/cpu/Kernels.h>
#include <ATen/native/formats/elementwise/DrawnIntegers.h>
#include <ATen/native/formats/elementwise/Elementary.h>
#include <ATen/native/formats/elementwise/FillInfinity.h>
#include <ATen/native/formats/gpu/GpuKernels.h>
#include <ATen/native/formats/operators/facts/OperatorFacts.h>
#include <ATen/native/formats/stock/Backend.h>
#include <ATen/native/formats/stock/StockCodec.h>
#include <c10/formats/codec/FastBinary32.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/formats/bindings/Arguments.h>

namespace py = pybind11;

namespace torch::formats {
namespace {

using c10::formats::Format;
using c10::formats::FormatEntry;

// Returns the table of operators, for tests and documents: (name, steps, facts, detail) of a row.
py::list operator_facts() {
  py::list rows;
  for (const at::formats::OperatorFacts& row : at::formats::operator_rows()) {
    py::list steps, facts;
    for (const at::formats::Step step : row.route) steps.append(at::formats::word_of(step).name);
    for (size_t place = 0; place < at::formats::fact::kCount; ++place) {
      if (row.facts.has_place(place)) facts.append(at::formats::word_of_fact(place).name);
    }
    rows.append(py::make_tuple(row.name, steps, facts, row.detail));
  }
  return rows;
}

// Returns the words of that table: (group, name, sentence) of each step and fact.
py::list operator_words() {
  py::list words;
  const auto add = [&](const at::formats::OperatorWord& word) {
    words.append(py::make_tuple(word.group, word.name, word.sentence));
  };
  for (size_t step = 0; step < at::formats::kSteps; ++step)
    add(at::formats::word_of(static_cast<at::formats::Step>(step)));
  for (size_t place = 0; place < at::formats::fact::kCount; ++place)
    add(at::formats::word_of_fact(place));
  return words;
}

PyObject* format_parser = nullptr;

Format parse_format(std::string_view name, std::optional<std::string_view> rounding) {
  const py::gil_scoped_acquire acquired;
  return py::reinterpret_borrow<py::function>(format_parser)(name, rounding).cast<Format>();
}

// Returns a float32 tensor as a tensor of a format with float32's codes, or the reverse. The memory
// is the same; there is no rounding and no autograd.
py::object alias_binary32(py::handle tensor, py::handle dtype) {
  const at::Tensor t = expect_tensor(tensor);
  const FormatEntry* entry = dtype.is_none() ? nullptr : &expect_format(dtype);
  const c10::formats::Format& f = entry ? entry->format : at::formats::entry_of(t).format;
  if (!c10::formats::is_binary32(f) || (entry && t.scalar_type() != at::kFloat))
    throw py::value_error("expected a float32 tensor and float32's codes, but got " +
                          std::string(c10::toString(t.scalar_type())) + " and " +
                          (entry ? *entry : at::formats::entry_of(t)).name);
  return wrap(entry ? at::formats::format_alias(t, *entry)
                    : at::formats::stock_alias(t, at::kFloat));
}

// Stock calls run this (Tensor.__rdiv__), so it avoids pybind11's argument handling.
PyObject* is_format_tensor(PyObject*, PyObject* object) {
  return PyBool_FromLong(format_of_tensor(object) != nullptr);
}

PyMethodDef tensor_functions[] = {
    {"is_format_tensor", &is_format_tensor, METH_O, "Return whether an object is a format tensor."},
    {nullptr, nullptr, 0, nullptr}};

} // namespace

void bind_numerics(py::module_& m) {
  m.def("operator_facts", &operator_facts);
  m.def("operator_words", &operator_words);
  m.def("functions_with_limits", [] {
    py::list names;
    for (const std::string_view name : at::formats::functions_with_limits())
      names.append(py::str(name.data(), name.size()));
    return names;
  });
  m.def("first_infinity", &at::formats::first_infinity);
  m.def("forget_infinity", &at::formats::forget_infinity);
  m.def("cpu_capability", [] { return std::string(at::formats::cpu_kernels().name); });
  m.def("backend", [](py::handle tensor) {
    return at::formats::by_stock(expect_tensor(tensor).device()) ? "stock" : "kernels";
  });
  m.def("set_backend", [](std::optional<bool> stock) {
    std::optional<at::formats::Backend> backend;
    if (stock) backend = *stock ? at::formats::Backend::Stock : at::formats::Backend::Kernels;
    at::formats::force_backend(backend);
  });
  m.def("fuses_in_graphs",
        [](const Format& format) { return at::formats::fuses_in_graphs(format); });
  m.def("round_in_graph", [](py::handle values, const Format& format, py::handle seed) {
    const at::Tensor drawn = seed.is_none() ? at::Tensor() : expect_tensor(seed);
    return wrap(at::formats::round_in_graph(format, expect_tensor(values), drawn));
  });
  m.def("has_gpu_kernels", &at::formats::has_gpu_kernels);
  m.def("built_for_host", &at::formats::built_for_host);
  m.def("gpu_on_host", &at::formats::gpu_on_host);
  m.def("set_gpu_on_host", [](bool on) {
    HANDLE_TH_ERRORS
    at::formats::set_gpu_on_host(on);
    END_HANDLE_TH_ERRORS_PYBIND
  });
  m.def("chop",
        [](py::handle values, std::string_view name, std::optional<std::string_view> rounding,
           double flip_prob, py::handle generator) {
          std::optional<at::Generator> source;
          if (!generator.is_none())
            source = reinterpret_cast<THPGenerator*>(generator.ptr())->cdata;
          const at::Tensor in = expect_tensor(values);
          at::Tensor out;
          {
            const py::gil_scoped_release released;
            out = at::formats::call_chop(in, name, rounding, flip_prob, source);
          }
          return wrap(std::move(out));
        });
  m.def(
      "chop_blocks",
      [](py::handle values, std::string_view name, std::optional<std::string_view> rounding,
         const std::vector<int64_t>& size, const std::vector<int64_t>& axis, std::string_view scale,
         const std::vector<double>& rule, py::handle above, py::handle generator) {
        std::optional<at::Generator> source;
        if (!generator.is_none()) source = reinterpret_cast<THPGenerator*>(generator.ptr())->cdata;
        const at::Tensor in = expect_tensor(values);
        std::optional<at::Tensor> outer;
        if (!above.is_none()) outer = expect_tensor(above);
        at::Tensor out;
        {
          const py::gil_scoped_release released;
          out = at::formats::call_chop_blocks(in, name, rounding, size, axis, scale, rule, outer,
                                              source);
        }
        return wrap(std::move(out));
      });
  m.def("round_through",
        [](py::handle input,
           std::optional<std::pair<std::string, std::optional<std::string>>> forward,
           std::optional<std::pair<std::string, std::optional<std::string>>> backward, bool fresh) {
          const auto named = [](auto& given) {
            return given ? std::optional(at::formats::NamedFormat{std::move(given->first),
                                                                  std::move(given->second)})
                         : std::nullopt;
          };
          const at::Tensor in = expect_tensor(input);
          at::Tensor out;
          {
            const py::gil_scoped_release released;
            out = at::formats::round_through(in, named(forward), named(backward), fresh);
          }
          return wrap(std::move(out));
        });
  m.def("straight_through", [](py::handle input, py::handle values, py::handle passes) {
    return wrap(
        at::formats::straight_through(expect_tensor(input), expect_tensor(values),
                                      passes.is_none() ? at::Tensor() : expect_tensor(passes)));
  });
  m.def("set_format_parser", [](py::object parse) {
    format_parser = parse.release().ptr(); // never released
    at::formats::set_format_parser(&parse_format);
  });
  m.def("fill_number", [](double value, py::handle dtype) {
    HANDLE_TH_ERRORS // for its warning
        return at::formats::fill_number(value, expect_format(dtype));
    END_HANDLE_TH_ERRORS_PYBIND
  });
  m.def("expect_permutation", [](py::handle dtype, int64_t n) {
    at::formats::expect_permutation(expect_format(dtype), n);
  });
  m.def("drawn_integers", [](py::handle dtype, int64_t from, int64_t to, const std::string& who) {
    return at::formats::drawn_integers(expect_format(dtype), from, to, who);
  });
  m.def("rounding_override", &at::formats::rounding_override);
  m.def("set_rounding_override", &at::formats::set_rounding_override);
  m.def("override_uses", [] {
    return std::pair(at::formats::override_uses().rounding,
                     at::formats::override_uses().accumulation);
  });
  m.def("count_rounding_use", [] { ++at::formats::override_uses().rounding; });
  m.def("count_accumulation_use", [] { ++at::formats::override_uses().accumulation; });
  // As (number of bits, kind); (0, a) for none.
  using FewBits = c10::formats::FewBits;
  const auto pair_of = [](at::formats::FewRandomBits bits) {
    return std::pair(bits.count, bits.kind);
  };
  m.def("few_bits_override", [pair_of] { return pair_of(at::formats::few_bits_override()); });
  m.def("set_few_bits_override", [pair_of](std::pair<uint8_t, FewBits> bits) {
    return pair_of(at::formats::set_few_bits_override({bits.first, bits.second}));
  });
  // Sets the generator, or None, from which this thread draws rounding's words. Returns the one
  // that was set before, or None.
  m.def("set_word_source", [](py::handle generator) {
    std::optional<at::Generator> source;
    if (!generator.is_none()) source = reinterpret_cast<THPGenerator*>(generator.ptr())->cdata;
    const std::optional<at::Generator> before = at::formats::set_word_source(std::move(source));
    return before ? py::reinterpret_steal<py::object>(THPGenerator_Wrap(*before)) : py::none();
  });
  m.def("alias_binary32", &alias_binary32);
  if (PyModule_AddFunctions(m.ptr(), tensor_functions) < 0) throw py::error_already_set();
}

} // namespace torch::formats
