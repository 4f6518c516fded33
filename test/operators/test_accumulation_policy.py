"""The accumulation policy in force: blocks, dtypes, threads, backward passes; invalid policies, and
limits of a policy."""

import threading

import pytest
import torch
import torch.nn.functional as F
from block_sums import FLOAT32, HALF
from sums import dtype_of

from torch_dtypes import Accumulation, accumulate, accumulation_of, matmul, set_accumulation


@pytest.fixture
def own_policy():
    """Set the policies of dtypes, and reset them afterwards."""
    touched = []

    def choose(dtype, *args, **options):
        touched.append(dtype)
        set_accumulation(dtype, *args, **options)

    yield choose
    for dtype in touched:
        set_accumulation(dtype, "machine")


def stops_at_eight():
    """Tell whether e5m2 sums are rounded at every step."""
    return torch.ones(64, dtype=torch.q52).sum().item() == 8


def test_blocks_nest_and_end():
    assert accumulation_of("q52") == Accumulation("machine")
    with accumulate("format", kahan=True, rounding=4, product="tf32", accumulator=torch.e5m5):
        outer = Accumulation("format", None, torch.tf32, torch.e5m5, False, True, "toward_zero")
        assert accumulation_of(torch.q52) == accumulation_of("posit16es2") == outer
        with accumulate("chunked", chunk=7):
            assert accumulation_of(torch.q52) == Accumulation("chunked", 7)
            with accumulate(outer):
                assert accumulation_of(torch.q52) == outer
        assert accumulation_of(torch.q52) == outer
        with pytest.raises(ZeroDivisionError), accumulate("exact"):
            1 / 0  # noqa: B018
        assert accumulation_of(torch.q52) == outer
    assert accumulation_of(torch.q52) == Accumulation("machine") and not stops_at_eight()


def test_decorates_functions():
    @accumulate("format")
    def inside():
        return stops_at_eight()

    assert inside() and inside() and not stops_at_eight()


def in_a_thread(call):
    results = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join()
    return results[0]


def test_blocks_are_their_thread_s_and_dtypes_everyone_s(own_policy):
    with accumulate("format"):
        assert stops_at_eight() and not in_a_thread(stops_at_eight)
    own_policy(torch.q52, "format")
    assert stops_at_eight() and in_a_thread(stops_at_eight)
    assert accumulation_of(torch.q52) == Accumulation("format") and accumulation_of(
        torch.q43
    ) == Accumulation("machine")
    with accumulate("machine"):
        assert not stops_at_eight() and in_a_thread(stops_at_eight)
    own_policy("q52", accumulation_of("q43"))
    assert not stops_at_eight()


def weight_gradient(dtype=torch.q52):
    """Return a weight, and 64 products with it, whose gradient is a sum of 64 ones."""
    weight = torch.ones(1, 1, dtype=dtype, requires_grad=True)
    return weight, torch.ones(64, 1, dtype=dtype) @ weight


def test_backward_obeys_too(own_policy):
    weight, y = weight_gradient()
    with accumulate("format"):
        y.backward(torch.ones_like(y))
    assert weight.grad.item() == 8
    with accumulate("format"):
        weight, y = weight_gradient()
    y.backward(torch.ones_like(y))  # outside the block
    assert weight.grad.item() == 64
    own_policy(torch.q52, "format")
    weight, y = weight_gradient()
    in_a_thread(lambda: y.backward(torch.ones_like(y)))
    assert weight.grad.item() == 8
    weight, y = weight_gradient(torch.q43)
    y.backward(torch.ones_like(y))
    assert weight.grad.item() == 64


@pytest.mark.parametrize(
    ("error", "message", "args"),
    [
        (
            ValueError,
            "expected an accumulation policy, one of 'machine', 'float32', .* or "
            "'chunked\\(<terms>\\)', but got 'quire'",
            {"policy": "quire"},
        ),
        (ValueError, "expected an accumulation policy, .* but got None", {"policy": None}),
        (
            ValueError,
            "expected an accumulation policy, .* but got 'chunked\\(\\)'",
            {"policy": "chunked()"},
        ),
        (
            ValueError,
            "expected the number of terms .* with 'chunked', as in 'chunked.32.'",
            {"policy": "chunked"},
        ),
        (
            ValueError,
            "expected chunk=.* but got 'format' with chunk=4",
            {"policy": "format", "chunk": 4},
        ),
        (ValueError, "expected chunk from 1 to 2.63 - 1, but got 0", {"policy": "chunked(0)"}),
        (
            ValueError,
            "expected chunk from 1 to 2.63 - 1, but got -3",
            {"policy": "chunked", "chunk": -3},
        ),
        (
            ValueError,
            "expected chunk from 1 to 2.63 - 1, but got True",
            {"policy": "chunked", "chunk": True},
        ),
        (ValueError, "expected chunk", {"policy": "chunked(100000000000000000000)"}),
        (
            ValueError,
            "expected kahan, rounding with the policies 'format' and 'chunked' only, but got "
            "'exact'",
            {"policy": "exact", "kahan": True, "rounding": "up"},
        ),
        (
            ValueError,
            "expected product with .* but got 'float64'",
            {"policy": "float64", "product": "q43"},
        ),
        (
            ValueError,
            "expected fused=True without kahan= and product=",
            {"policy": "format", "fused": True, "kahan": True},
        ),
        (
            ValueError,
            "expected fused=True without kahan= and product=",
            {"policy": "format", "fused": True, "product": "q43"},
        ),
        (ValueError, "expected a rounding mode", {"policy": "format", "rounding": "sideways"}),
        (
            ValueError,
            "expected the name of a number format, but got 'e99'",
            {"policy": "format", "accumulator": "e99"},
        ),
        (
            TypeError,
            "expected a dtype of a number format, but got torch.float32",
            {"policy": "format", "product": torch.float32},
        ),
        (ValueError, "expected", {"policy": Accumulation("format"), "kahan": True}),
    ],
)
def test_not_a_policy(error, message, args):
    with pytest.raises(error, match=message), accumulate(**args):
        pass
    with pytest.raises(error, match=message):
        set_accumulation(torch.q52, **args)
    assert accumulation_of(torch.q52) == Accumulation("machine")


def test_not_a_policy_as_an_object():
    for arguments, options in (
        (["quire"], {}),
        (["chunked"], {}),
        (["chunked", -3], {}),
        (["format"], {"fused": True, "kahan": True}),
    ):
        with pytest.raises(ValueError, match="expected"):
            Accumulation(*arguments, **options)
    assert Accumulation("chunked(8)") == Accumulation("chunked", 8)


@pytest.mark.parametrize(
    ("text", "policy", "options"),
    [
        ("chunked(8)", "chunked", {"chunk": 8}),
        ("chunked(chunk=8)", "chunked", {"chunk": 8}),
        (
            "chunked(32, accumulator=e5m7, rounding=4)",
            "chunked",
            {"chunk": 32, "accumulator": "e5m7", "rounding": "toward_zero"},
        ),
        ("format(accumulator=e5m7,fused=True)", "format", {"accumulator": "e5m7", "fused": True}),
        (
            "format( product = tf32, kahan=True, rounding=up )",
            "format",
            {"product": "tf32", "kahan": True, "rounding": "up"},
        ),
        (
            "format(accumulator=posit<16,1>, product=binary32)",
            "format",
            {"accumulator": "posit16es1", "product": "e8m23"},
        ),
    ],
)
def test_a_policy_in_one_text(text, policy, options):
    assert Accumulation(text) == Accumulation(policy, **options)
    with accumulate(text):
        assert accumulation_of(torch.q52) == Accumulation(policy, **options)


@pytest.mark.parametrize(
    ("text", "message", "options"),
    [
        ("format(sum=e5m7)", "out of chunk, product, .* but got 'sum=e5m7'", {}),
        ("format(kahan=True, kahan=False)", "once each, .* but got 'kahan=False'", {}),
        ("format(fused=yes)", "expected fused=True or fused=False .* but got 'fused=yes'", {}),
        ("format(accumulator=e99)", "expected the name of a number format, but got 'e99'", {}),
        ("chunked(chunk=all)", "expected chunk as an integer .* but got 'chunk=all'", {}),
        (
            "chunked(8, accumulator=e5m7)",
            "expected accumulator once, but got it in 'chunked.* and as an argument",
            {"accumulator": "e5m7"},
        ),
        ("format(4)", "expected chunk=.* but got 'format' with chunk=4", {}),
        (
            "format(accumulator=float32)",
            "that is a stock dtype; 'bf16', .* are formats of the same values",
            {},
        ),
        ("format(accumulator=posit<16,1)", "expected an accumulation policy", {}),
        ("exact(kahan=True)", "expected an accumulation policy", {}),
        ("format(accumulator=e5m7", "expected an accumulation policy", {}),
        ("format()", "expected an accumulation policy", {}),
    ],
)
def test_not_a_policy_in_one_text(text, message, options):
    with pytest.raises(ValueError, match=message):
        Accumulation(text, **options)


def test_not_a_dtype():
    for call in (lambda d: set_accumulation(d, "exact"), accumulation_of):
        for wrong in (torch.float32, None, 3):
            with pytest.raises(TypeError, match=r"expected a dtype of a number format, .*but got"):
                call(wrong)
        with pytest.raises(ValueError, match="expected the name of a number format"):
            call("float32")


def test_formats_that_a_policy_cannot_do():
    wide, x = torch.ones(2, 2, dtype=dtype_of("e11m52")), torch.ones(2, 2, dtype=torch.posit32es2)
    for policy in ("format", "chunked(2)"):
        for call in (lambda: wide @ wide, lambda: wide.sum(), lambda: wide.cumsum(0)):
            with (
                accumulate(policy),
                pytest.raises(
                    RuntimeError,
                    match=r"at most 51 significant bits.*but got e11m52.*accumulate\(\"exact\"\)",
                ),
            ):
                call()
    with (
        accumulate("format", accumulator="e11m52"),
        pytest.raises(RuntimeError, match="at most 51 significant bits"),
    ):
        x @ x
    with accumulate("float32"):
        for call in (
            lambda: x @ x,
            lambda: x.sum(),
            lambda: F.linear(x, x),
            lambda: F.conv1d(x[None], x[None]),
        ):
            with pytest.raises(
                RuntimeError,
                match="values and products fit float32, for the accumulation policy float32, "
                "but got posit32es2",
            ):
                call()
        assert (x + x).sqrt().shape == x.shape  # operators without a sum are unaffected


def test_operands_that_a_chip_has_not():
    for name, chip in (
        ("posit8es2", "nvidia-h100"),
        ("e4m3fn", "nvidia-a100"),
        ("e5m5", "amd-mi300x"),
        ("fixed4_3", "nvidia-v100"),
    ):
        x = torch.ones(2, 2).to(dtype_of(name))
        for call in (
            lambda x=x: x @ x,
            lambda x=x: x.sum(),
            lambda x=x: x.cumsum(0),
            lambda x=x: x[:0] @ x,
        ):
            with (
                accumulate(chip),
                pytest.raises(
                    RuntimeError,
                    match=f"expected operands of formats that {chip} multiplies .*, but got {name}",
                ),
            ):
                call()
    a, b = torch.ones(2, 2).to(HALF), torch.ones(2, 2).to(torch.q43)
    with accumulate("nvidia-h100"), pytest.raises(RuntimeError, match="but got e5m10 and q43"):
        matmul(a, b, out=FLOAT32)


@pytest.mark.parametrize(
    ("message", "policy", "options"),
    [
        ("expected terms= with 'block', the number of products", "block", {}),
        ("expected terms from 1 to", "block", {"terms": 0}),
        ("expected terms from 1 to .* but got True", "block", {"terms": True}),
        ("expected extra_bits from 0 to 52, but got -1", "block", {"terms": 4, "extra_bits": -1}),
        ("expected sums of at most 62 bits", "block", {"terms": 4, "extra_bits": 30}),
        ("expected sums of at most 62 bits", "block", {"terms": 2**20, "extra_bits": 20}),
        ("expected a float as the register", "block", {"terms": 4, "register": "posit16es2"}),
        ("expected a float as the register", "block", {"terms": 4, "register": "fixed8_8"}),
        (
            "expected a mode without random words as align",
            "block",
            {"terms": 4, "align": "stochastic"},
        ),
        ("expected a rounding mode", "block", {"terms": 4, "rounding": "sideways"}),
        (
            "expected interleave of at most terms=2, but got 3",
            "block",
            {"terms": 2, "interleave": 3},
        ),
        (
            "expected late of at least extra_bits=3, but got 2",
            "block",
            {"terms": 2, "extra_bits": 3, "late": 2},
        ),
        ("expected min_exponent from -2000", "block", {"terms": 2, "min_exponent": -3000}),
        (
            "expected accumulator with the policies 'format' and 'chunked' only, but got 'block'",
            "block",
            {"terms": 2, "accumulator": "q43"},
        ),
        (
            "expected terms with the policy 'block' only, but got 'nvidia-h100'",
            "nvidia-h100",
            {"terms": 2},
        ),
        (
            "expected terms, align with the policy 'block' only, but got 'format'",
            "format",
            {"terms": 2, "align": "down"},
        ),
        (
            "expected chunks of a chip without other options, but got outer with .*nvidia-h100",
            "chunked(128)",
            {"accumulator": "nvidia-h100", "outer": "e8m23"},
        ),
        ("expected the number of terms", "chunked", {"accumulator": "nvidia-h100"}),
        ("accumulator: expected", "format", {"accumulator": "nvidia-h100"}),
        ("expected terms as an integer", "block(terms=many)", {}),
        ("once, but got it in", "block(4, register=tf32)", {"register": "tf32"}),
    ],
)
def test_not_a_block(message, policy, options):
    with pytest.raises(ValueError, match=message):
        Accumulation(policy, **options)


def test_a_block_in_one_text():
    long = Accumulation(
        "block",
        terms=16,
        extra_bits=2,
        register="tf32",
        min_exponent=0,
        late=3,
        interleave=2,
        rounding=1,
        product_limit=True,
    )
    text = (
        "block(rounding=nearest_even, terms=16, extra_bits=2, register=tf32, interleave=2, "
        "late=3, min_exponent=0, product_limit=True)"
    )
    assert str(long) == text
    assert Accumulation(str(long)) == long and Accumulation(
        "block(16, extra_bits=2)"
    ) == Accumulation("block", terms=16, extra_bits=2)
    assert Accumulation("block(4, register=float32)") == Accumulation(
        "block", terms=4, register=torch.float32
    )
    for policy in (
        long,
        Accumulation("nvidia-b200"),
        Accumulation("chunked(128)", accumulator="nvidia-h100"),
        Accumulation("block", terms=4, extra_bits=1, register="e5m7"),
    ):
        with accumulate(str(policy)):
            assert accumulation_of("q43") == policy
