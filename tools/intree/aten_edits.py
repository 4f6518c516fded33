"""The edited places of ATen and of the headers of types beside it."""

from __future__ import annotations

from .edit import SINCE_2_14, SOURCES, Edit

_REDUCTIONS = "aten/src/ATen/native/ReduceOps.cpp"
_COMPUTE_TYPE = (
    "namespace at::formats {\n"
    "c10::ScalarType compute_type(c10::ScalarType type); // native/formats/intree/Factories.cpp\n"
    "}\n\n"
)


def _begin_kernel(name: str, arguments: str) -> str:
    """Return the beginning of a structured reduction kernel, broken into lines as PyTorch does."""
    lines = "".join(f" {argument},\n" for argument in arguments.split(", "))
    return f"TORCH_IMPL_FUNC({name})\n(const Tensor& self,\n{lines} const Tensor& result) {{"


ATEN_EDITS = (
    Edit(
        "aten/src/ATen/core/DeprecatedTypePropertiesRegistry.h",
        "[static_cast<int>(ScalarType::NumOptions)];",
        "instead",
        "[c10::formats::kEndOfNumbers];",
        "`Tensor::type()` looks up a number here.",
    ),
    Edit(
        "aten/src/ATen/core/DeprecatedTypePropertiesRegistry.cpp",
        "static_cast<int>(ScalarType::NumOptions)",
        "instead",
        "static_cast<int>(c10::formats::kEndOfNumbers)",
        "This makes the entry for each number.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/core/DeprecatedTypeProperties.h",
        "static_cast<int64_t>(ScalarType::NumOptions) +",
        "instead",
        "static_cast<int64_t>(c10::formats::kEndOfNumbers) +",
        "Pairs of numbers joined into one must not collide.",
    ),
    Edit(
        "aten/src/ATen/Dispatch_v2.h",
        "ScalarType::NumOptions) < 60",
        "instead",
        "ScalarType::NumOptions) <= 60",
        "The macros take 60 types. With the formats there are 59 and `Undefined`, which is never "
        "given.",
        SINCE_2_14,
    ),
    Edit(
        "torch/headeronly/core/Dispatch_v2.h",
        "ScalarType::NumOptions) < 60",
        "instead",
        "ScalarType::NumOptions) <= 60",
        "The macros take 60 types, as in ATen's header.",
        SINCE_2_14,
    ),
    Edit(
        "torch/headeronly/core/Dispatch_v2.h",
        "#define AT_ALL_SCALAR_TYPES_WITH_COMPLEX ",
        "after",
        " AT_FORMAT_SCALAR_TYPES, ",
        "These releases have a second list for accessors, beside "
        "`AT_FORALL_SCALAR_TYPES_WITH_COMPLEX`.",
        SINCE_2_14,
    ),
    # --- other code that depends on the type ---
    Edit(
        "aten/src/ATen/DLConvertor.cpp",
        "dtype.bits = t.element_size() * 8;",
        "after",
        '\n  TORCH_CHECK(!c10::formats::is_format_type(t.scalar_type()), "expected a dtype that '
        'DLPack has a type for, but got ",\n'
        '      toString(t.scalar_type()), "; share the codes, an integer tensor, instead");',
        "This switch has no default, and would leave the type code unset.",
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
        "Compilers check that this switch is complete.",
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
        "Declares the function that makes a tensor of a format for `x[i] = 1.5`.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/ScalarOps.cpp",
        "std::optional<ScalarType> dtype_opt, std::optional<Device> device_opt) {",
        "after",
        "\n  if (dtype_opt && c10::formats::is_format_type(*dtype_opt)) return "
        "at::formats::number_of_format(s, *dtype_opt);",
        "`x[i] = 1.5` makes a tensor of the number's dtype without the dispatcher.",
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
        "`torch.scalar_tensor` makes a CPU tensor without the dispatcher; a format goes on to "
        "`empty`.",
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
        "Kernels of formats call the stock kernels behind them (`StockKernel.h`); newer releases "
        "return these themselves.",
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
        "Debian 12's cpuinfo has no function for AMX; the edit does not concern formats.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/autocast_mode.h",
        "    if (next == at::kDouble) {\n",
        "instead",
        "    if (next == at::kDouble || (c10::formats::is_format_type(next) && next != "
        "lower_precision_fp)) {\n",
        "`cat` and `stack` under an autocast of another dtype: a format does not decide the widest "
        "dtype.",
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
        "Autocast with a format leaves formats wider than float32 as they are, like float64. "
        "Autocast with a stock dtype leaves all formats as they are.",
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
        "The cache has one cast of a tensor, of any dtype: a block would get the cast of the block "
        "around it.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/autocast_mode.cpp",
        "namespace at::autocast {\n",
        "before",
        _COMPUTE_TYPE,
        "Declares the compute dtype: float32 if it has all values of the format, else float64.",
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
        "Batch normalisation calls this within `torch.func`.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/AccumulateType.cpp",
        "namespace at {\n",
        "before",
        _COMPUTE_TYPE,
        "Declares the compute dtype: float32 if it has all values of the format, else float64.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/functorch/BatchedTensorImpl.h",
        "constexpr DispatchKeySet kKeysToPropagateToWrapper({\n  DispatchKey::Negative,\n",
        "after",
        "  DispatchKey::HPU,\n",
        "Wrappers of `torch.func` inherit few backend keys. This one, which newer releases "
        "inherit, stands for the key of a number format.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/native/LinearAlgebraUtils.h",
        "inline double _get_epsilon(const ScalarType& sc_type) {",
        "after",
        "\n  if (c10::formats::is_format_type(sc_type)) return c10::formats::finfo(sc_type, "
        '"epsilon");',
        "Gives tolerances within `torch.func`.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/native/TypeProperties.cpp",
        "namespace at::native {\n",
        "before",
        _COMPUTE_TYPE,
        "Declares the compute dtype: float32 if it has all values of the format, else float64.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/native/TypeProperties.cpp",
        "      return toComplexType(higher);",
        "instead",
        "      return toComplexType(c10::formats::is_format_type(higher) ? "
        "at::formats::compute_type(higher) : higher);",
        "`torch.result_type(x, 1j)` is complex64, or complex128 where float32 lacks values of the "
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
        "Declares the function that makes results of a format outside the dispatcher.",
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
        "Stock kernels make results outside the dispatcher; one of a format needs its dispatch "
        "keys.",
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
        "Strided results of a format need its dispatch keys too.",
        SOURCES,
    ),
    *(
        Edit(
            _REDUCTIONS,
            _begin_kernel(name, arguments),
            "after",
            "\n  if (c10::formats::is_format_type(result.scalar_type())) {\n"
            f"    at::{name}(const_cast<Tensor&>(result), self.to(result.scalar_type()), "
            f"{passed});\n    return;\n"
            f"  }}\n",
            f"`x.{name[:-4]}(dtype=torch.posit16es2)` casts a stock tensor first, as documented.",
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
        "`prod` of all elements casts first.",
        SOURCES,
    ),
    Edit(
        _REDUCTIONS,
        "  // For integral types, use existing sum as\n",
        "before",
        "  if (c10::formats::is_format_type(result.scalar_type()))\n"
        "    return at::nansum_out(result, self.to(result.scalar_type()), dim, keepdim);\n\n",
        "`nansum`, and `nanmean`, which uses it, cast first.",
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
        "`torch.rand_like(x, dtype=torch.posit16es2)` rounds toward zero, so that 1 never occurs.",
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
        "Declares that function.",
        SOURCES,
    ),
    Edit(
        "aten/src/ATen/core/Tensor.cpp",
        "    auto dispatchkey = options().computeDispatchKey();",
        "before",
        '    if (c10::formats::is_format_type(scalar_type())) return std::string("torch.") + '
        "c10::formats::dtype_name(scalar_type());\n",
        "Names a tensor's type in error texts by its dtype; its key's name does not.",
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
            f"There are no {kind} tensors of number formats, and no operators for them.",
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
)
