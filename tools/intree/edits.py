"""Every place of PyTorch that is edited, one row each, with its reason. docs/in-tree.md's table is
made from here."""

from __future__ import annotations

from .edit import SINCE_2_14, SOURCES, Edit
from .python_edits import PYTHON_EDITS
from .releases import Tree

_LISTS = "{lists}"
_TYPEID = "c10/util/typeid.h"
_TYPES = "c10/core/ScalarType.h"
_SCRIPTS = "torch/csrc/jit/runtime/profiling_graph_executor_impl"
_REDUCTIONS = "aten/src/ATen/native/ReduceOps.cpp"

# Words that several edits put: a key that names a device in the place of theirs.
_NO_DEVICE = (
    "{0}// A number format's key names no device.\n"
    "{0}if (c10::formats::is_format_type(scalar_type)) dispatch_key = c10::DispatchKey::CPU;\n"
)


def _structured(name: str, arguments: str) -> str:
    """How a structured kernel of a reduction begins, in PyTorch's way of breaking lines."""
    listed = "".join(f" {argument},\n" for argument in arguments.split(", "))
    return f"TORCH_IMPL_FUNC({name})\n(const Tensor& self,\n{listed} const Tensor& result) {{"


EDITS = (
    # --- the list of types ---
    Edit(
        _LISTS,
        "#include <cstdint>",
        "after",
        "\n#include <c10/formats/intree/ScalarTypes.h>",
        "The elements' C++ types and the rows, which the list names. It brings `OpMathType`, "
        "`AccumulateTypeDevice`, `_isnan`, `numeric_limits` and `c10::convert` of elements along "
        "as specialisations, so that their headers need no edit.",
    ),
    Edit(
        _LISTS,
        "{last}",
        "after",
        " \\\n  AT_FORALL_FORMAT_SCALAR_TYPES(_)",
        "The list that makes the enumerators, in an order that files rely on: ours come last. "
        "`at::kPosit16es2`, `CppTypeToScalarType`, `toString`, `elementSize`, `TypeMeta`, "
        "`THPDtype` and `torch.posit16es2` expand from it.",
    ),
    Edit(
        _LISTS,
        "#define AT_FORALL_SCALAR_TYPES_WITH_COMPLEX(_) \\",
        "after",
        "\n  AT_FORALL_FORMAT_SCALAR_TYPES(_) \\",
        "The list that makes accessors: `Scalar::toPosit16es2`, `Tensor::item` and `data_ptr` of "
        "an element, `toOpMathType`.",
    ),
    Edit(
        _LISTS,
        'return "UNKNOWN_SCALAR";',
        "instead",
        'return c10::formats::name_or(t, "UNKNOWN_SCALAR");',
        "Formats made at run time have no enumerator: their names in error texts.",
    ),
    # --- questions about a type ---
    Edit(
        _TYPES,
        "(CASE_ELEMENTSIZE_CASE)\n    default:",
        "after",
        "\n      if (const auto size = formats::run_time_itemsize(t)) return size;",
        "`elementSize` of a format made at run time.",
    ),
    Edit(
        _TYPES,
        "isReducedFloatingType(t);",
        "instead",
        "isReducedFloatingType(t) ||\n      formats::is_format_type(t);",
        "Autograd, promotion and factories ask `isFloatingType`. Last, so that stock types are "
        "found first.",
    ),
    Edit(
        _TYPES,
        "    case ScalarType::Int1:",
        "before",
        "#define CASE_FORMAT(_, name) case ScalarType::name:\n"
        "      AT_FORALL_FORMAT_SCALAR_TYPES(CASE_FORMAT)\n"
        "#undef CASE_FORMAT\n",
        "`isSignedType`, a switch that compilers hold complete: `torch.dtype.is_signed`.",
    ),
    Edit(
        _TYPES,
        '  TORCH_CHECK(false, "Unknown ScalarType ", t);',
        "before",
        "  if (formats::is_format_type(t)) return formats::is_signed_format(t);\n",
        "The same of formats made at run time: fixed point may be unsigned.",
    ),
    Edit(
        "c10/core/ScalarType.cpp",
        "  if (isFloat8Type(a) || isFloat8Type(b)) {",
        "before",
        "  if (formats::is_format_type(a) || formats::is_format_type(b)) {\n"
        "    return formats::promote_types(a, b);\n"
        "  }\n\n",
        "`promoteTypes` ends in a table of the oldest types. After the answers for undefined, "
        "equal, quantised and bits types.",
        SOURCES,
    ),
    Edit(
        "c10/core/ScalarType.cpp",
        "getDtypeNames(c10::ScalarType scalarType) {",
        "after",
        "\n  if (formats::is_format_type(scalarType)) {\n"
        '    return {formats::dtype_name(scalarType), ""};\n'
        "  }",
        "The names under which `torch` has the dtypes, and their repr.",
        SOURCES,
    ),
    # --- TypeMeta ---
    Edit(
        _TYPEID,
        "return index_ < NumScalarTypes;",
        "instead",
        "return index_ < NumScalarTypes ||\n        c10::formats::is_run_time_number(index_);",
        "A TypeMeta holds the number of a format made at run time, too. `NumScalarTypes` itself "
        "must not grow: `DeviceCapability` has a bit for each type in 64 bits.",
    ),
    Edit(
        _TYPEID,
        "if (C10_LIKELY(isScalarType())) {\n      return scalarTypeItemSizes",
        "instead",
        "if (C10_LIKELY(index_ < NumScalarTypes)) {\n      return scalarTypeItemSizes",
        "That table is of enumerators; the other types' sizes are beside their names.",
    ),
    Edit(
        _TYPEID,
        "index < NumScalarTypes,",
        "instead",
        "index < c10::formats::kEndOfNumbers,",
        "An assertion of debug builds.",
    ),
    Edit(
        _TYPEID,
        "(NumScalarTypes + 15 /*",
        "instead",
        "(c10::formats::kEndOfNumbers + 15 /*",
        "Mobile builds count the types that are no ScalarType; they come behind our numbers.",
    ),
    Edit(
        _TYPEID,
        "static uint16_t existingMetaDataIndexForType(TypeIdentifier identifier);\n\n public:",
        "after",
        "\n  // The entry of a number format made at run time; its name must live as long as the "
        "process.\n  static void addFormat(ScalarType type, size_t itemsize, const char* name);",
        "The registry of formats announces one that is made at run time.",
    ),
    Edit(
        "c10/util/typeid.cpp",
        "TypeMeta::nextTypeIndex(NumScalarTypes);",
        "instead",
        "TypeMeta::nextTypeIndex(c10::formats::kEndOfNumbers);",
        "Types that are no ScalarType (strings, pointers) get indices behind our numbers.",
        SOURCES,
    ),
    Edit(
        "c10/util/typeid.cpp",
        "uint16_t TypeMeta::existingMetaDataIndexForType(",
        "before",
        "void TypeMeta::addFormat(ScalarType type, size_t itemsize, const char* name) {\n"
        "  // No functions: its elements are plain bytes. No identifier: no C++ type is one of "
        "its elements.\n"
        "  const std::lock_guard<std::mutex> lock(getTypeMetaDatasLock());\n"
        "  typeMetaDatas()[static_cast<uint16_t>(type)] = detail::TypeMetaData(\n"
        "      itemsize, nullptr, nullptr, nullptr, nullptr, nullptr, "
        "TypeIdentifier::uninitialized(), name);\n"
        "}\n\n",
        "What that declares.",
        SOURCES,
    ),
    # --- where a tensor goes, and numbers ---
    Edit(
        "c10/core/TensorOptions.h",
        "const auto dtype_ = dtype_or_default(dtype);",
        "after",
        "\n      if (formats::is_format_type(dtype_)) return DispatchKey::PrivateUse2;",
        "`computeDispatchKey`: factories with one of our dtypes run our kernels, as those of "
        "quantised types run theirs.",
    ),
    Edit(
        "c10/core/TensorOptions.h",
        "return at::dispatchKeyToBackend(computeDispatchKey());",
        "instead",
        "const bool format = formats::is_format_type(typeMetaToScalarType(dtype()));\n"
        "    return at::dispatchKeyToBackend(\n"
        "        format ? dtype(ScalarType::Byte).computeDispatchKey()\n"
        "               : computeDispatchKey());",
        "A Backend names a device, and PrivateUse2 has none: that of the tensor's device. "
        "`flatten_dense_tensors` groups by it.",
    ),
    Edit(
        "c10/core/Scalar.h",
        "AT_FORALL_COMPLEX_TYPES(DEFINE_IMPLICIT_CTOR)",
        "after",
        "\n  AT_FORALL_FORMAT_SCALAR_TYPES(DEFINE_IMPLICIT_CTOR)",
        "An element becomes a Scalar, by its exact value.",
    ),
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
        "How it is rounded now, and what an infinity is in a format that has none, are the "
        "caller's choice.",
        SOURCES,
    ),
    Edit(
        "torch/csrc/utils/python_scalars.h",
        "inline PyObject* load_scalar(const void* data, at::ScalarType scalarType) {",
        "after",
        "\n  if (c10::formats::is_format_type(scalarType)) {\n"
        "    return PyFloat_FromDouble(c10::formats::load_element(data, scalarType));\n  }",
        "`tolist` and `item` read them.",
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
        "`torch.finfo`, of formats made at run time too.",
        SOURCES,
    ),
    # --- tables that end at NumOptions ---
    Edit(
        "torch/csrc/DynamicTypes.cpp",
        "std::array<THPDtype*, static_cast<int>(at::ScalarType::NumOptions)>",
        "instead",
        "std::array<THPDtype*, c10::formats::kEndOfNumbers>",
        "The dtype objects by number: formats made at run time have one.",
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
        "Which is made when it is first asked for.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/core/DeprecatedTypePropertiesRegistry.h",
        "[static_cast<int>(ScalarType::NumOptions)];",
        "instead",
        "[c10::formats::kEndOfNumbers];",
        "`Tensor::type()` looks a number up here.",
    ),
    Edit(
        "aten/src/ATen/core/DeprecatedTypePropertiesRegistry.cpp",
        "static_cast<int>(ScalarType::NumOptions)",
        "instead",
        "static_cast<int>(c10::formats::kEndOfNumbers)",
        "And makes an entry for each number.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/core/DeprecatedTypeProperties.h",
        "static_cast<int64_t>(ScalarType::NumOptions) +",
        "instead",
        "static_cast<int64_t>(c10::formats::kEndOfNumbers) +",
        "Two numbers joined into one must not collide.",
    ),
    Edit(
        "torch/csrc/utils/tensor_flatten.h",
        "static_cast<size_t>(at::ScalarType::NumOptions) +",
        "instead",
        "static_cast<size_t>(c10::formats::kEndOfNumbers) +",
        "The same, where tensors are put in groups of one dtype.",
    ),
    Edit(
        "aten/src/ATen/Dispatch_v2.h",
        "ScalarType::NumOptions) < 60",
        "instead",
        "ScalarType::NumOptions) <= 60",
        "The macros take 60 types; with ours there are 59 and `Undefined`, which none is given.",
        SINCE_2_14,
    ),
    Edit(
        "torch/headeronly/core/Dispatch_v2.h",
        "ScalarType::NumOptions) < 60",
        "instead",
        "ScalarType::NumOptions) <= 60",
        "The same.",
        SINCE_2_14,
    ),
    Edit(
        "torch/headeronly/core/Dispatch_v2.h",
        "#define AT_ALL_SCALAR_TYPES_WITH_COMPLEX ",
        "after",
        " AT_FORMAT_SCALAR_TYPES, ",
        "A second list for the accessors, which these releases have beside the one above.",
        SINCE_2_14,
    ),
    # --- what other code must be told ---
    Edit(
        "aten/src/ATen/DLConvertor.cpp",
        "dtype.bits = t.element_size() * 8;",
        "after",
        '\n  TORCH_CHECK(!c10::formats::is_format_type(t.scalar_type()), "expected a dtype that '
        'DLPack has a type for, but got ",\n'
        '      toString(t.scalar_type()), "; share the codes, an integer tensor, instead");',
        "A switch without a default, which would leave the type code unset.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/DLConvertor.cpp",
        "    case ScalarType::NumOptions:",
        "before",
        "#define CASE_FORMAT(_, name) case ScalarType::name:\n"
        "      AT_FORALL_FORMAT_SCALAR_TYPES(CASE_FORMAT)\n"
        "#undef CASE_FORMAT\n"
        "      break;\n",
        "Compilers hold that switch complete.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/ScalarOps.cpp",
        "namespace at {\nnamespace {\ntemplate <typename scalar_t>",
        "before",
        "namespace at::formats {\n"
        "// native/formats/intree/Factories.cpp\n"
        "at::Tensor number_of_format(const c10::Scalar& value, c10::ScalarType type);\n"
        "} // namespace at::formats\n\n",
        "`x[i] = 1.5` makes a tensor of the number's, past the dispatcher.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/ScalarOps.cpp",
        "std::optional<ScalarType> dtype_opt, std::optional<Device> device_opt) {",
        "after",
        "\n  if (dtype_opt && c10::formats::is_format_type(*dtype_opt)) return "
        "at::formats::number_of_format(s, *dtype_opt);",
        "And here it makes one of ours.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/native/TensorFactories.cpp",
        "  if (options.device() == at::kCPU) {\n"
        "    // This is a fast track to skip device dispatch",
        "instead",
        "  if (options.device() == at::kCPU && "
        "!c10::formats::is_format_type(c10::typeMetaToScalarType(options.dtype()))) {\n"
        "    // This is a fast track to skip device dispatch",
        "`torch.scalar_tensor` makes a CPU tensor past the dispatcher; ours go on to `empty`.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/core/dispatch/Dispatcher.h",
        "    return operatorDef_->op.hasComputedKernelForDispatchKey(k);\n  }\n",
        "after",
        "\n  // The kernel that a call with this key alone would run.\n"
        "  const KernelFunction& computedKernel(DispatchKey k) const {\n"
        "    return operatorDef_->op.lookup(DispatchKeySet(k));\n"
        "  }\n",
        "Kernels of ours in front of stock's go on to those (`StockKernel.h`); newer releases "
        "give them out themselves.",
        ("2.6",),
    ),
    Edit(
        "aten/src/ATen/cpu/Utils.cpp",
        "namespace at::cpu {\nbool is_avx2_supported() {",
        "before",
        "// An older cpuinfo lacks the newest questions; where it has one, its own function is "
        "the better match.\n"
        "template <typename... None>\n"
        "bool cpuinfo_has_x86_amx_tile(None...) { return false; }\n"
        "template <typename... None>\n"
        "bool cpuinfo_has_x86_amx_fp16(None...) { return false; }\n\n",
        "Debian 12's cpuinfo cannot be asked for AMX; nothing of ours is in this edit.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/autocast_mode.h",
        "    if (next == at::kDouble) {\n",
        "instead",
        "    if (next == at::kDouble || (c10::formats::is_format_type(next) && next != "
        "lower_precision_fp)) {\n",
        "`cat` and `stack` under an autocast of another dtype: theirs say nothing of the widest "
        "one.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/autocast_mode.cpp",
        "Tensor cached_cast(at::ScalarType to_type, const Tensor& arg, DeviceType device_type) {",
        "after",
        "\n  // A block with a number format casts what float32 has, one with a stock dtype no "
        "number format.\n"
        "  if (c10::formats::is_format_type(arg.scalar_type()) &&\n"
        "      !(c10::formats::is_format_type(get_autocast_dtype(device_type)) && "
        "at::formats::compute_type(arg.scalar_type()) == at::kFloat)) {\n"
        "    return arg;\n"
        "  }",
        "Autocast with a dtype of ours leaves those wider than float32 alone, as it does "
        "float64, and autocast with a stock dtype all.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/autocast_mode.cpp",
        "return std::get<1>(it->second);",
        "before",
        "// Of blocks with several dtypes, one within another, it keeps the last one's cast.\n"
        "        if (std::get<1>(it->second).scalar_type() != to_type) std::get<1>(it->second) = "
        "arg.to(to_type);\n"
        "        ",
        "The cache knows one cast of a tensor, whatever its dtype: a block would get that of the "
        "block around it.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/autocast_mode.cpp",
        "namespace at::autocast {\n",
        "before",
        "namespace at::formats {\n"
        "c10::ScalarType compute_type(c10::ScalarType type); // "
        "native/formats/intree/Factories.cpp\n"
        "}\n\n",
        "float32 where it has all values of the format, else float64.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/AccumulateType.cpp",
        "    default: TORCH_INTERNAL_ASSERT(false,",
        "before",
        "    default:\n"
        "      if (c10::formats::is_format_type(type)) return at::formats::compute_type(type);\n"
        "      break;\n"
        "  }\n  switch (type) {\n",
        "Batch normalisation asks it within `torch.func`.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/AccumulateType.cpp",
        "namespace at {\n",
        "before",
        "namespace at::formats {\n"
        "c10::ScalarType compute_type(c10::ScalarType type); // "
        "native/formats/intree/Factories.cpp\n"
        "}\n\n",
        "The same.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/functorch/BatchedTensorImpl.h",
        "constexpr DispatchKeySet kKeysToPropagateToWrapper({\n  DispatchKey::Negative,\n",
        "after",
        "  DispatchKey::HPU,\n",
        "Wrappers of `torch.func` inherit few backends; this one, which newer releases pass on, "
        "stands for that of a number format.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/native/LinearAlgebraUtils.h",
        "inline double _get_epsilon(const ScalarType& sc_type) {",
        "after",
        "\n  if (c10::formats::is_format_type(sc_type)) return c10::formats::finfo(sc_type, "
        '"epsilon");',
        "Tolerances within `torch.func`.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/native/TypeProperties.cpp",
        "namespace at::native {\n",
        "before",
        "namespace at::formats {\n"
        "c10::ScalarType compute_type(c10::ScalarType type); // "
        "native/formats/intree/Factories.cpp\n"
        "}\n\n",
        "The same.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/native/TypeProperties.cpp",
        "      return toComplexType(higher);",
        "instead",
        "      return toComplexType(c10::formats::is_format_type(higher) ? "
        "at::formats::compute_type(higher) : higher);",
        "`torch.result_type(x, 1j)`: complex64, or complex128 where float32 does not hold the "
        "format.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/EmptyTensor.cpp",
        "TensorBase empty_cpu(IntArrayRef size, ScalarType dtype, bool pin_memory,\n",
        "before",
        "} // namespace at::detail\n\n"
        "namespace at::formats {\n"
        "// native/formats/intree/Factories.cpp\n"
        "TensorBase result_of_format(IntArrayRef size, ScalarType type, "
        "std::optional<c10::MemoryFormat> memory_format);\n"
        "TensorBase result_of_format(IntArrayRef size, IntArrayRef stride, ScalarType type);\n"
        "} // namespace at::formats\n\n"
        "namespace at::detail {\n",
        "Results that stock's kernels make past the dispatcher,",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/EmptyTensor.cpp",
        "                     std::optional<c10::MemoryFormat> memory_format_opt) {\n"
        "  auto allocator = GetCPUAllocatorMaybePinned(pin_memory);\n",
        "instead",
        "                     std::optional<c10::MemoryFormat> memory_format_opt) {\n"
        "  if (c10::formats::is_format_type(dtype)) return at::formats::result_of_format(size, "
        "dtype, memory_format_opt);\n"
        "  auto allocator = GetCPUAllocatorMaybePinned(pin_memory);\n",
        "of a number format",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/EmptyTensor.cpp",
        "                             ScalarType dtype, bool pin_memory) {\n"
        "  auto allocator = at::detail::GetCPUAllocatorMaybePinned(pin_memory);\n"
        "  constexpr c10::DispatchKeySet cpu_ks",
        "instead",
        "                             ScalarType dtype, bool pin_memory) {\n"
        "  if (c10::formats::is_format_type(dtype)) return at::formats::result_of_format(size, "
        "stride, dtype);\n"
        "  auto allocator = at::detail::GetCPUAllocatorMaybePinned(pin_memory);\n"
        "  constexpr c10::DispatchKeySet cpu_ks",
        "have its dispatch keys.",
        SOURCES,
    ),
    *(
        Edit(
            _REDUCTIONS,
            _structured(name, arguments),
            "after",
            "\n  if (c10::formats::is_format_type(result.scalar_type())) {\n"
            f"    at::{name}(const_cast<Tensor&>(result), self.to(result.scalar_type()), "
            f"{passed});\n    return;\n"
            f"  }}\n",
            f"`x.{name[:-4]}(dtype=torch.posit16es2)` of a stock tensor: it is cast first, as the "
            "documentation says.",
            SOURCES,
        )
        for name, arguments, passed in (
            (
                "sum_out",
                "OptionalIntArrayRef opt_dim, bool keepdim, std::optional<ScalarType> opt_dtype",
                "opt_dim, keepdim",
            ),
            (
                "mean_out",
                "OptionalIntArrayRef opt_dim, bool keepdim, std::optional<ScalarType> opt_dtype",
                "opt_dim, keepdim",
            ),
            (
                "prod_out",
                "int64_t dim, bool keepdim, std::optional<ScalarType> dtype",
                "dim, keepdim",
            ),
            ("cumsum_out", "int64_t dim, std::optional<ScalarType> dtype", "dim"),
            ("cumprod_out", "int64_t dim, std::optional<ScalarType> dtype", "dim"),
        )
    ),
    Edit(
        _REDUCTIONS,
        "  auto dtype = get_dtype_from_self(self, opt_dtype, true);\n"
        "  auto shape = meta::get_reduction_shape(self, {}, false);\n",
        "before",
        "  if (opt_dtype && c10::formats::is_format_type(*opt_dtype)) return "
        "at::prod(self.to(*opt_dtype));\n",
        "`prod` of all elements.",
        SOURCES,
    ),
    Edit(
        _REDUCTIONS,
        "  // For integral types, use existing sum as\n",
        "before",
        "  if (c10::formats::is_format_type(result.scalar_type()))\n"
        "    return at::nansum_out(result, self.to(result.scalar_type()), dim, keepdim);\n\n",
        "`nansum`, and `nanmean`, which is made of it.",
        SOURCES,
    ),
    Edit(
        "torch/csrc/Dtype.cpp",
        "    scalar_type = at::toComplexType(self->scalar_type);",
        "before",
        '    TORCH_CHECK_TYPE(!c10::formats::is_format_type(scalar_type), "expected a dtype with '
        'a complex counterpart, but got torch.",\n'
        '        c10::formats::dtype_name(scalar_type), "; its numbers times a complex one are '
        'complex64 or complex128");\n',
        "`dtype.to_complex()`, whose switch knows stock types.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/native/TensorFactories.cpp",
        "  auto result = at::empty_like(self, options, optional_memory_format);\n"
        "  return result.uniform_(0, 1, std::nullopt);",
        "instead",
        "  auto result = at::empty_like(self, options, optional_memory_format);\n"
        "  if (c10::formats::is_format_type(result.scalar_type())) return "
        "at::formats::draw_below_one(result);\n"
        "  return result.uniform_(0, 1, std::nullopt);",
        "`torch.rand_like(x, dtype=torch.posit16es2)`: rounded toward zero, so that 1 never comes.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/native/TensorFactories.cpp",
        "namespace at::native {\n",
        "before",
        "namespace at::formats {\n"
        "at::Tensor draw_below_one(const at::Tensor& result); // "
        "native/formats/intree/ComputedFactories.cpp\n"
        "}\n\n",
        "It.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/core/Tensor.cpp",
        "    auto dispatchkey = options().computeDispatchKey();",
        "before",
        '    if (c10::formats::is_format_type(scalar_type())) return std::string("torch.") + '
        "c10::formats::dtype_name(scalar_type());\n",
        "The type of a tensor in error texts; its key's name says nothing.",
        SOURCES,
    ),
    Edit(
        "torch/csrc/utils/tensor_types.cpp",
        "std::string options_to_string(const at::TensorOptions& options) {",
        "after",
        "\n  const auto scalar_type = at::typeMetaToScalarType(options.dtype());\n"
        '  if (c10::formats::is_format_type(scalar_type)) return std::string("torch.") + '
        "c10::formats::dtype_name(scalar_type);\n",
        "`x.type()`: classes named after types and devices, as `torch.FloatTensor`, are those of "
        "the oldest types.",
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
        "`torch.tensor([1.5], dtype=torch.posit16es2)`,",
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
        "which stores numbers one by one.",
        SOURCES,
    ),
    Edit(
        "c10/util/typeid.cpp",
        "      c10::util::get_fully_qualified_type_name<T>()),\n",
        "instead",
        "      c10::formats::is_format_type(c10::ScalarType::name) \\\n"
        "          ? c10::c10_string_view(#name)                   \\\n"
        "          : c10::util::get_fully_qualified_type_name<T>()),\n",
        "The name of an element's type in error texts.",
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
        "`x.new(2, 3)` asks the key of x for a device.",
        SOURCES,
    ),
    Edit(
        "torch/csrc/utils/tensor_new.cpp",
        "    auto new_tensor = new_from_data_copy(\n",
        "before",
        _NO_DEVICE.format("    "),
        "So does `x.new_tensor(...)`.",
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
        "For the next row.",
        SOURCES,
    ),
    Edit(
        f"{_SCRIPTS}.h",
        "  std::optional<ExecutionPlan> fallback_plan_;\n",
        "after",
        "  torch::formats::ScriptCheck format_check_;\n",
        "For the next row.",
        SOURCES,
    ),
    Edit(
        f"{_SCRIPTS}.cpp",
        "calling a torchscript function. Try not to\n  // add any code above this.\n",
        "after",
        "  format_check_.expect_stock(graph, stack);\n",
        "The executor would take derivatives by formulas that round after every step, split "
        "products from sums and fuse loops. A call that works on formats is an error.",
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
        "A script with a format made at run time was written, and no process could read it.",
        SOURCES,
    ),
    *(
        Edit(
            f"aten/src/ATen/{name}.cpp",
            anchor,
            "after",
            "\n  "
            "TORCH_CHECK_NOT_IMPLEMENTED(!c10::formats::is_format_type(typeMetaToScalarType(data_type)"
            "),\n"
            '      "expected the strided layout for torch.", '
            "c10::formats::dtype_name(typeMetaToScalarType(data_type)),\n"
            f'      ", but got a {kind} tensor. Its values may be of a stock dtype: x.float().");',
            f"There are no {kind} tensors of number formats: no operator on them is ours.",
            SOURCES,
        )
        for name, kind, anchor in (
            ("SparseTensorImpl", "sparse", "    , values_(std::move(values)) {"),
            (
                "SparseCsrTensorImpl",
                "sparse",
                "      values_(std::move(values)),\n      layout_(layout) {",
            ),
            (
                "NestedTensorImpl",
                "nested",
                '      opt_sizes_(std::nullopt) {\n  C10_LOG_API_USAGE_ONCE("torch.NestedTensor");',
            ),
        )
    ),
    *PYTHON_EDITS,
    # --- the build ---
    Edit(
        "c10/CMakeLists.txt",
        "          util/*.cpp\n",
        "after",
        "          formats/*.cpp\n          formats/*/*.cpp\n",
        "Our sources of c10.",
        SOURCES,
    ),
    Edit(
        "c10/CMakeLists.txt",
        "if(NOT BUILD_LIBTORCHLESS)\n  add_library(c10 ",
        "before",
        "# Number formats are written in C++20.\n"
        "file(GLOB C10_FORMAT_SRCS formats/*.cpp formats/*/*.cpp)\n"
        "set_source_files_properties(${C10_FORMAT_SRCS} PROPERTIES COMPILE_OPTIONS "
        '"-std=gnu++20;-fvisibility=default;-ffp-contract=off;-ftrapping-math;-fmath-errno")\n',
        "PyTorch 2.6 is C++17; what other headers of PyTorch include of ours is, too.",
        SOURCES,
    ),
    Edit(
        "cmake/Codegen.cmake",
        '"${PROJECT_SOURCE_DIR}/aten/src/ATen/native/quantized/cpu/kernels/*.cpp")',
        "instead",
        '"${PROJECT_SOURCE_DIR}/aten/src/ATen/native/quantized/cpu/kernels/*.cpp" '
        '"${PROJECT_SOURCE_DIR}/aten/src/ATen/native/formats/cpu/*Kernel.cpp")',
        "Kernels are compiled once per vector unit, and linked in an order in which no inline "
        "function of a newer unit takes an older one's place.",
        SOURCES,
    ),
    Edit(
        "torch/CMakeLists.txt",
        'install(TARGETS torch_python DESTINATION "${TORCH_INSTALL_LIB_DIR}")\n',
        "after",
        "include(${Torch_SOURCE_DIR}/torch/csrc/formats/intree/Bindings.cmake)\n",
        "The extension module of the package `torch_dtypes`.",
        SOURCES,
    ),
    Edit(
        "caffe2/CMakeLists.txt",
        "add_library(torch ${DUMMY_EMPTY_FILE})\n",
        "after",
        "include(${Torch_SOURCE_DIR}/aten/src/ATen/native/formats/intree/Formats.cmake)\n",
        "Our sources of ATen, as C++20 without precompiled headers.",
        SOURCES,
    ),
)


def edits_for(tree: Tree) -> list[tuple[str, Edit]]:
    """The edits of a tree with the files that they go to: of headers alone, where nothing else is
    there."""
    rows = [edit for edit in EDITS if tree.release.name in edit.releases]
    return [
        (path, edit) for edit in rows if tree.place(path := edit.place(tree.release)) is not None
    ]
