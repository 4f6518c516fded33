// Bindings of formats, their dtypes, and the number layer, which the tests use.
#include <torch/csrc/formats/bindings/Bindings.h>

#include <ATen/FormatRounding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/formats/BuiltinFormats.h>
#include <c10/formats/FormatLimits.h>
#include <c10/formats/FormatRegistryTypes.h>
#include <c10/formats/tables/ValueTable.h>
#include <pybind11/stl.h>
#include <torch/csrc/formats/bindings/Arguments.h>

namespace py = pybind11;

namespace torch::formats {
namespace {

using c10::formats::Format;
using c10::formats::FormatEntry;
using c10::formats::Kind;

py::object define(const Format& format, const std::string& name) {
  if (!format.fits_double())
    throw py::value_error("expected a format whose values are all float64 numbers, but got " +
                          name + "; use fewer bits");
  try {
    return py::reinterpret_borrow<py::object>(
        dtype_object(c10::formats::register_format(format, name)));
  } catch (const c10::Error& e) {
    throw py::value_error(e.what_without_backtrace());
  }
}

py::list builtin_dtypes() {
  py::list all;
  for (const auto& b : c10::formats::kBuiltinFormats) all.append(define(b.format, b.name));
  return all;
}

// Makes a table's format from arguments that formats/tables/ has prepared. Values and boundaries
// are float64 tensors. An end is (saturates, code, infinity's code, next value, limit).
Format table_of_definition(const std::string& name, int bits, py::handle values, uint32_t nan_code,
                           const std::string& ties, py::handle boundaries, const py::tuple& high,
                           const py::tuple& low, bool minpos, bool negative_is_nan,
                           const std::string& logarithm, uint8_t log_bits) {
  using namespace c10::formats;
  const auto numbers = [](py::handle tensor) {
    const at::Tensor t = expect_tensor(tensor).cpu().to(at::kDouble).contiguous();
    const double* first = t.const_data_ptr<double>();
    return std::vector<double>(first, first + t.numel());
  };
  const auto end = [](const py::tuple& e) {
    return TableEnd{e[0].cast<bool>(), e[1].cast<uint32_t>(), e[2].cast<uint32_t>(),
                    e[3].cast<double>(), e[4].cast<double>()};
  };
  TableDefinition d;
  d.name = name;
  d.bits = bits;
  d.values = numbers(values);
  d.nan_code = nan_code;
  constexpr std::pair<const char*, Ties> kTies[] = {{"even", Ties::Even},
                                                    {"zero", Ties::Zero},
                                                    {"away", Ties::Away},
                                                    {"up", Ties::Up},
                                                    {"down", Ties::Down}};
  for (const auto& [text, value] : kTies) {
    if (ties == text) d.ties = value;
  }
  if (!boundaries.is_none()) d.boundaries = numbers(boundaries);
  d.high = end(high);
  d.low = end(low);
  d.minpos = minpos;
  d.negative_is_nan = negative_is_nan;
  if (logarithm == "binary") d.logarithm = Logarithm::Binary;
  else d.logarithm = logarithm == "natural" ? Logarithm::Natural : Logarithm::None;
  d.log_bits = log_bits;
  try {
    return make_table_format(d);
  } catch (const std::invalid_argument& e) {
    throw py::value_error(e.what());
  }
}

// Encodes a float64 or int64 tensor to int64 codes by the generic codec, on the CPU. random: words
// for the stochastic modes, int64 of the same size.
py::object encode_exact(const Format& f, py::handle values, py::handle random) {
  const at::Tensor in = expect_tensor(values).cpu().contiguous();
  at::Tensor words = random.is_none() ? at::zeros(in.sizes(), at::kLong)
                                      : expect_tensor(random).cpu().contiguous();
  if (words.numel() != in.numel() || words.scalar_type() != at::kLong)
    throw py::value_error("expected one int64 word for each value, but got " +
                          std::to_string(words.numel()) + " of " +
                          c10::toString(words.scalar_type()));
  at::Tensor out = at::empty(in.sizes(), at::kLong);
  int64_t* codes = out.mutable_data_ptr<int64_t>();
  const int64_t* word = words.const_data_ptr<int64_t>();
  const bool integers = in.scalar_type() == at::kLong;
  const void* data = in.const_data_ptr();
  for (int64_t i = 0; i < in.numel(); ++i) {
    const auto u = integers ? c10::formats::unpack(static_cast<const int64_t*>(data)[i])
                            : c10::formats::unpack(static_cast<const double*>(data)[i]);
    codes[i] = static_cast<int64_t>(c10::formats::encode(f, u, static_cast<uint64_t>(word[i])));
  }
  return wrap(out);
}

// Returns the random words of elements first to first + n - 1 of a cast with this seed.
py::object random_words(uint64_t seed, uint64_t first, int64_t n) {
  at::Tensor out = at::empty({n}, at::kLong);
  int64_t* words = out.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < n; ++i)
    words[i] = static_cast<int64_t>(c10::formats::random_word(seed, first + i));
  return wrap(out);
}

py::object decode_exact(const Format& f, py::handle codes) {
  const at::Tensor in = expect_tensor(codes).cpu().contiguous();
  at::Tensor out = at::empty(in.sizes(), at::kDouble);
  double* values = out.mutable_data_ptr<double>();
  const int64_t* data = in.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < in.numel(); ++i)
    values[i] = c10::formats::to_double(c10::formats::decode(f, static_cast<uint64_t>(data[i])));
  return wrap(out);
}

const char* fields_of(Kind kind) {
  switch (kind) {
    case Kind::Posit: return "es";
    case Kind::Float: return "exp_bits, man_bits or bias";
    case Kind::Fixed: return "int_bits or frac_bits";
    case Kind::Table:
    case Kind::Takum: break;
  }
  return "bits or significand_bits";
}

std::string name_of_kind(Kind kind) {
  return py::str(py::cast(kind).attr("name"));
}

std::string explain_field(const Format& f, Kind kind, const char* field, const char* instead) {
  return "expected a format of kind " + name_of_kind(kind) + " for " + field + ", but got kind " +
      name_of_kind(f.kind) + "; use " + instead;
}

// Returns the value of a field that formats of one kind have.
int read_field(const Format& f, Kind kind, const char* field, int value) {
  if (f.kind == kind) return value;
  throw py::attribute_error(explain_field(f, kind, field, fields_of(f.kind)));
}

// Reads a field of floats that release 0.1 had for posits and fixed point too.
int read_deprecated(const Format& f, const char* field, const char* instead, int value) {
  const std::string message = explain_field(f, Kind::Float, field, instead);
  if (PyErr_WarnEx(PyExc_DeprecationWarning, message.c_str(), 1) < 0) throw py::error_already_set();
  return value;
}

int exp_bits(const Format& f) {
  if (f.is_posit()) return read_deprecated(f, "exp_bits", "es", f.es);
  if (f.is_fixed()) return read_deprecated(f, "exp_bits", "int_bits", f.int_bits);
  return read_field(f, Kind::Float, "exp_bits", f.exp_bits);
}

int man_bits(const Format& f) {
  if (f.is_posit())
    return read_deprecated(f, "man_bits", "significand_bits - 1", f.longest_fraction());
  if (f.is_fixed()) return read_deprecated(f, "man_bits", "frac_bits", f.frac_bits);
  return read_field(f, Kind::Float, "man_bits", f.man_bits);
}

} // namespace

void bind_formats(py::module_& m) {
  namespace f = c10::formats;
  bind_enum<f::Kind>(m, "Kind",
                     {{"posit", f::Kind::Posit},
                      {"float", f::Kind::Float},
                      {"fixed", f::Kind::Fixed},
                      {"table", f::Kind::Table},
                      {"takum", f::Kind::Takum}});
  bind_enum<f::FewBits>(m, "FewBits",
                        {{"a", f::FewBits::A}, {"b", f::FewBits::B}, {"c", f::FewBits::C}});
  bind_enum<f::Specials>(m, "Specials",
                         {{"ieee", f::Specials::Ieee},
                          {"fn", f::Specials::Fn},
                          {"none", f::Specials::None},
                          {"fnuz", f::Specials::Fnuz},
                          {"p3109", f::Specials::P3109}});
  bind_enum<f::Overflow>(m, "Overflow",
                         {{"ieee", f::Overflow::Ieee},
                          {"saturate", f::Overflow::Saturate},
                          {"wrap", f::Overflow::Wrap}});
  bind_enum<f::Underflow>(m, "Underflow",
                          {{"minpos", f::Underflow::Minpos}, {"zero", f::Underflow::Zero}});
  bind_enum<f::Infinity>(m, "Infinity",
                         {{"nan", f::Infinity::Nan}, {"saturate", f::Infinity::Saturate}});
  bind_enum<f::Subnormals>(m, "Subnormals",
                           {{"gradual", f::Subnormals::Gradual}, {"flush", f::Subnormals::Flush}});
  py::enum_<f::Rounding> rounding(m, "Rounding");
  py::list modes; // (name, Pychop's number or 0, true if it draws random words)
  for (const f::RoundingMode& r : f::kRoundingModes) {
    rounding.value(r.name, r.mode);
    modes.append(py::make_tuple(r.name, r.pychop, r.draws == f::Draws::Word));
  }
  m.attr("ROUNDING_MODES") = py::tuple(modes);
  rounding.def_property_readonly("draws", &f::is_stochastic)
      .def_property_readonly("lifts_traces", &f::lifts_traces)
      .def_property_readonly("sees_inexact", &f::sees_inexact)
      .def(
          "rounds_up",
          [](f::Rounding mode, bool negative, bool odd, bool half, bool rest) {
            return f::rounds_up(mode, negative, {odd, uint64_t{half} << 63, rest}, 0);
          },
          py::arg("negative"), py::arg("odd"), py::arg("half"), py::arg("rest"));
  py::class_<Format>(m, "Format")
      .def_static("posit", &f::posit_format)
      .def_static("float", &f::float_format)
      .def_static("fixed", &f::fixed_format)
      .def_static("table", &table_of_definition)
      .def_static("takum", &f::takum_format)
      .def(py::init<const Format&>())
      .def_readonly("kind", &Format::kind)
      .def_readonly("bits", &Format::bits)
      .def_property_readonly(
          "es", [](const Format& a) { return read_field(a, f::Kind::Posit, "es", a.es); })
      .def_property_readonly(
          "int_bits",
          [](const Format& a) { return read_field(a, f::Kind::Fixed, "int_bits", a.int_bits); })
      .def_property_readonly(
          "frac_bits",
          [](const Format& a) { return read_field(a, f::Kind::Fixed, "frac_bits", a.frac_bits); })
      .def_property_readonly("exp_bits", &exp_bits)
      .def_property_readonly("man_bits", &man_bits)
      .def_property(
          "bias", [](const Format& a) { return read_field(a, f::Kind::Float, "bias", a.bias); },
          [](Format& a, int16_t bias) {
            read_field(a, f::Kind::Float, "bias", a.bias);
            a.bias = bias;
          })
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
                             [](const Format& a) {
                               return a.is_table() ? py::cast(f::table_of(a).definition.name)
                                                   : py::object(py::none());
                             })
      .def_property_readonly("table_address",
                             [](const Format& a) { return reinterpret_cast<uintptr_t>(a.table); })
      .def_property_readonly("on_logarithms",
                             [](const Format& a) {
                               return f::is_logarithmic(a) ? py::cast(f::on_logarithms(a))
                                                           : py::none();
                             })
      .def_property_readonly("is_tapered", &Format::is_tapered)
      .def_property_readonly("keeps_minpos", &f::keeps_minpos)
      .def("least_uniform", &f::least_uniform, py::arg("digits"))
      .def_property_readonly("tells_ends_apart", &f::tells_ends_apart)
      .def_property_readonly("itemsize", &Format::itemsize)
      .def_property_readonly("significand_bits", &Format::significand_bits)
      .def_property_readonly("max_exponent", &Format::max_exponent)
      .def_property_readonly("min_exponent", &Format::min_exponent)
      .def_property_readonly("lsb_exponent", &Format::lsb_exponent)
      .def_property_readonly("max_code", &Format::max_code)
      .def_property_readonly("largest", &f::largest)
      .def_property_readonly("smallest", &f::smallest)
      .def_property_readonly("nan_code", &Format::nan_code)
      .def_property_readonly("has_nan",
                             [](const Format& f) {
                               return c10::formats::decode(f, f.nan_code()).cls ==
                                   c10::formats::Class::NaN;
                             })
      .def_property_readonly("has_infinity", &Format::has_infinity)
      .def_property_readonly("infinity_is_nan", &Format::infinity_is_nan)
      .def_property_readonly("fits_float", &Format::fits_float)
      .def_property_readonly("arithmetic_in_double", &Format::arithmetic_in_double)
      .def_property_readonly("fits_double", &Format::fits_double)
      .def_property_readonly("digits_to_wrap", &Format::digits_to_wrap)
      .def(
          "__eq__", [](const Format& a, const Format& b) { return a == b; }, py::is_operator())
      .def("__hash__", [](const Format& a) {
        return py::hash(py::make_tuple(int(a.kind), a.bits, a.es, a.int_bits, a.exp_bits, a.bias,
                                       reinterpret_cast<uintptr_t>(a.table)));
      });

  m.def("define", &define);
  m.def("set_announcer", [](py::handle callable) { set_announcer(callable.ptr()); });
  m.def("builtin_dtypes", &builtin_dtypes);
  m.def("format_of", [](py::handle dtype) -> py::object {
    const FormatEntry* entry = format_of_dtype(dtype.ptr());
    return entry ? py::cast(entry->format) : py::none();
  });
  m.def("has_numbers_of", [](py::handle stock, const Format& format) {
    TORCH_CHECK_TYPE(THPDtype_Check(stock.ptr()), "has_numbers_of: expected a dtype, but got ",
                     std::string(py::repr(py::type::of(stock))));
    return f::has_numbers_of(
        c10::toRealValueType(reinterpret_cast<THPDtype*>(stock.ptr())->scalar_type), format);
  });
  m.def("name_of", [](py::handle dtype) { return expect_format(dtype).name; });
  m.def("format_count", &c10::formats::format_count);
  m.def("builtin_name", [](const Format& format) -> py::object {
    const auto builtin = f::builtin_of(format);
    return builtin == f::Builtin::kNone ? py::object(py::none())
                                        : py::str(f::kBuiltinFormats[int(builtin)].name);
  });
  // host/loading.py records this process's first load here; the extension is loaded only once.
  m.attr("first_load") = py::dict();
  m.attr("max_formats") = f::kMaxFormats;
  m.def("next_seed", [] { return at::formats::next_seed().number; });
  m.def("random_words", &random_words);
  m.def("encode_exact", &encode_exact, py::arg("format"), py::arg("values"),
        py::arg("random") = py::none());
  m.def("decode_exact", &decode_exact);
}

} // namespace torch::formats
