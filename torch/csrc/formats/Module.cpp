// The extension module torch_dtypes._C: makes dtypes, installs the hooks, and opens the number layer to the tests.
#include <torch/csrc/formats/DtypeObject.h>
#include <torch/csrc/formats/Trampolines.h>

#include <ATen/FormatTensor.h>
#include <ATen/ops/empty.h>
#include <ATen/native/formats/Boxed.h>
#include <ATen/native/formats/cpu/Kernels.h>
#include <c10/core/BuiltinFormats.h>
#include <c10/util/ExactCodec.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

namespace py = pybind11;

namespace torch::formats {
namespace {

using c10::formats::Format;
using c10::formats::FormatEntry;

const FormatEntry& expect_format(py::handle dtype) {
  const FormatEntry* entry = format_of_dtype(dtype.ptr());
  if (!entry) throw py::type_error("expected a dtype of a number format, but got " + py::repr(dtype).cast<std::string>());
  return *entry;
}

const at::Tensor& expect_tensor(py::handle object) {
  if (!THPVariable_Check(object.ptr())) throw py::type_error("expected a tensor, but got " + py::repr(py::type::handle_of(object)).cast<std::string>());
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

py::list builtin_dtypes() {
  py::list all;
  for (const auto& b : c10::formats::kBuiltinFormats) all.append(define(b.format, b.name));
  return all;
}

template <typename Enum>
void bind_enum(py::module_& m, const char* name, std::initializer_list<std::pair<const char*, Enum>> values) {
  py::enum_<Enum> e(m, name);
  for (const auto& [label, value] : values) e.value(label, value);
}

// A float64 or int64 tensor to codes as int64, by the generic codec.
py::object encode_exact(const Format& f, py::handle values) {
  const at::Tensor in = expect_tensor(values).contiguous();
  at::Tensor out = at::empty(in.sizes(), at::kLong);
  int64_t* codes = out.mutable_data_ptr<int64_t>();
  const bool integers = in.scalar_type() == at::kLong;
  const void* data = in.const_data_ptr();
  for (int64_t i = 0; i < in.numel(); ++i) {
    const auto u = integers ? c10::formats::unpack(static_cast<const int64_t*>(data)[i]) : c10::formats::unpack(static_cast<const double*>(data)[i]);
    codes[i] = static_cast<int64_t>(c10::formats::encode(f, u));
  }
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

// On the path of stock calls (Tensor.__rdiv__), so without pybind11's argument handling.
PyObject* is_format_tensor(PyObject*, PyObject* object) {
  return PyBool_FromLong(format_of_tensor(object) != nullptr);
}

PyMethodDef raw_functions[] = {
    {"is_format_tensor", &is_format_tensor, METH_O, "Whether an object is a tensor of a number format."},
    {"hook", &hook_builtin, METH_VARARGS, "hook(builtin, implementation, when): put an implementation in front of a stock builtin."},
    {"set_default_format", &set_default_format, METH_O, "Make a dtype of ours the default dtype; None: the stock default holds."},
    {"get_default_format", &get_default_format, METH_NOARGS, "The default dtype if it is one of ours, else None."},
    {nullptr, nullptr, 0, nullptr}};

} // namespace
} // namespace torch::formats

PYBIND11_MODULE(_C, m) {
  using namespace torch::formats;
  namespace f = c10::formats;
  m.doc() = "The native part of torch_dtypes. Private: use torch_dtypes.";
  bind_enum<f::Kind>(m, "Kind", {{"posit", f::Kind::Posit}, {"float", f::Kind::Float}});
  bind_enum<f::Specials>(m, "Specials", {{"ieee", f::Specials::Ieee}, {"fn", f::Specials::Fn}, {"none", f::Specials::None}});
  bind_enum<f::Overflow>(m, "Overflow", {{"ieee", f::Overflow::Ieee}, {"saturate", f::Overflow::Saturate}});
  bind_enum<f::Subnormals>(m, "Subnormals", {{"gradual", f::Subnormals::Gradual}, {"flush", f::Subnormals::Flush}});
  bind_enum<f::Rounding>(
      m, "Rounding",
      {{"nearest_even", f::Rounding::NearestEven}, {"nearest_zero", f::Rounding::NearestZero}, {"nearest_away", f::Rounding::NearestAway},
       {"up", f::Rounding::Up}, {"down", f::Rounding::Down}, {"toward_zero", f::Rounding::TowardZero}, {"to_odd", f::Rounding::ToOdd}});
  py::class_<Format>(m, "Format")
      .def_static("posit", &f::posit_format)
      .def_static("float", &f::float_format)
      .def_readonly("kind", &Format::kind)
      .def_readonly("bits", &Format::bits)
      .def_readonly("exp_bits", &Format::exp_bits)
      .def_readonly("man_bits", &Format::man_bits)
      .def_readwrite("bias", &Format::bias)
      .def_readwrite("subnormals", &Format::subnormals)
      .def_readwrite("specials", &Format::specials)
      .def_readwrite("overflow", &Format::overflow)
      .def_readwrite("rounding", &Format::rounding)
      .def_property_readonly("itemsize", &Format::itemsize)
      .def_property_readonly("max_exponent", &Format::max_exponent)
      .def_property_readonly("min_exponent", &Format::min_exponent)
      .def_property_readonly("max_code", &Format::max_code)
      .def_property_readonly("nan_code", &Format::nan_code)
      .def_property_readonly("fits_float", &Format::fits_float)
      .def_property_readonly("fits_double", &Format::fits_double)
      .def("__eq__", [](const Format& a, const Format& b) { return a == b; })
      .def("__hash__", [](const Format& a) { return py::hash(py::make_tuple(int(a.kind), a.bits, a.exp_bits, a.bias)); });

  m.def("define", &define);
  m.def("builtin_dtypes", &builtin_dtypes);
  m.def("format_of", [](py::handle dtype) -> py::object {
    const FormatEntry* entry = format_of_dtype(dtype.ptr());
    return entry ? py::cast(entry->format) : py::none();
  });
  m.def("name_of", [](py::handle dtype) { return expect_format(dtype).name; });
  m.def("format_count", &c10::formats::format_count);
  m.attr("max_formats") = c10::formats::kMaxFormats;

  m.def("patch", [](py::object reduce, py::object set_data, py::object legacy_tensor) {
    patch_dtype(reduce.ptr());
    patch_finfo();
    patch_setitem();
    patch_tensor_properties(set_data.ptr(), legacy_tensor.ptr());
    return at::formats::register_boxed_kernels();
  });
  m.def("cpu_capability", [] { return std::string(at::formats::cpu_kernels().name); });
  m.def("encode_exact", &encode_exact);
  m.def("decode_exact", &decode_exact);
  if (PyModule_AddFunctions(m.ptr(), raw_functions) < 0) throw py::error_already_set();
}
