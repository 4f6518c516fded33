"""Sums of several products at once, compared with another program: MMA-Sim."""

import pytest
import torch
from block_sums import FLOAT32, KINDS, operands
from oracle_adders import CHIPS

import torch_dtypes
from torch_dtypes import accumulate, matmul


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_as_mma_sim_has_it(kind):
    """Compare with the authors' own program (pip install mmasim) on 1,024 sums for each chip,
    format and kind of operands."""
    pytest.importorskip("mmasim")
    from mmasim import amd, nv_ptx

    stock = {
        "e5m10": torch.float16,
        "e8m7": torch.bfloat16,
        "tf32": torch.float32,
        "e4m3fn": torch.float8_e4m3fn,
        "q52": torch.float8_e5m2,
        "e4m3fnuz": torch.float8_e4m3fnuz,
        "e5m2fnuz": torch.float8_e5m2fnuz,
    }
    ptx = {"e5m10": "f16", "e8m7": "bf16", "tf32": "tf32", "e4m3fn": "e4m3", "q52": "e5m2"}
    ptx |= {f"{name}finite": name for name in ("e3m2", "e2m3", "e2m1")}
    models = {
        "nvidia-v100": lambda n: (nv_ptx.MMA("Volta", "m8n8k4.f32.f16.f16.f32"), 4),
        "nvidia-a100": lambda n: (
            nv_ptx.MMA("Ampere", f"m16n8k{8 if n == 'tf32' else 16}.f32.{ptx[n]}.{ptx[n]}.f32"),
            8 if n == "tf32" else 16,
        ),
        "nvidia-h100": lambda n: (
            lambda k: (nv_ptx.WGMMA("Hopper", f"m64n16k{k}.f32.{ptx[n]}.{ptx[n]}"), k)
        )(K_OF[n]),
        "nvidia-b200": lambda n: (
            lambda k: (
                nv_ptx.TCGen05MMA("Blackwell", f"m64n16k{k}.kind::{KIND[k]}.f32.{ptx[n]}.{ptx[n]}"),
                k,
            )
        )(K_OF[n]),
        "nvidia-rtx-blackwell": lambda n: (
            lambda k: (
                nv_ptx.MMA("RTX Blackwell", RTX[k].format(ptx[n])),
                k,
            )
        )(K_OF[n]),
        "amd-mi300x": lambda n: (
            amd.MFMA("CDNA3", AMD[n]),
            {"tf32": 8, "e4m3fnuz": 32, "e5m2fnuz": 32}.get(n, 16),
        ),
    }
    for chip, name, _adder in CHIPS:
        model, k = models[chip](name)
        m, n = 64, 16
        a, b = operands(name, m, k, kind=kind, seed=7), operands(name, k, n, kind=kind, seed=8)
        start = operands(FLOAT32, m, n, kind=kind, seed=9)
        if name in ("q52", "e4m3fn") and chip == "nvidia-h100":  # its register has no more digits
            start = (
                start.double()
                .to(torch_dtypes.with_rounding("e8m13", "toward_zero"))
                .double()
                .to(torch_dtypes.dtype(FLOAT32))
            )
        for begin in (start, torch.zeros_like(start)):
            with accumulate(chip):
                got = matmul(a, b, out=FLOAT32, start=begin).float()
            want = model.dpa(
                *(
                    x.double().to(stock[name])
                    if name in stock
                    else torch_dtypes.codes(x) << (2 if name == "e2m1finite" else 0)
                    for x in (a[:, None].expand(m, n, k), b.T[None].expand(m, n, k))
                ),
                begin.float(),
            )
            got, want = got.nan_to_num(7), want.nan_to_num(7)
            assert torch.equal(got.view(torch.int32), want.view(torch.int32)), (
                chip,
                name,
                (got != want).sum(),
            )


K_OF = {"e5m10": 16, "e8m7": 16, "tf32": 8, "e4m3fn": 32, "q52": 32}
K_OF |= {f"{name}finite": 32 for name in ("e3m2", "e2m3", "e2m1")}
RTX = {
    8: "m16n8k8.f32.{0}.{0}.f32",
    16: "m16n8k16.f32.{0}.{0}.f32",
    32: "m16n8k32.kind::f8f6f4.f32.{0}.{0}.f32",
}
KIND = {8: "tf32", 16: "f16", 32: "f8f6f4"}
AMD = {
    "e5m10": "f32_16x16x16_f16",
    "e8m7": "f32_16x16x16_bf16",
    "tf32": "f32_16x16x8_xf32",
    "e4m3fnuz": "f32_16x16x32_fp8_fp8",
    "e5m2fnuz": "f32_16x16x32_bf8_bf8",
}
