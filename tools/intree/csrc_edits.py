"""The edited places of `torch/csrc/`: Python's numbers, dtypes and scripts."""

from __future__ import annotations

from .edit import SOURCES, Edit

_SCRIPTS = "torch/csrc/jit/runtime/profiling_graph_executor_impl"

# Text that several edits insert: a key with a device replaces the format's key.
_NO_DEVICE = (
    "{0}// A number format's key names no device.\n"
    "{0}if (c10::formats::is_format_type(scalar_type)) dispatch_key = c10::DispatchKey::CPU;\n"
)

CSRC_EDITS = (
    Edit(
        "torch/csrc/utils/python_scalars.h",
        "inline void store_scalar(void* data, at::ScalarType scalarType, PyObject* obj) {",
        "after",
        "\n  if (c10::formats::is_format_type(scalarType)) {\n"
        "    return c10::formats::store_element(data, scalarType, "
        "at::formats::rounded_number(THPUtils_unpackDouble(obj), scalarType));\n"
        "  }",
        "`torch.tensor([1.5], dtype=torch.posit16es2)` writes elements one by one.",
    ),
    Edit(
        "torch/csrc/utils/python_scalars.h",
        "namespace torch::utils {",
        "before",
        "namespace at::formats { // native/formats/intree/Factories.cpp\n"
        "double rounded_number(double value, c10::ScalarType type);\n"
        "at::Tensor of_numbers(const at::Tensor& numbers, c10::ScalarType type);\n"
        "} // namespace at::formats\n\n",
        "Declares the rounding of a number. It depends on the caller's block, and so does an "
        "infinity in a format that has none.",
        SOURCES,
    ),
    Edit(
        "torch/csrc/utils/python_scalars.h",
        "inline PyObject* load_scalar(const void* data, at::ScalarType scalarType) {",
        "after",
        "\n  if (c10::formats::is_format_type(scalarType)) {\n"
        "    return PyFloat_FromDouble(c10::formats::load_element(data, scalarType));\n  }",
        "`tolist` and `item` read elements.",
    ),
    Edit(
        "torch/csrc/TypeInfo.cpp",
        "#define _AT_DISPATCH_FINFO_TYPES(TYPE, NAME, ...) \\",
        "instead",
        "// A number format says what it is, by the words that stock types dispatch with.\n"
        "static PyObject* formatInfo(at::ScalarType type, const char* what) {\n"
        '  if (std::strcmp(what, "dtype") == 0) {\n'
        "    return PyUnicode_FromString(c10::formats::dtype_name(type));\n  }\n"
        "  return PyFloat_FromDouble(c10::formats::finfo(type, what));\n}\n\n"
        "#define _AT_DISPATCH_FINFO_TYPES(TYPE, NAME, ...)          \\\n"
        "  (c10::formats::is_format_type(TYPE)                      \\\n"
        "       ? formatInfo(TYPE, NAME)                            \\\n"
        "       : _AT_DISPATCH_STOCK_FINFO_TYPES(TYPE, NAME, __VA_ARGS__))\n\n"
        "#define _AT_DISPATCH_STOCK_FINFO_TYPES(TYPE, NAME, ...) \\",
        "`torch.finfo` of formats, also of those made at run time.",
        SOURCES,
    ),
    Edit(
        "torch/csrc/DynamicTypes.cpp",
        "std::array<THPDtype*, static_cast<int>(at::ScalarType::NumOptions)>",
        "instead",
        "std::array<THPDtype*, c10::formats::kEndOfNumbers>",
        "The dtype objects by number: formats made at run time have numbers too.",
        SOURCES,
    ),
    Edit(
        "torch/csrc/DynamicTypes.cpp",
        "  auto dtype = dtype_registry[static_cast<int>(scalarType)];\n",
        "after",
        "  const char* name = dtype ? nullptr : c10::formats::name_or(scalarType, nullptr);\n"
        "  if (name) {\n"
        "    dtype = reinterpret_cast<THPDtype*>(THPDtype_New(scalarType, name));\n"
        "    if (!dtype) throw python_error();\n"
        "    registerDtypeObject(dtype, scalarType);\n  }\n",
        "A dtype object is made at its first use.",
        SOURCES,
    ),
    Edit(
        "torch/csrc/utils/tensor_flatten.h",
        "static_cast<size_t>(at::ScalarType::NumOptions) +",
        "instead",
        "static_cast<size_t>(c10::formats::kEndOfNumbers) +",
        "Pairs of numbers joined into one must not collide: tensors are grouped by dtype.",
    ),
    Edit(
        "torch/csrc/Dtype.cpp",
        "    scalar_type = at::toComplexType(self->scalar_type);",
        "before",
        '    TORCH_CHECK_TYPE(!c10::formats::is_format_type(scalar_type), "expected a dtype with '
        'a complex counterpart, but got torch.",\n'
        '        c10::formats::dtype_name(scalar_type), "; its numbers times a complex one are '
        'complex64 or complex128");\n',
        "`dtype.to_complex()` has a switch of stock types.",
        SOURCES,
    ),
    Edit(
        "torch/csrc/utils/tensor_types.cpp",
        "std::string options_to_string(const at::TensorOptions& options) {",
        "after",
        "\n  const auto scalar_type = at::typeMetaToScalarType(options.dtype());\n"
        '  if (c10::formats::is_format_type(scalar_type)) return std::string("torch.") + '
        "c10::formats::dtype_name(scalar_type);\n",
        "`x.type()`: only the oldest types have classes named after type and device, as "
        "`torch.FloatTensor`.",
        SOURCES,
    ),
    Edit(
        "torch/csrc/utils/tensor_new.cpp",
        "            at::initialTensorOptions().dtype(inferred_scalar_type);\n",
        "after",
        "        // Numbers for a number format are rounded all at once, as the block and the "
        "dtype say.\n        const bool of_format = device != at::kMeta && "
        "c10::formats::is_format_type(inferred_scalar_type);\n"
        "        if (of_format) opts = opts.dtype(at::kDouble);\n",
        "`torch.tensor([1.5], dtype=torch.posit16es2)` first stores float64 numbers.",
        SOURCES,
    ),
    Edit(
        "torch/csrc/utils/tensor_new.cpp",
        "              inferred_scalar_type,\n"
        "              tensor.dtype().itemsize(),\n"
        "              data);\n"
        "        }\n",
        "instead",
        "              at::typeMetaToScalarType(tensor.dtype()),\n"
        "              tensor.dtype().itemsize(),\n"
        "              data);\n"
        "        }\n        if (of_format) tensor = at::formats::of_numbers(tensor, "
        "inferred_scalar_type);\n",
        "It then rounds them all at once.",
        SOURCES,
    ),
    Edit(
        "torch/csrc/utils/tensor_new.cpp",
        "Tensor legacy_tensor_new(\n"
        "    c10::DispatchKey dispatch_key,\n"
        "    at::ScalarType scalar_type,\n"
        "    PyObject* args,\n"
        "    PyObject* kwargs) {\n",
        "after",
        _NO_DEVICE.format("  "),
        "`x.new(2, 3)` derives a device from the key of x.",
        SOURCES,
    ),
    Edit(
        "torch/csrc/utils/tensor_new.cpp",
        "    auto new_tensor = new_from_data_copy(\n",
        "before",
        _NO_DEVICE.format("    "),
        "`x.new_tensor(...)` derives a device from the key of x.",
        SOURCES,
    ),
    Edit(
        "torch/csrc/tensor/python_tensor.cpp",
        "static void set_default_storage_type(Backend backend, ScalarType dtype) {",
        "after",
        "\n  if (c10::formats::is_format_type(dtype)) return; // no class of typed storages is "
        "named after it",
        "`torch.set_default_dtype(torch.posit16es2)`.",
        SOURCES,
    ),
    Edit(
        "torch/csrc/StorageMethods.cpp",
        "scalar_type = dtype->scalar_type;",
        "after",
        "\n  if (c10::formats::is_format_type(scalar_type)) { // its bytes are those of its "
        "codes\n    const auto size = c10::elementSize(scalar_type);\n"
        "    scalar_type = size == 1 ? at::kByte : size == 2 ? at::kShort : size == 4 ? at::kInt "
        ": at::kLong;\n"
        "  }",
        "`torch.UntypedStorage.from_buffer` swaps bytes by a table of dtypes.",
        SOURCES,
    ),
    Edit(
        f"{_SCRIPTS}.h",
        "#include <torch/csrc/jit/runtime/graph_executor_impl.h>\n",
        "after",
        "#include <torch/csrc/formats/intree/ScriptCheck.h>\n",
        "Includes the check of the next rows.",
        SOURCES,
    ),
    Edit(
        f"{_SCRIPTS}.h",
        "  std::optional<ExecutionPlan> fallback_plan_;\n",
        "after",
        "  torch::formats::ScriptCheck format_check_;\n",
        "Holds the check of the next row.",
        SOURCES,
    ),
    Edit(
        f"{_SCRIPTS}.cpp",
        "calling a torchscript function. Try not to\n  // add any code above this.\n",
        "after",
        "  format_check_.expect_stock(graph, stack);\n",
        "The executor would take derivatives by formulas that round after every step, separate "
        "products from sums and fuse loops. A call that works on formats raises.",
        SOURCES,
    ),
    Edit(
        "torch/csrc/jit/serialization/pickler.cpp",
        "  std::string data_type =\n      std::string(toString(tensor.scalar_type()))",
        "before",
        "  TORCH_CHECK_NOT_IMPLEMENTED(\n"
        "      !c10::formats::run_time_itemsize(tensor.scalar_type()),\n"
        '      "expected a script with tensors of stock types and built-in formats to save, but '
        'got one with tensors of torch.",\n'
        "      toString(tensor.scalar_type()),\n"
        '      ", which is made at run time. Use torch.save(model.state_dict(), ...).");\n',
        "A script with a format made at run time would be written, but no process could read it.",
        SOURCES,
    ),
)
