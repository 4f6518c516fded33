"""Other libraries and raw memory: NumPy with ml_dtypes, DLPack, buffers, storages, codes, and kinds
of tensors that format tensors cannot be."""

import array
import ctypes
import operator
import sys
from functools import partial

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import BITS, parametrize_dtypes
from torch import nn

import torch_dtypes
from torch_dtypes import _C

every_dtype = parametrize_dtypes(
    "posit16es2 q43 e5m5 posit32es2 tf32 posit8es1 posit12es1 e4m3fn e2m1finite fixed4_3 e11m30"
)
few_dtypes = parametrize_dtypes("posit16es2 q43 e11m30")
VALUES = [1.0, -2.0, 0.5, 3.0, 0.0, -1.5]

# ml_dtypes' types, and the formats that have the same value for every code.
ML_TYPES = {
    "float8_e4m3": "q43",
    "float8_e5m2": "q52",
    "float8_e3m4": "e3m4",
    "float8_e4m3fn": "e4m3fn",
    "float8_e4m3fnuz": "e4m3fnuz",
    "float8_e5m2fnuz": "e5m2fnuz",
    "float8_e4m3b11fnuz": "e4m3fnuz_bias11",
    "float6_e2m3fn": "e2m3finite",
    "float6_e3m2fn": "e3m2finite",
    "float4_e2m1fn": "e2m1finite",
    "bfloat16": "e8m7",
}
every_ml_type = pytest.mark.parametrize(("ml_name", "name"), ML_TYPES.items())
# bfloat16 and e8m7 are the same type, so that an array of it becomes no format tensor by itself.
clear_ml_types = pytest.mark.parametrize(
    ("ml_name", "name"), [pair for pair in ML_TYPES.items() if pair[0] != "bfloat16"]
)


def every_code(ml_name, name):
    """Return all codes of a type as an array of it."""
    bits = torch_dtypes.format_of(name).bits
    return (
        np.arange(2**bits)
        .astype(np.uint8 if bits <= 8 else np.uint16)
        .view(getattr(ml_dtypes, ml_name))
    )


def values_of(values: np.ndarray):
    with np.errstate(invalid="ignore"):  # NumPy warns of signalling NaNs
        values = values.astype(np.float64)
    return np.where(np.isnan(values), np.float64("nan"), values).view(np.int64).tolist()


# NumPy


def test_every_type_of_ml_dtypes_is_looked_at():
    assert set(ML_TYPES) == {n for n in vars(ml_dtypes) if n.startswith(("float", "bfloat"))} - {
        "float8_e8m0fnu"
    }


@every_ml_type
def test_formats_of_ml_dtypes_have_its_value_for_every_code(ml_name, name):
    codes = every_code(ml_name, name)
    dtype = torch_dtypes.dtype(name)
    t = torch_dtypes.from_codes(
        torch.from_numpy(codes.view(np.uint8 if dtype.itemsize == 1 else np.int16)), dtype
    )
    assert values_of(t.double().numpy()) == values_of(codes)
    made = t.numpy()
    assert made.dtype == codes.dtype and made.tobytes() == codes.tobytes()
    for asked, given in ((None, np.float32), (np.float64, np.float64), (codes.dtype, codes.dtype)):
        array = np.asarray(t, dtype=asked)
        assert array.dtype == given and values_of(array) == values_of(codes)


@clear_ml_types
def test_arrays_of_ml_dtypes_become_tensors_on_their_memory(ml_name, name):
    codes = every_code(ml_name, name)
    dtype = torch_dtypes.dtype(name)
    for convert in (
        torch.from_numpy,
        torch.as_tensor,
        torch.asarray,
        lambda a: torch.asarray(a, copy=False),
        partial(torch.as_tensor, dtype=dtype),
    ):
        t = convert(codes)
        assert t.dtype is dtype and _C.is_format_tensor(t) and t.data_ptr() == codes.ctypes.data
        assert values_of(t.double().numpy()) == values_of(codes)
    array = np.array([1.0, -2.0, 0.5, 3.0], dtype=codes.dtype)
    t = torch.from_numpy(array)
    t[0] = 2
    array[1] = 1
    assert t.tolist() == array.astype(float).tolist() == [2.0, 1.0, 0.5, 3.0]
    t.numpy()[2] = 1.5
    assert t.tolist() == array.astype(float).tolist() == [2.0, 1.0, 1.5, 3.0]
    for convert in (
        torch.tensor,
        lambda a: torch.asarray(a, copy=True),
        lambda a: torch.tensor(data=a),
    ):
        t = convert(array)
        assert (
            t.dtype is dtype
            and t.tolist() == [2.0, 1.0, 1.5, 3.0]
            and t.data_ptr() != array.ctypes.data
        )
    assert torch.tensor([array, array]).tolist() == [[2.0, 1.0, 1.5, 3.0]] * 2
    assert torch.tensor(array, requires_grad=True).requires_grad


def test_the_layout_of_an_array_is_kept():
    base = np.arange(24).reshape(2, 3, 4).astype(ml_dtypes.float8_e4m3)
    for part in (
        base,
        base[:, ::2],
        base.T,
        base[1, 1:, 1::2],
        base[:0],
        base[0, 0, 0:1].reshape(()),
    ):
        t = torch.from_numpy(part)
        assert (
            t.shape == part.shape
            and t.stride() == part.strides
            and t.tolist() == part.astype(float).tolist()
        )
        back = t.numpy()
        assert (
            back.dtype == part.dtype
            and back.shape == part.shape
            and np.shares_memory(back, base) == bool(part.size)
        )
        assert back.size == 0 or back.strides == part.strides
    with pytest.raises(ValueError, match="negative"):
        torch.from_numpy(base[..., ::-1])
    base.flags.writeable = False
    with pytest.warns(UserWarning, match="not writable"):
        torch.from_numpy(base)


def test_arrays_of_ml_dtypes_become_what_is_asked():
    array = np.array([1.0, -2.0, 0.5], dtype=ml_dtypes.float8_e5m2)
    for dtype in (torch.posit16es2, torch.q43, torch.float32, torch.int32, torch.q52):
        for convert in (torch.tensor, torch.as_tensor, torch.asarray):
            t = convert(array, dtype=dtype)
            assert (
                t.dtype is dtype and t.tolist() == torch.tensor([1.0, -2.0, 0.5]).to(dtype).tolist()
            )
    sr = torch_dtypes.with_rounding(torch.q52, "stochastic")
    assert torch.as_tensor(array, dtype=sr).data_ptr() == array.ctypes.data
    assert (
        sr is torch.as_tensor(array, dtype=sr).dtype
        and torch.ones(2, dtype=sr).numpy().dtype == array.dtype
    )


def test_bfloat16_is_not_taken_for_a_number_format_in_silence():
    array = np.array([1.0, -2.0, 0.5], dtype=ml_dtypes.bfloat16)
    for convert in (torch.from_numpy, torch.as_tensor, torch.tensor, torch.asarray):
        with pytest.raises(
            TypeError,
            match=r"torch\.bfloat16 and the number format e8m7; choose one.*dtype=torch\.bfloat16",
        ):
            convert(array)
    for dtype in (torch.bfloat16, torch_dtypes.dtype("e8m7")):
        t = torch.as_tensor(array, dtype=dtype)
        assert (
            t.dtype is dtype
            and t.tolist() == [1.0, -2.0, 0.5]
            and t.data_ptr() == array.ctypes.data
        )


def test_numbers_and_lists_of_ml_dtypes():
    array = np.array([1.0, -2.0, 0.5], dtype=ml_dtypes.float8_e4m3)
    for convert in (torch.tensor, torch.as_tensor, torch.asarray):
        number = convert(array[1])
        assert number.dtype is torch.q43 and number.shape == () and number == -2
        listed = convert([[array[0], array[1]], [array[2], array[2]]])
        assert listed.dtype is torch.q43 and listed.tolist() == [[1.0, -2.0], [0.5, 0.5]]
        assert convert([array[0], array[1]], dtype=torch.posit16es2).tolist() == [1.0, -2.0]
    assert torch.tensor([array, array[::-1]]).tolist() == [[1.0, -2.0, 0.5], [0.5, -2.0, 1.0]]
    for data in ([array, [1, 2, 3]], [array[0], 3.0], [array, array[:2]]):
        with pytest.raises(
            (TypeError, ValueError), match=r"can't convert np.ndarray|inhomogeneous"
        ):
            torch.tensor(data)
    with pytest.raises(TypeError, match=r"expected np.ndarray \(got ml_dtypes.float8_e4m3\)"):
        torch.from_numpy(array[0])


def test_types_of_ml_dtypes_without_a_format():
    for name in ("float8_e8m0fnu", "int4", "uint2"):
        with pytest.raises(
            TypeError,
            match="expected an array of a type with a number format of the same codes, but got "
            f"{name}",
        ):
            torch.from_numpy(np.ones(2, dtype=getattr(ml_dtypes, name)))


def test_other_arrays_are_stock_arrays():
    assert torch.from_numpy(np.ones(2, np.float32)).dtype is torch.float32
    for data in (np.array(["a"]), np.ones(2, dtype=[("a", "f4")]), object()):
        with pytest.raises(
            (TypeError, RuntimeError),
            match=r"can't convert np.ndarray of type numpy|expected np.ndarray|Could not infer",
        ):
            torch.tensor(data) if type(data) is object else torch.from_numpy(data)
    with pytest.raises(TypeError, match=r"expected np.ndarray \(got list\)"):
        torch.from_numpy([np.ones(2, ml_dtypes.float8_e4m3)])


@pytest.mark.parametrize("name", ["q43", "posit16es2", "fixed3_4", "e4m3_down"])
def test_functions_of_numpy_round(name):
    x = torch.linspace(0.1, 3, 40).to(torch_dtypes.dtype(name))
    values = np.asarray(x)
    for function in (np.sin, np.exp, np.cbrt, np.log1p, np.reciprocal):
        made, exact = function(x), function(values)
        assert type(made) is np.ndarray and made.dtype == exact.dtype
        assert np.array_equal(made, torch_dtypes.chop(exact, name)) and (made != exact).any()
    assert np.hypot(x, 0.3)[0] == torch_dtypes.chop(np.hypot(values, 0.3), name)[0]
    assert np.array_equal(np.frexp(x)[1], np.frexp(values)[1])  # integers stay


def test_functions_of_numpy_give_arrays():
    t = torch.tensor([1.0, 4.0], dtype=torch.q43)
    # Computed on the array of values, whatever types NumPy has.
    for x in (t, t.to(torch.posit16es2)):
        for made in (np.sqrt(x), np.maximum(np.sqrt(x), x * 0), np.abs(-np.sqrt(x))):
            assert (
                isinstance(made, np.ndarray)
                and made.dtype == np.float32
                and made.tolist() == [1.0, 2.0]
            )
        assert np.sqrt(x[1]) == 2.0 and np.isfinite(x).dtype == bool
    assert torch.utils.data.default_collate([t.numpy(), t.numpy()]).dtype is torch.q43


OPERATORS = {
    "x + a": lambda x, a: x + a,
    "x - a": lambda x, a: x - a,
    "x * a": lambda x, a: x * a,
    "x / a": lambda x, a: x / a,
    "x ** a": lambda x, a: x**a,
    "x // a": lambda x, a: x // a,
    "x % a": lambda x, a: x % a,
    "x @ a": lambda x, a: x @ a,
    "a * x": lambda x, a: a * x,
    "+=": operator.iadd,
    "np.add": lambda x, a: np.add(x, a),
    "np.multiply": lambda x, a: np.multiply(a, x),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_beside_an_array_are_refused_as_bfloat16_s(name):
    """NumPy would return float64, and ``x += array`` would rebind x to another tensor. NumPy's
    scalars count as numbers."""
    for dtype in (torch.bfloat16, torch.q43, torch.posit16es2):
        x = torch.ones(2, dtype=dtype)
        for a in (np.ones(2), np.ones(2, dtype=np.float32), np.arange(1, 3)):
            with pytest.raises(
                TypeError, match=r"expected tensors and numbers beside a tensor of|nsupported"
            ):
                OPERATORS[name](x, a)
        assert (x * np.float64(1.5)).dtype is (np.float32(1.5) * x).dtype is dtype


def test_gradients_and_numpy():
    t = torch.ones(2, dtype=torch.q43, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"Can't call numpy\(\) on Tensor that requires grad"):
        t.numpy()
    assert t.numpy(force=True).dtype == t.detach().numpy().dtype == ml_dtypes.float8_e4m3


# Codes


@every_dtype
def test_codes_share_the_memory_of_their_tensor(dtype):
    t = torch.tensor(VALUES, dtype=dtype)
    codes = torch_dtypes.codes(t)
    assert (
        type(codes) is torch.Tensor
        and codes.dtype is BITS[dtype.itemsize]
        and codes.data_ptr() == t.data_ptr()
    )
    back = torch_dtypes.from_codes(codes, dtype)
    assert back.dtype is dtype and back.data_ptr() == t.data_ptr() and back.tolist() == VALUES
    codes[0] = codes[1]
    back[2] = 3
    assert t.tolist() == [-2.0, -2.0, 3.0, 3.0, 0.0, -1.5]
    for part in (t.view(2, 3).t(), t[::2], t[:0], t[0], nn.Parameter(t)):
        codes = torch_dtypes.codes(part)
        assert (
            codes.shape == part.shape
            and codes.stride() == part.stride()
            and not codes.requires_grad
        )
        assert torch_dtypes.from_codes(codes, str(dtype)).tolist() == part.tolist()
    assert torch_dtypes.from_codes(codes.to("meta"), dtype).dtype is dtype
    bits = torch_dtypes.format_of(dtype).bits
    if bits < 8 * dtype.itemsize:
        with pytest.raises(ValueError, match=f"expected codes of {dtype} from 0 to {2**bits - 1}"):
            torch_dtypes.from_codes(torch.full((2,), -1).to(BITS[dtype.itemsize]), dtype)


def test_what_are_no_codes():
    t = torch.ones(2, dtype=torch.posit16es2)
    for thing in (torch.ones(2), 3, None, np.ones(2)):
        with pytest.raises(TypeError, match="expected a tensor of a number format, but got"):
            torch_dtypes.codes(thing)
    for codes in (
        torch.ones(2),
        torch.ones(2, dtype=torch.bfloat16),
        torch.ones(2, dtype=torch.int32),
        t,
        [1, 2],
        torch.ones(2, dtype=torch.bool),
    ):
        with pytest.raises(
            TypeError,
            match=r"expected codes of torch\.posit16es2 as a tensor of torch\.int16, but got",
        ):
            torch_dtypes.from_codes(codes, torch.posit16es2)
    assert torch_dtypes.from_codes(torch_dtypes.codes(t).view(torch.uint16), t.dtype).tolist() == [
        1.0,
        1.0,
    ]
    with pytest.raises(
        TypeError, match=r"expected a dtype of a number format, but got torch\.float32"
    ):
        torch_dtypes.from_codes(torch.ones(2, dtype=torch.int32), torch.float32)


# DLPack


class ExchangeApi(ctypes.Structure):
    """DLPackExchangeAPI of dlpack.h, whose functions libraries call without Python."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("managed", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)),
        ("to_object", ctypes.c_void_p),
        ("borrowed", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)),
    ]


def exchange_api():
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ExchangeApi.from_address(
        pointer_of(torch.Tensor.__dlpack_c_exchange_api__, b"dlpack_exchange_api")
    )


@every_dtype
def test_no_way_of_dlpack_gives_the_container(dtype):
    t = torch.ones(2, dtype=dtype)
    api, out = exchange_api(), ctypes.create_string_buffer(256)
    ways = [
        lambda: t.__dlpack__(),
        lambda: t.__dlpack__(max_version=(1, 0)),
        lambda: t.__dlpack__(copy=True),
        lambda: torch.from_dlpack(t),
        lambda: torch.utils.dlpack.to_dlpack(t),
        lambda: np.from_dlpack(t),
        lambda: api.managed(t, out),
        lambda: api.borrowed(t, out),
        lambda: api.managed(nn.Parameter(t), out),
    ]
    for way in ways:
        with pytest.raises(
            BufferError,
            match=r"expected a dtype that DLPack has a type for, but got "
            rf"{dtype}.*torch_dtypes\.codes\(x\)",
        ):
            way()
    assert api.borrowed(torch_dtypes.codes(t), out) == api.borrowed(torch.ones(2), out) == 0
    assert torch_dtypes.from_codes(torch.from_dlpack(torch_dtypes.codes(t)), dtype).tolist() == [
        1.0,
        1.0,
    ]


# Buffers and files of codes


@every_dtype
def test_buffers_hold_codes(dtype, tmp_path):
    t = torch.tensor(VALUES, dtype=dtype)
    raw = bytearray(torch_dtypes.codes(t).numpy().tobytes())
    made = torch.frombuffer(raw, dtype=dtype)
    assert made.dtype is dtype and made.tolist() == VALUES
    made[0] = 3
    assert (
        torch.frombuffer(raw, dtype=dtype, count=2, offset=dtype.itemsize * 2).tolist()
        == VALUES[2:4]
    )
    assert (
        torch.frombuffer(raw, dtype=dtype, requires_grad=True).requires_grad
        and torch.frombuffer(raw, dtype=dtype)[0] == 3
    )
    for data in (raw, memoryview(raw), array.array("B", raw)):
        made = torch.asarray(data, dtype=dtype)
        assert made.dtype is dtype and made.tolist() == [3.0, *VALUES[1:]]
        made[0] = 2
        made[0] = 3
    assert torch.asarray(array.array("B", raw), dtype=dtype, copy=True).tolist() == [
        3.0,
        *VALUES[1:],
    ]
    (tmp_path / "codes").write_bytes(raw)
    mapped = torch.from_file(str(tmp_path / "codes"), shared=True, size=6, dtype=dtype)
    assert mapped.dtype is dtype and mapped.tolist() == [3.0, *VALUES[1:]]
    mapped[0] = 1
    assert torch.from_file(str(tmp_path / "codes"), size=6, dtype=dtype).tolist() == VALUES
    storage = torch.UntypedStorage.from_buffer(raw, dtype=dtype, byte_order=sys.byteorder)
    assert torch.empty(0, dtype=dtype).set_(storage).tolist() == [3.0, *VALUES[1:]]
    if dtype.itemsize > 1:
        with pytest.raises(ValueError, match="buffer"):
            torch.frombuffer(raw[:-1], dtype=dtype)


# Storages and elements


@few_dtypes
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_typed_storages_become_tensors(dtype):
    t = torch.tensor(VALUES, dtype=dtype)
    for storage in (t.storage(), torch.TypedStorage(wrap_storage=t.untyped_storage(), dtype=dtype)):
        for convert in (torch.tensor, torch.as_tensor):
            made = convert(storage)
            assert made.dtype is dtype and made.tolist() == VALUES
        assert torch.tensor(storage, dtype=torch.float64).tolist() == VALUES


@few_dtypes
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_untyped_storages_are_codes(dtype):
    t = torch.tensor(VALUES, dtype=dtype)
    for convert in (
        torch.tensor,
        torch.as_tensor,
        torch.asarray,
        torch.ones(1, dtype=dtype).new_tensor,
    ):
        made = convert(t.untyped_storage(), dtype=dtype)
        assert made.dtype is dtype and made.tolist() == VALUES
        with pytest.raises(
            RuntimeError,
            match=f"expected a storage of {dtype} or an untyped one, but got one of torch.float32",
        ):
            convert(torch.ones(2).storage(), dtype=dtype)
    assert torch.as_tensor(t.untyped_storage(), dtype=dtype).data_ptr() == t.data_ptr()


@few_dtypes
@pytest.mark.parametrize(
    "other", [torch.float32, torch.bfloat16, torch.float64, torch.q52], ids=str
)
def test_set_wants_one_dtype(dtype, other):
    mine, theirs = torch.ones(2, dtype=dtype), torch.ones(2, dtype=other)
    for a, b in ((mine, theirs), (theirs, mine)):
        with pytest.raises(
            TypeError,
            match=f"set_: expected two tensors of one dtype, but got {a.dtype} and {b.dtype}",
        ):
            a.set_(b)
    assert torch.empty(0, dtype=dtype).set_(mine).tolist() == [1.0, 1.0] and torch.empty(0).set_(
        torch.ones(2)
    ).tolist() == [1.0, 1.0]


@every_dtype
def test_python_functions_on_elements(dtype):
    t, stock = torch.tensor(VALUES, dtype=dtype), torch.tensor(VALUES)
    for call in (
        lambda: t.apply_(abs),
        lambda: t.map_(t, max),
        lambda: stock.map_(t, max),
        lambda: stock.map2_(stock, t, max),
    ):
        with pytest.raises(
            NotImplementedError,
            match=rf"(apply|map2?)_: expected tensors of a stock dtype, but got {dtype}; use "
            r"x.copy_\(x.double\(\)",
        ):
            call()
    assert t.tolist() == torch.tensor(VALUES, dtype=dtype).tolist()
    assert (
        t.copy_(t.double().apply_(lambda v: v / 2 + 1)).tolist()
        == torch.tensor([v / 2 + 1 for v in VALUES], dtype=dtype).tolist()
    )
    assert torch.ones(2).apply_(lambda v: v + 1).tolist() == [2.0, 2.0]


# Kinds of tensors that format tensors cannot be


def sparse_calls(t, m):
    coo, csr = torch.eye(2).to_sparse(), torch.eye(2).to_sparse_csr()
    return [
        lambda: t.to_sparse(),
        lambda: m.to_sparse_csr(),
        lambda: m.to_mkldnn(),
        lambda: torch.sparse_coo_tensor([[0, 1]], t),
        lambda: coo.to(t.dtype),
        lambda: csr.to(t.dtype),
        lambda: coo * m,
        lambda: m + coo,
        lambda: coo @ m,
        lambda: m.sparse_mask(coo),
        lambda: csr @ m,
        lambda: m.add_(coo),
        lambda: m.copy_(coo),
        lambda: torch.sparse.mm(coo, m),
        lambda: torch.eye(2).to_mkldnn().to(t.dtype),
        lambda: coo.type_as(m),
        lambda: torch.zeros(2, dtype=t.dtype, layout=torch.sparse_coo),
        lambda: torch.zeros_like(t, layout=torch.sparse_coo),
    ]


def nested_calls(t, m):
    nested, jagged = (
        torch.nested.nested_tensor([torch.ones(2)]),
        torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged),
    )
    return [
        lambda: torch.nested.nested_tensor([t, t]),
        lambda: torch.nested.nested_tensor([t], layout=torch.jagged),
        lambda: torch.nested.as_nested_tensor([t]),
        lambda: torch.nested.as_nested_tensor([t], layout=torch.jagged),
        lambda: nested.to(t.dtype),
        lambda: jagged.to(t.dtype),
        lambda: nested * t[0],
        lambda: torch.nested.nested_tensor([[1.0]], dtype=t.dtype),
        lambda: t.to_padded_tensor(0),
        lambda: torch.nested.nested_tensor([torch.ones(2)], dtype=t.dtype, layout=torch.jagged),
        lambda: torch.nested.nested_tensor_from_jagged(t, torch.tensor([0, 2])),
        lambda: nested.type_as(t),
        lambda: jagged.type_as(t),
    ]


def other_calls(t, m):
    quantised = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    return [
        lambda: quantised.to(t.dtype),
        lambda: t.copy_(quantised),
        lambda: t.int_repr(),
        lambda: t.q_scale(),
        lambda: torch.view_as_complex(m),
        lambda: torch.view_as_real(t),
        lambda: torch.quantize_per_tensor(t, 0.1, 0, t.dtype),
        lambda: t.dtype.to_complex(),
        lambda: torch.complex(t, t.to(torch.q52)),
        lambda: quantised + t,
        lambda: t * quantised,
        lambda: t.add_(quantised),
        lambda: torch.where(t > 0, t, quantised),
    ]


def mkldnn_calls(t, m):
    """Kernels of mkldnn have precedence over this package's and would read codes as numbers of the
    storage dtype."""
    matrix, image, weight = (
        torch.eye(2).to_mkldnn(),
        torch.ones(1, 2, 3, 3).to_mkldnn(),
        torch.ones(2, 2, 1, 1, dtype=t.dtype),
    )
    return [
        lambda: F.linear(matrix, m),
        lambda: F.linear(matrix, torch.eye(2), t),
        lambda: F.batch_norm(image, t, t, t, t),
        lambda: F.batch_norm(image, torch.ones(2), torch.ones(2), t, t, training=True),
        lambda: matrix + m,
        lambda: m * matrix,
        lambda: torch.mkldnn_convolution(image, weight, None, [0, 0], [1, 1], [1, 1], 1),
        lambda: m.copy_(matrix),
    ]


@few_dtypes
@pytest.mark.parametrize("calls", [sparse_calls, nested_calls, other_calls, mkldnn_calls])
@pytest.mark.filterwarnings("ignore")
def test_one_clear_error(dtype, calls):
    t, m = torch.ones(2, dtype=dtype), torch.ones(2, 2, dtype=dtype)
    if t.is_cuda and calls is mkldnn_calls:
        pytest.skip("mkldnn is the CPU's")
    for number, call in enumerate(calls(t, m)):
        with pytest.raises((NotImplementedError, TypeError, RuntimeError)) as raised:
            call()
        text = f"call {number}: {raised.value}"
        assert "expected" in text and "but got" in text, text
        for unclear in (
            "TypeMeta",
            "nullptr",
            "report",
            "PrivateUse2",
            "BFloat16",
            "c10::",
            "Internal",
        ):
            assert unclear not in text, text


@pytest.mark.filterwarnings("ignore")
def test_stock_kinds_of_tensors_are_as_ever():
    nested = torch.nested.nested_tensor([torch.ones(2)])
    assert nested.to(torch.float64).dtype is torch.float64 and nested.to(torch.float32) is nested
    jagged = torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged, requires_grad=True)
    assert (
        jagged.to(torch.float64).values().grad_fn is not None
        and jagged.to(torch.float64).dtype is torch.float64
    )
    assert nested.type_as(torch.ones(1, dtype=torch.float64)).dtype is torch.float64
    matrix = torch.eye(2, device="cpu").to_mkldnn()
    assert F.linear(matrix, torch.ones(2, 2, device="cpu")).to_dense().tolist() == [[1.0, 1.0]] * 2
    assert matrix.to_dense(torch.bfloat16).dtype is torch.bfloat16
    assert (torch.eye(2).to_sparse() @ torch.ones(2, 2)).tolist() == [[1.0, 1.0]] * 2
