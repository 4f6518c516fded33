"""The edited places of `c10/`: the types, and questions about a type."""

from __future__ import annotations

from .edit import SOURCES, Edit

_LISTS = "{lists}"
_TYPEID = "c10/util/typeid.h"
_TYPES = "c10/core/ScalarType.h"

C10_EDITS = (
    # --- the list of types ---
    Edit(
        _LISTS,
        "#include <cstdint>",
        "after",
        "\n#include <c10/formats/intree/ScalarTypes.h>",
        "The elements' C++ types and the rows, which the list names. It also specialises "
        "`OpMathType`, `AccumulateTypeDevice`, `_isnan`, `numeric_limits` and `c10::convert` for "
        "elements, so that their headers need no edit.",
    ),
    Edit(
        _LISTS,
        "{last}",
        "after",
        " \\\n  AT_FORALL_FORMAT_SCALAR_TYPES(_)",
        "The list that makes the enumerators, in an order on which files rely: formats come last. "
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
        "Formats made at run time have no enumerator: this gives their names in error texts.",
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
        "Autograd, promotion and factories call `isFloatingType`. Last, so that stock types are "
        "tested first.",
    ),
    Edit(
        _TYPES,
        "    case ScalarType::Int1:",
        "before",
        "#define CASE_FORMAT(_, name) case ScalarType::name:\n"
        "      AT_FORALL_FORMAT_SCALAR_TYPES(CASE_FORMAT)\n"
        "#undef CASE_FORMAT\n",
        "`isSignedType`, a switch that compilers check for completeness: `torch.dtype.is_signed`.",
    ),
    Edit(
        _TYPES,
        '  TORCH_CHECK(false, "Unknown ScalarType ", t);',
        "before",
        "  if (formats::is_format_type(t)) return formats::is_signed_format(t);\n",
        "`isSignedType` of formats made at run time: fixed point may be unsigned.",
    ),
    Edit(
        "c10/core/ScalarType.cpp",
        "  if (isFloat8Type(a) || isFloat8Type(b)) {",
        "before",
        "  if (formats::is_format_type(a) || formats::is_format_type(b)) {\n"
        "    return formats::promote_types(a, b);\n"
        "  }\n\n",
        "`promoteTypes` ends in a table of the oldest types. The edit follows the answers for "
        "undefined, equal, quantised and bits types.",
        SOURCES,
    ),
    Edit(
        "c10/core/ScalarType.cpp",
        "getDtypeNames(c10::ScalarType scalarType) {",
        "after",
        "\n  if (formats::is_format_type(scalarType)) {\n"
        '    return {formats::dtype_name(scalarType), ""};\n'
        "  }",
        "The names of the dtypes in `torch`, and their repr.",
        SOURCES,
    ),
    # --- TypeMeta ---
    Edit(
        _TYPEID,
        "return index_ < NumScalarTypes;",
        "instead",
        "return index_ < NumScalarTypes ||\n        c10::formats::is_run_time_number(index_);",
        "A TypeMeta also holds the number of a format made at run time. `NumScalarTypes` itself "
        "must not grow: `DeviceCapability` has a bit for each type in 64 bits.",
    ),
    Edit(
        _TYPEID,
        "if (C10_LIKELY(isScalarType())) {\n      return scalarTypeItemSizes",
        "instead",
        "if (C10_LIKELY(index_ < NumScalarTypes)) {\n      return scalarTypeItemSizes",
        "That table has enumerators only; other types' sizes are beside their names.",
    ),
    Edit(
        _TYPEID,
        "index < NumScalarTypes,",
        "instead",
        "index < c10::formats::kEndOfNumbers,",
        "This is an assertion of debug builds.",
    ),
    Edit(
        _TYPEID,
        "(NumScalarTypes + 15 /*",
        "instead",
        "(c10::formats::kEndOfNumbers + 15 /*",
        "Mobile builds count the types that are no ScalarType; they follow the numbers of formats.",
    ),
    Edit(
        _TYPEID,
        "static uint16_t existingMetaDataIndexForType(TypeIdentifier identifier);\n\n public:",
        "after",
        "\n  // The entry of a number format made at run time; its name must live as long as the "
        "process.\n  static void addFormat(ScalarType type, size_t itemsize, const char* name);",
        "The registry of formats announces a format made at run time by this function.",
    ),
    Edit(
        "c10/util/typeid.cpp",
        "TypeMeta::nextTypeIndex(NumScalarTypes);",
        "instead",
        "TypeMeta::nextTypeIndex(c10::formats::kEndOfNumbers);",
        "Types that are no ScalarType (strings, pointers) get indices after the formats' numbers.",
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
        "Defines that function.",
        SOURCES,
    ),
    # --- where a tensor goes, and numbers ---
    Edit(
        "c10/core/TensorOptions.h",
        "const auto dtype_ = dtype_or_default(dtype);",
        "after",
        "\n      if (formats::is_format_type(dtype_)) return DispatchKey::PrivateUse2;",
        "`computeDispatchKey`: factories with a format dtype run the formats' kernels, as those of "
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
        "A Backend names a device, and PrivateUse2 has none: the tensor's device decides. "
        "`flatten_dense_tensors` groups by it.",
    ),
    Edit(
        "c10/core/Scalar.h",
        "AT_FORALL_COMPLEX_TYPES(DEFINE_IMPLICIT_CTOR)",
        "after",
        "\n  AT_FORALL_FORMAT_SCALAR_TYPES(DEFINE_IMPLICIT_CTOR)",
        "An element becomes a Scalar with its exact value.",
    ),
    Edit(
        "c10/util/typeid.cpp",
        "      c10::util::get_fully_qualified_type_name<T>()),\n",
        "instead",
        "      c10::formats::is_format_type(c10::ScalarType::name) \\\n"
        "          ? c10::c10_string_view(#name)                   \\\n"
        "          : c10::util::get_fully_qualified_type_name<T>()),\n",
        "Names an element's type in error texts.",
        SOURCES,
    ),
)
