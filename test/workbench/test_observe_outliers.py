"""Channels that are much larger than the rest, as ``observe`` finds them."""

import copy
import json
import math
import pickle

import pytest
import torch
from torch import nn

import torch_dtypes
from torch_dtypes import observe
from torch_dtypes.workbench.observation.statistics import Statistics, merge_statistics


def build():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(5, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 3)
    )


def test_outliers_by_channel():
    model, x = build(), torch.empty(2, 5, 4, 4).uniform_(-1, 1)
    batches = x, 2 * x
    batches[0][0, 3, 1, 2], batches[1][1, 1, 0, 0] = -40.0, 300.0
    batches[1][0, 0, 0, 0] = math.nan
    with observe(model, outliers=True) as stats:
        wanted = []
        for batch in batches:
            model(batch)
            wanted.append(
                [
                    max(abs(v) for v in c if v == v)
                    for c in batch.transpose(0, 1).flatten(1).tolist()
                ]
            )
    largest = [max(pair) for pair in zip(*wanted, strict=True)]
    (row,) = (row for row in stats.outliers() if row.layer == "0")
    assert (row.channels, row.of, row.share) == ((1, 3), 5, 0.4)
    assert (row.largest, row.median) == (largest[1], sorted(largest)[2])
    assert row.times == row.largest / row.median > 100
    assert {r.layer for r in stats.outliers(times=1)} == {"0", "3"}
    assert [r for r in stats.outliers(times=200) if r.layer == "0"] == []
    for other in (
        pickle.loads(pickle.dumps(stats)),
        copy.deepcopy(stats),
        Statistics.from_json(json.loads(json.dumps(stats.as_json()))),
        merge_statistics(stats, stats),
    ):
        assert other.outliers() == stats.outliers()


def test_infinite_channels_in_a_file(tmp_path):
    model = nn.Linear(3, 1)
    with observe(model, outliers=True) as stats:
        model(torch.tensor([[1.0, -math.inf, math.nan]]))
    stats.to_json(tmp_path / "stats.json")
    (row,) = Statistics.from_json(tmp_path / "stats.json").outliers()
    assert (row.channels, row.largest, row.median) == ((1,), math.inf, 1.0)


def test_format_tensors_have_channels():
    model = nn.Linear(4, 3).to(torch.q43)
    with observe(model, outliers=True) as stats:
        model(torch.tensor([[1.0, -100.0, 1.0, 2.0]]).to(torch.q43))
    assert [(r.layer, r.channels, r.largest) for r in stats.outliers(40)] == [("", (1,), 96.0)]


def test_an_observation_without_channels():
    model = build()
    with observe(model, formats="q43") as stats:
        model(torch.ones(1, 5, 4, 4))
    assert "channels" not in stats.as_json()
    with pytest.raises(ValueError, match="use observe\\(model, outliers=True\\)"):
        stats.outliers()
    with torch_dtypes.observe(model, outliers=True) as stats:
        pass
    assert stats.outliers() == []
    with pytest.raises(ValueError, match="expected times as a number of at least 1"):
        stats.outliers(0.5)
