// The extension module torch_dtypes._C: makes dtypes, installs the hooks, and opens the number layer to the tests.
#include <torch/csrc/formats/AccumulationBindings.h>
#include <torch/csrc/formats/Arguments.h>
#include <torch/csrc/formats/DtypeObject.h>
#include <torch/csrc/formats/FormatSearch.h>
#include <torch/csrc/formats/Observing.h>
#include <torch/csrc/formats/OperatorCall.h>
#include <torch/csrc/formats/Patches.h>
#include <torch/csrc/formats/ScriptCall.h>
#include <torch/csrc/formats/TensorBody.h>
#include <torch/csrc/formats/Trampolines.h>
#include <torch/csrc/formats/Wrappers.h>

#include <ATen/FormatRounding.h>
#include <ATen/FormatTensor.h>
#include <ATen/MixedOperands.h>
#include <ATen/autocast_mode.h>
#include <ATen/native/formats/BlockChop.h>
#include <ATen/native/formats/Chop.h>
#include <ATen/native/formats/FillInfinity.h>
#include <ATen/native/formats/GpuKernels.h>
#include <ATen/native/formats/cpu/Kernels.h>
#include <ATen/native/formats/operators/Boxed.h>
#include <ATen/native/formats/operators/CastAutograd.h>
#include <ATen/native/formats/operators/DotOperators.h>
#include <ATen/native/formats/operators/OperatorFacts.h>
#include <ATen/native/formats/operators/RecordedCast.h>
#include <ATen/native/formats/operators/StockFormula.h>
#include <ATen/native/formats/overlay/Autocast.h>
#include <ATen/native/formats/overlay/CodesOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/formats/BuiltinFormats.h>
#include <c10/formats/ExactCodec.h>
#include <c10/formats/FastBinary32.h>
#include <c10/formats/ValueTable.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/autograd/python_variable.h>

namespace py = pybind11;

namespace torch::formats {
namespace {

using c10::formats::Format;
using c10::formats::FormatEntry;

const at::Tensor& expect_tensor(py::handle object) {
  if (!THPVariable_Check(object.ptr()))
    throw py::type_error("expected a tensor, but got " + py::repr(py::type::handle_of(object)).cast<std::string>());
  return THPVariable_Unpack(object.ptr());
}

py::object wrap(at::Tensor t) {
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(std::move(t)));
}

py::object define(const Format& format, const std::string& name) {
  if (!format.fits_double()) throw py::value_error("expected a format whose values all are float64 numbers, but got " + name);
  try {
    return py::reinterpret_borrow<py::object>(dtype_object(c10::formats::register_format(format, name)));
  } catch (const c10::Error& e) {
    throw py::value_error(e.what_without_backtrace());
  }
}

PyObject* room_maker = nullptr;

// Calls Python's, and says whether it made room.
bool make_room() {
  const py::gil_scoped_acquire acquired;
  return py::reinterpret_borrow<py::function>(room_maker)().cast<bool>();
}

// The names of the formats made at run time that have a number and need not keep it.
std::vector<std::string> formats_at_run_time() {
  std::vector<std::string> names;
  for (const FormatEntry* entry : c10::formats::numbered_formats()) {
    Format plain = entry->format;
    if (c10::formats::builtin_of(plain) == c10::formats::Builtin::kNone && !entry->keeps) names.push_back(entry->name);
  }
  return names;
}

// None where it has given its number back, else the dtype that somebody has, or that keeps its number.
py::object retire(const std::string& name) {
  for (const FormatEntry* entry : c10::formats::numbered_formats()) {
    if (entry->name == name && !retire_dtype(*entry)) return py::reinterpret_borrow<py::object>(dtype_object(*entry));
  }
  return py::none();
}

// The table of operators, for tests and documents: (name, way, facts, detail) of each row.
py::list operator_facts() {
  py::list rows;
  for (const at::formats::OperatorFacts& row : at::formats::operator_rows()) {
    py::list facts;
    for (size_t place = 0; place < at::formats::fact::kCount; ++place) {
      if (row.facts >> place & 1) facts.append(at::formats::name_of_fact(place));
    }
    rows.append(py::make_tuple(row.name, at::formats::name_of(row.way), facts, row.detail));
  }
  return rows;
}

py::list builtin_dtypes() {
  py::list all;
  for (const auto& b : c10::formats::kBuiltinFormats) all.append(define(b.format, b.name));
  return all;
}

// A table's format from what tables.py makes of its arguments. Values and boundaries: float64 tensors. An end: (saturates, code, infinity's
// code, next value, limit).
Format table_of_definition(const std::string& name, int bits, py::handle values, uint32_t nan_code, const std::string& ties, py::handle boundaries,
                           const py::tuple& high, const py::tuple& low, bool minpos, bool negative_is_nan) {
  using namespace c10::formats;
  const auto numbers = [](py::handle tensor) {
    const at::Tensor t = expect_tensor(tensor).to(at::kDouble).contiguous();
    const double* first = t.const_data_ptr<double>();
    return std::vector<double>(first, first + t.numel());
  };
  const auto end = [](const py::tuple& e) {
    return TableEnd{e[0].cast<bool>(), e[1].cast<uint32_t>(), e[2].cast<uint32_t>(), e[3].cast<double>(), e[4].cast<double>()};
  };
  TableDefinition d;
  d.name = name;
  d.bits = bits;
  d.values = numbers(values);
  d.nan_code = nan_code;
  constexpr std::pair<const char*, Ties> kTies[] = {
      {"even", Ties::Even}, {"zero", Ties::Zero}, {"away", Ties::Away}, {"up", Ties::Up}, {"down", Ties::Down}};
  for (const auto& [text, value] : kTies) {
    if (ties == text) d.ties = value;
  }
  if (!boundaries.is_none()) d.boundaries = numbers(boundaries);
  d.high = end(high);
  d.low = end(low);
  d.minpos = minpos;
  d.negative_is_nan = negative_is_nan;
  try {
    return make_table_format(d);
  } catch (const std::invalid_argument& e) {
    throw py::value_error(e.what());
  }
}

template <typename Enum>
void bind_enum(py::module_& m, const char* name, std::initializer_list<std::pair<const char*, Enum>> values) {
  py::enum_<Enum> e(m, name);
  for (const auto& [label, value] : values) e.value(label, value);
}

// A float64 or int64 tensor to codes as int64, by the generic codec; random: words for the stochastic modes, int64 of the same size.
py::object encode_exact(const Format& f, py::handle values, py::handle random) {
  const at::Tensor in = expect_tensor(values).contiguous();
  at::Tensor words = random.is_none() ? at::zeros(in.sizes(), at::kLong) : expect_tensor(random).contiguous();
  if (words.numel() != in.numel() || words.scalar_type() != at::kLong) throw py::value_error("expected one int64 word for each value");
  at::Tensor out = at::empty(in.sizes(), at::kLong);
  int64_t* codes = out.mutable_data_ptr<int64_t>();
  const int64_t* word = words.const_data_ptr<int64_t>();
  const bool integers = in.scalar_type() == at::kLong;
  const void* data = in.const_data_ptr();
  for (int64_t i = 0; i < in.numel(); ++i) {
    const auto u = integers ? c10::formats::unpack(static_cast<const int64_t*>(data)[i]) : c10::formats::unpack(static_cast<const double*>(data)[i]);
    codes[i] = static_cast<int64_t>(c10::formats::encode(f, u, static_cast<uint64_t>(word[i])));
  }
  return wrap(out);
}

PyObject* format_parser = nullptr;

Format parse_format(std::string_view name, std::optional<std::string_view> rounding) {
  const py::gil_scoped_acquire acquired;
  return py::reinterpret_borrow<py::function>(format_parser)(name, rounding).cast<Format>();
}

// A float32 tensor as one of a format with float32's codes, or such a tensor as a float32 one: the same memory, no rounding, no autograd.
py::object alias_binary32(py::handle tensor, py::handle dtype) {
  const at::Tensor t = expect_tensor(tensor);
  const FormatEntry* entry = dtype.is_none() ? nullptr : &expect_format(dtype);
  const c10::formats::Format& f = entry ? entry->format : at::formats::entry_of(t).format;
  if (!c10::formats::is_binary32(f) || (entry && t.scalar_type() != at::kFloat))
    throw py::value_error("expected a float32 tensor and float32's codes");
  return wrap(entry ? at::formats::format_alias(t, *entry) : at::formats::stock_alias(t, at::kFloat));
}

// A tensor's codes as integers, and a tensor of such codes: the same memory, without autograd. What compiled graphs take and give.
py::object alias_codes(py::handle tensor) {
  return wrap(at::formats::bits_alias(expect_tensor(tensor)));
}

py::object alias_format(py::handle codes, py::handle dtype) {
  const at::Tensor& t = expect_tensor(codes);
  const FormatEntry& entry = expect_format(dtype);
  if (t.scalar_type() != entry.bits) throw py::value_error("expected integers as wide as the dtype's elements");
  return wrap(at::formats::format_alias(t, entry));
}

// The words that elements first to first + n - 1 of a cast with this seed use.
py::object random_words(uint64_t seed, uint64_t first, int64_t n) {
  at::Tensor out = at::empty({n}, at::kLong);
  int64_t* words = out.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < n; ++i) words[i] = static_cast<int64_t>(c10::formats::random_word(seed, first + i));
  return wrap(out);
}

py::object decode_exact(const Format& f, py::handle codes) {
  const at::Tensor in = expect_tensor(codes).contiguous();
  at::Tensor out = at::empty(in.sizes(), at::kDouble);
  double* values = out.mutable_data_ptr<double>();
  const int64_t* data = in.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < in.numel(); ++i) values[i] = c10::formats::to_double(c10::formats::decode(f, static_cast<uint64_t>(data[i])));
  return wrap(out);
}

// CPython counts the calls of PyGILState_Ensure that are under way on a thread, and pybind11's gil_scoped_acquire counts there too: C++ has
// no other way into Python. The field is the thread's own and may be read without the GIL.
int64_t python_depth() {
  const PyThreadState* state = PyGILState_GetThisThreadState();
  return state ? state->gilstate_counter : 0;
}

// When, as an enum.IntFlag.
py::object when_flags() {
  py::list members;
#define MEMBER(name, python, bit, meaning) members.append(py::make_tuple(#python, static_cast<int>(When::name)));
  TORCH_DTYPES_FORALL_WHEN(MEMBER)
#undef MEMBER
  py::object flags = py::module_::import("enum").attr("IntFlag")("When", members, py::arg("module") = "torch_dtypes._C");
#define MEANING(name, python, bit, meaning) flags.attr(#python).attr("meaning") = meaning;
  TORCH_DTYPES_FORALL_WHEN(MEANING)
#undef MEANING
  return flags;
}

// On the path of stock calls (Tensor.__rdiv__), so without pybind11's argument handling.
PyObject* is_format_tensor(PyObject*, PyObject* object) {
  return PyBool_FromLong(format_of_tensor(object) != nullptr);
}

PyMethodDef raw_functions[] = {
    {"is_format_tensor", &is_format_tensor, METH_O, "Whether an object is a tensor of a number format."},
    {"format_in", &format_in, METH_O, "The name of a number format somewhere in a value, or None. Runs no code of the value's class."},
    {"set_searched_classes", &set_searched_classes, METH_VARARGS, "set_searched_classes(Module, Optimizer, partial): what format_in looks into."},
    {"exchange_bodies", &exchange_bodies, METH_VARARGS,
     "exchange_bodies(tensor, other): their data change places; what autograd knows of the first stays with it."},
    {"without_memory", &without_memory, METH_VARARGS, "without_memory(dtype, sizes, strides, device): the body of a wrapper of tensors of ours."},
    {"set_wrapper_cast", &set_wrapper_cast, METH_O, "set_wrapper_cast(cast): cast(wrapper, dtype) casts what a wrapper wraps, or gives None."},
    {"hook", &hook_builtin, METH_VARARGS, "hook(builtin, implementation, when): put an implementation in front of a stock builtin."},
    {"call_operator", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&call_operator)), METH_FASTCALL,
     "call_operator(op, function, args, kwargs): what torch.ops calls; a stock dtype beside a tensor of ours means itself."},
    {"set_default_format", &set_default_format, METH_O, "Make a dtype of ours the default dtype; None: the stock default holds."},
    {"get_default_format", &get_default_format, METH_NOARGS, "The default dtype if it is one of ours, else None."},
    {nullptr, nullptr, 0, nullptr}};

} // namespace
} // namespace torch::formats

PYBIND11_MODULE(_C, m) {
  using namespace torch::formats;
  namespace f = c10::formats;
  m.doc() = "The native part of torch_dtypes. Private: use torch_dtypes.";
  bind_enum<f::Kind>(
      m, "Kind",
      {{"posit", f::Kind::Posit}, {"float", f::Kind::Float}, {"fixed", f::Kind::Fixed}, {"table", f::Kind::Table}, {"takum", f::Kind::Takum}});
  bind_enum<f::FewBits>(m, "FewBits", {{"a", f::FewBits::A}, {"b", f::FewBits::B}, {"c", f::FewBits::C}});
  bind_enum<f::Specials>(m, "Specials",
                         {{"ieee", f::Specials::Ieee},
                          {"fn", f::Specials::Fn},
                          {"none", f::Specials::None},
                          {"fnuz", f::Specials::Fnuz},
                          {"p3109", f::Specials::P3109}});
  bind_enum<f::Overflow>(m, "Overflow", {{"ieee", f::Overflow::Ieee}, {"saturate", f::Overflow::Saturate}, {"wrap", f::Overflow::Wrap}});
  bind_enum<f::Underflow>(m, "Underflow", {{"minpos", f::Underflow::Minpos}, {"zero", f::Underflow::Zero}});
  bind_enum<f::Infinity>(m, "Infinity", {{"nan", f::Infinity::Nan}, {"saturate", f::Infinity::Saturate}});
  bind_enum<f::Subnormals>(m, "Subnormals", {{"gradual", f::Subnormals::Gradual}, {"flush", f::Subnormals::Flush}});
  py::enum_<f::Rounding> rounding(m, "Rounding");
  py::list modes; // (name, Pychop's number or 0, whether it draws random words)
  for (const f::RoundingMode& r : f::kRoundingModes) {
    rounding.value(r.name, r.mode);
    modes.append(py::make_tuple(r.name, r.pychop, r.draws == f::Draws::Word));
  }
  m.attr("ROUNDING_MODES") = py::tuple(modes);
  py::class_<Format>(m, "Format")
      .def_static("posit", &f::posit_format)
      .def_static("float", &f::float_format)
      .def_static("fixed", &f::fixed_format)
      .def_static("table", &table_of_definition)
      .def_static("takum", &f::takum_format)
      .def(py::init<const Format&>())
      .def_readonly("kind", &Format::kind)
      .def_readonly("bits", &Format::bits)
      .def_readonly("exp_bits", &Format::exp_bits)
      .def_readonly("man_bits", &Format::man_bits)
      .def_readwrite("bias", &Format::bias)
      .def_readwrite("subnormals", &Format::subnormals)
      .def_readwrite("specials", &Format::specials)
      .def_readwrite("overflow", &Format::overflow)
      .def_readwrite("underflow", &Format::underflow)
      .def_readwrite("infinity", &Format::infinity)
      .def_readonly("is_signed", &Format::is_signed)
      .def_readwrite("symmetric", &Format::symmetric)
      .def_readwrite("rounding", &Format::rounding)
      .def_readwrite("random_bits", &Format::random_bits)
      .def_readwrite("few_bits", &Format::few_bits)
      .def_property_readonly("table_name",
                             [](const Format& a) { return a.is_table() ? py::cast(f::table_of(a).definition.name) : py::object(py::none()); })
      .def_property_readonly("itemsize", &Format::itemsize)
      .def_property_readonly("significand_bits", &Format::significand_bits)
      .def_property_readonly("max_exponent", &Format::max_exponent)
      .def_property_readonly("min_exponent", &Format::min_exponent)
      .def_property_readonly("lsb_exponent", &Format::lsb_exponent)
      .def_property_readonly("max_code", &Format::max_code)
      .def_property_readonly("nan_code", &Format::nan_code)
      .def_property_readonly("has_infinity", &Format::has_infinity)
      .def_property_readonly("infinity_is_nan", &Format::infinity_is_nan)
      .def_property_readonly("fits_float", &Format::fits_float)
      .def_property_readonly("fits_double", &Format::fits_double)
      .def(
          "__eq__", [](const Format& a, const Format& b) { return a == b; }, py::is_operator())
      .def("__hash__",
           [](const Format& a) { return py::hash(py::make_tuple(int(a.kind), a.bits, a.exp_bits, a.bias, reinterpret_cast<uintptr_t>(a.table))); });

  m.def("define", &define);
  m.def("set_announcer", [](py::handle callable) { set_announcer(callable.ptr()); });
  m.def("set_room_maker", [](const py::function& callable) {
    Py_XSETREF(room_maker, Py_NewRef(callable.ptr()));
    f::set_room_maker(&make_room);
  });
  m.def("formats_at_run_time", &formats_at_run_time);
  m.def("retire", &retire);
  m.def("builtin_dtypes", &builtin_dtypes);
  m.def("format_of", [](py::handle dtype) -> py::object {
    const FormatEntry* entry = format_of_dtype(dtype.ptr());
    return entry ? py::cast(entry->format) : py::none();
  });
  m.def("autocast_dtype", []() -> py::object {
    if (!at::formats::autocast_has_format()) return py::none();
    return py::reinterpret_borrow<py::object>(dtype_object(c10::formats::format_entry(at::autocast::get_autocast_dtype(at::kCPU))));
  });
  m.def("name_of", [](py::handle dtype) { return expect_format(dtype).name; });
  m.def("format_count", &c10::formats::format_count);
  m.def("builtin_name", [](const Format& format) -> py::object {
    const auto builtin = f::builtin_of(format);
    return builtin == f::Builtin::kNone ? py::object(py::none()) : py::str(f::kBuiltinFormats[int(builtin)].name);
  });
  m.attr("first_load") = py::dict(); // what __init__.py notes of this process's first load; the extension itself is loaded once
  m.attr("max_formats") = c10::formats::kMaxFormats;

  m.def("operator_facts", &operator_facts);
  m.def("dot_operators", &at::formats::dot_operators);
  m.def("install_patches", [](py::dict implementations) {
    install_patches(implementations.ptr());
    at::formats::set_python_depth(&python_depth);
    return at::formats::register_boxed_kernels();
  });
  m.def("patches", [] { return py::reinterpret_steal<py::list>(list_patches()); });
  m.attr("When") = when_flags();
  m.def("gradient_of_dtype", [](py::handle gradient, py::handle dtype) {
    if (!THPDtype_Check(dtype.ptr())) throw py::type_error("expected a dtype");
    const at::Tensor& given = expect_tensor(gradient);
    const at::Tensor cast = at::formats::gradient_of_dtype(given, reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type);
    return cast.is_same(given) ? py::reinterpret_borrow<py::object>(gradient) : wrap(cast);
  });
  bind_accumulation(m);
  m.def("cpu_capability", [] { return std::string(at::formats::cpu_kernels().name); });
  m.def("has_gpu_kernels", &at::formats::has_gpu_kernels);
  m.def("built_for_host", &at::formats::built_for_host);
  m.def("gpu_on_host", &at::formats::gpu_on_host);
  m.def("set_gpu_on_host", [](bool on) {
    HANDLE_TH_ERRORS
    at::formats::set_gpu_on_host(on);
    END_HANDLE_TH_ERRORS_PYBIND
  });
  m.def("chop", [](py::handle values, std::string_view name, std::optional<std::string_view> rounding, double flip_prob, py::handle generator) {
    std::optional<at::Generator> source;
    if (!generator.is_none()) source = reinterpret_cast<THPGenerator*>(generator.ptr())->cdata;
    const at::Tensor in = expect_tensor(values);
    at::Tensor out;
    {
      const py::gil_scoped_release released;
      out = at::formats::call_chop(in, name, rounding, flip_prob, source);
    }
    return wrap(std::move(out));
  });
  m.def("chop_blocks",
        [](py::handle values, std::string_view name, std::optional<std::string_view> rounding, int64_t size, int64_t emax, double threshold,
           bool included, int64_t lowest, int64_t highest, py::handle generator) {
          std::optional<at::Generator> source;
          if (!generator.is_none()) source = reinterpret_cast<THPGenerator*>(generator.ptr())->cdata;
          const at::Tensor in = expect_tensor(values);
          at::Tensor out;
          {
            const py::gil_scoped_release released;
            out = at::formats::call_chop_blocks(in, name, rounding, size, emax, threshold, included, lowest, highest, source);
          }
          return wrap(std::move(out));
        });
  m.def("round_through",
        [](py::handle input, std::optional<std::pair<std::string, std::optional<std::string>>> forward,
           std::optional<std::pair<std::string, std::optional<std::string>>> backward, bool fresh) {
          const auto named = [](auto& given) {
            return given ? std::optional(at::formats::NamedFormat{std::move(given->first), std::move(given->second)}) : std::nullopt;
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
    return wrap(at::formats::straight_through(expect_tensor(input), expect_tensor(values), passes.is_none() ? at::Tensor() : expect_tensor(passes)));
  });
  m.def("set_format_parser", [](py::object parse) {
    format_parser = parse.release().ptr(); // held for ever
    at::formats::set_format_parser(&parse_format);
  });
  using at::formats::MixedOperands;
  bind_enum<MixedOperands>(m, "MixedOperands", {{"raises", MixedOperands::Raise}, {"promotes", MixedOperands::Promote}});
  m.def("mixed_operands_override", &at::formats::mixed_operands_override);
  m.def("set_mixed_operands_override", &at::formats::set_mixed_operands_override);
  m.def("set_mixed_operands_default", &at::formats::set_mixed_operands_default);
  using at::formats::FillInfinity;
  bind_enum<FillInfinity>(m, "FillInfinity", {{"saturate", FillInfinity::Saturate}, {"nan", FillInfinity::Nan}});
  m.def("fill_infinity", &at::formats::fill_infinity);
  m.def("set_fill_infinity", &at::formats::set_fill_infinity);
  m.def("fill_number", [](double value, py::handle dtype) {
    HANDLE_TH_ERRORS // for its warning
        return at::formats::fill_number(value, expect_format(dtype));
    END_HANDLE_TH_ERRORS_PYBIND
  });
  m.def("rounding_override", &at::formats::rounding_override);
  m.def("set_rounding_override", &at::formats::set_rounding_override);
  // The generator, or None, that this thread draws rounding's words from; gives back None, or what was set before as a Python object.
  m.def("set_word_source", [](py::handle generator) {
    std::optional<at::Generator> source;
    if (!generator.is_none()) source = reinterpret_cast<THPGenerator*>(generator.ptr())->cdata;
    const std::optional<at::Generator> before = at::formats::set_word_source(std::move(source));
    return before ? py::reinterpret_steal<py::object>(THPGenerator_Wrap(*before)) : py::none();
  });
  m.def("alias_binary32", &alias_binary32);
  m.def("alias_codes", &alias_codes);
  m.def("alias_format", &alias_format);
  m.def("explicit_dtype", &at::formats::ExplicitDtypeGuard::active);
  m.def("set_cast_recorder", [](py::object recorder) {
    if (recorder.is_none()) return at::formats::set_cast_recorder(nullptr);
    at::formats::set_cast_recorder([recorder](const at::Tensor& from, const at::Tensor& to) {
      const py::gil_scoped_acquire held;
      recorder(wrap(from), wrap(to));
    });
  });
  m.def("register_codes_operator", &at::formats::register_codes_operator);
  m.def("next_seed", [] { return at::formats::next_seed(); });
  m.def("random_words", &random_words);
  m.def("encode_exact", &encode_exact, py::arg("format"), py::arg("values"), py::arg("random") = py::none());
  m.def("decode_exact", &decode_exact);
  bind_observing(m);
  bind_script_calls(m.ptr());
  if (PyModule_AddFunctions(m.ptr(), raw_functions) < 0) throw py::error_already_set();
}
