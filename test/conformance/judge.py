"""Judge an outcome: pass, expected failure, expected refusal, or an outdated list in known.py."""

import pytest
from known import Known
from runs import Outcome


def judge(outcome: Outcome, known: Known | None):
    if outcome.status == "n/a":
        pytest.skip(outcome.reason)
    if known is None:
        assert outcome.status == "pass", f"{outcome} ({outcome.bad} of {outcome.samples} samples)"
        return
    assert outcome.status != "pass", f"passes: remove it from the list in known.py ({known.reason})"
    if known.refused:
        assert outcome.status == "refused", (
            f"expected a refusal ({known.reason}), but got {outcome}"
        )
    else:
        pytest.xfail(known.reason)
