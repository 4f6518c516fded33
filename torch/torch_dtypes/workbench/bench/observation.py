"""The suite ``observation``: a training step in ``observe``, over the same step outside."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .measuring import Group, Row, Sizes, named_dtypes
from .training import STEP, TITLES, namespace

SUMMARY = (
    "A training step with Adam within torch_dtypes.observe, over the same step outside; of "
    "float32 against one format, against four, and against blocks."
)
_DTYPES = ("posit16es2", "q52")
_LIMIT = 1.5
_FORMATS = {
    "one format": "'q43'",
    "four formats": "['q43', 'q52', 'posit8es1', 'posit16es2']",
    "mxfp4": "'mxfp4'",
    "nvfp4": "'nvfp4'",
    "hif4": "'hif4'",
}


def groups(sizes: Sizes, dtypes: Sequence[torch.dtype] | None) -> list[Group]:
    named = named_dtypes(dtypes, _DTYPES)

    def group(model: str, batch_size: int) -> Group:
        codes = {"float32": STEP} | dict.fromkeys(named, STEP)
        codes |= {
            f"{name}, observed": f"with torch_dtypes.observe(model): {STEP}" for name in named
        }
        codes |= {
            f"float32 against {what}": f"with torch_dtypes.observe(model, {formats}): {STEP}"
            for what, formats in _FORMATS.items()
        }

        def spaces():
            kinds = {"float32": torch.float32, **named}
            return {
                name: namespace(model, batch_size, kinds[name.partition(",")[0].partition(" ")[0]])
                for name in codes
            }

        work = f"{TITLES[model]} step, batch {batch_size}"
        rows = [
            Row(work, f"{name}, observed", name, _LIMIT if name in _DTYPES else None)
            for name in named
        ]
        rows += [Row(work, f"float32 against {what}", "float32") for what in _FORMATS]
        return Group(codes, spaces, rows, rounds=20, quick_rounds=5)

    return [
        group(
            "lenet5", max(batch_size for model, batch_size in sizes.networks if model == "lenet5")
        )
    ]
