#include <torch/csrc/formats/bindings/AccumulationBindings.h>

#include <ATen/Float32Products.h>
#include <ATen/native/formats/sums/Accumulate.h>
#include <ATen/native/formats/sums/BlockSums.h>
#include <ATen/native/formats/sums/Elimination.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/formats/bindings/Arguments.h>

namespace py = pybind11;

namespace torch::formats {
namespace {

using at::formats::Accumulation;
using at::formats::BlockSum;
using c10::formats::FormatEntry;

// An attribute that is a dtype or None.
template <const FormatEntry* Accumulation::* member>
void bind_dtype(py::class_<Accumulation>& policy, const char* name) {
  policy.def_property(
      name,
      [](const Accumulation& a) {
        return a.*member ? py::reinterpret_borrow<py::object>(dtype_object(*(a.*member)))
                         : py::object(py::none());
      },
      [](Accumulation& a, py::handle dtype) {
        a.*member = dtype.is_none() ? nullptr : &expect_format(dtype);
      });
}

py::list presets() {
  py::list all;
  for (const at::formats::BlockPreset& preset : at::formats::block_presets()) {
    py::list rows;
    for (const auto& row : preset.rows)
      rows.append(py::make_tuple(row.operands, row.block, row.reg));
    all.append(py::make_tuple(preset.name, preset.source, py::tuple(rows)));
  }
  return all;
}

} // namespace

void bind_accumulation(py::module_& m) {
  using Kind = Accumulation::Kind;
  using Order = Accumulation::Order;
  py::enum_<Kind>(m, "Accumulate")
      .value("machine", Kind::Machine)
      .value("float32", Kind::Float32)
      .value("float64", Kind::Float64)
      .value("exact", Kind::Exact)
      .value("format", Kind::Steps)
      .value("chunked", Kind::Chunked)
      .value("block", Kind::Block);
  py::enum_<Order>(m, "AccumulationOrder")
      .value("sequential", Order::Sequential)
      .value("pairwise", Order::Pairwise)
      .value("tree", Order::Tree)
      .value("lanes", Order::Lanes);
  py::class_<BlockSum>(m, "BlockSum")
      .def(py::init<>())
      .def_readwrite("terms", &BlockSum::terms)
      .def_readwrite("extra_bits", &BlockSum::extra_bits)
      .def_readwrite("align", &BlockSum::align)
      .def_readwrite("interleave", &BlockSum::interleave)
      .def_readwrite("late", &BlockSum::late)
      .def_readwrite("min_exponent", &BlockSum::min_exponent)
      .def_readwrite("product_limit", &BlockSum::product_limit);
  py::class_<Accumulation> policy(m, "Accumulation");
  policy
      .def(py::init([](Kind kind) {
        Accumulation a;
        a.kind = kind;
        return a;
      }))
      .def_readonly("kind", &Accumulation::kind)
      .def_readwrite("chunk", &Accumulation::chunk)
      .def_readwrite("rounding", &Accumulation::rounding)
      .def_readwrite("fused", &Accumulation::fused)
      .def_readwrite("kahan", &Accumulation::kahan)
      .def_readwrite("exact_product", &Accumulation::exact_product)
      .def_readwrite("order", &Accumulation::order)
      .def_readwrite("instructions", &Accumulation::instructions)
      .def_readwrite("lanes", &Accumulation::lanes)
      .def_readwrite("preset", &Accumulation::preset)
      .def_readwrite("block", &Accumulation::block);
  bind_dtype<&Accumulation::product>(policy, "product");
  bind_dtype<&Accumulation::accumulator>(policy, "accumulator");
  bind_dtype<&Accumulation::outer>(policy, "outer");
  m.def("block_presets", &presets);
  m.def("product_into", [](py::handle a, py::handle b, py::handle dtype, py::handle start) {
    for (const py::handle t : {a, b, start}) {
      if (!t.is_none() && !format_of_tensor(t.ptr()))
        throw py::type_error(
            "expected format tensors, but got a stock tensor or another object; "
            "convert it with x.to(dtype)");
    }
    const FormatEntry& entry = expect_format(dtype);
    const Accumulation policy = at::formats::accumulation_of(entry);
    const at::Tensor &x = THPVariable_Unpack(a.ptr()), &y = THPVariable_Unpack(b.ptr());
    return py::reinterpret_steal<py::object>(
        THPVariable_Wrap(at::formats::accumulated::product_into(
            {entry, policy}, x, y,
            start.is_none() ? at::Tensor() : THPVariable_Unpack(start.ptr()))));
  });
  m.def("subtract_product", [](py::handle start, py::handle a, py::handle b) {
    const FormatEntry* entry = format_of_tensor(start.ptr());
    if (!entry || format_of_tensor(a.ptr()) != entry || format_of_tensor(b.ptr()) != entry)
      throw py::type_error(
          "expected three tensors of one format dtype, but got others; convert them with "
          "x.to(dtype)");
    return py::reinterpret_steal<py::object>(
        THPVariable_Wrap(at::formats::accumulated::subtract_product(
            {*entry, at::formats::accumulation_of(*entry)}, THPVariable_Unpack(start.ptr()),
            THPVariable_Unpack(a.ptr()), THPVariable_Unpack(b.ptr()))));
  });
  py::enum_<at::formats::Elimination>(m, "Elimination")
      .value("lu", at::formats::Elimination::LU)
      .value("cholesky", at::formats::Elimination::Cholesky)
      .value("ldl", at::formats::Elimination::LDL);
  py::enum_<at::formats::Pivot>(m, "Pivot")
      .value("none", at::formats::Pivot::None)
      .value("partial", at::formats::Pivot::Partial)
      .value("complete", at::formats::Pivot::Complete);
  m.def("eliminate",
        [](py::handle columns, py::handle rows, py::handle order, at::formats::Elimination kind,
           at::formats::Pivot pivot) {
          at::formats::eliminate(THPVariable_Unpack(columns.ptr()), THPVariable_Unpack(rows.ptr()),
                                 THPVariable_Unpack(order.ptr()), kind, pivot);
        });
  m.def("substitute", [](py::handle columns, py::handle right, bool unit) {
    at::formats::substitute(THPVariable_Unpack(columns.ptr()), THPVariable_Unpack(right.ptr()),
                            unit);
  });
  m.def("expect_float32_products", [](py::handle dtype, const std::string& op, py::handle tensor) {
    const FormatEntry& entry = expect_format(dtype);
    const c10::DeviceType device = THPVariable_Unpack(tensor.ptr()).device().type();
    if (!at::formats::float32_keeps(entry.format.significand_bits(), op, device))
      at::formats::expect_float32_products(entry, op);
  });
  m.def("accumulation_override", &at::formats::accumulation_override);
  m.def("set_accumulation_override", &at::formats::set_accumulation_override);
  m.def("set_accumulation_default", [](py::handle dtype, const Accumulation& a) {
    at::formats::set_accumulation_default(expect_format(dtype), a);
  });
  m.def("accumulation_of",
        [](py::handle dtype) { return at::formats::accumulation_of(expect_format(dtype)); });
}

} // namespace torch::formats
