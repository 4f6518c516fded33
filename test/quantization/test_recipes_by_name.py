"""Recipes by name: their rules, and that a network trains by them."""

import pytest
import torch
import yaml
from torch import nn

from torch_dtypes import quantize_, summary, target
from torch_dtypes.quantization import RECIPES, recipe, switch_at


def network(features=64):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(features, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 4)
    )


@pytest.mark.parametrize("name", RECIPES)
def test_a_network_trains_by_a_recipe(name):
    model = quantize_(network(), name)
    assert [row.runs for row in summary(model, show=False)] == ["casts", "casts", ""]
    x = torch.randn(128, 64)
    labels = (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(40):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
    assert loss < 0.3  # 1.39 before


@pytest.mark.parametrize("name", RECIPES)
def test_rules_are_those_of_a_yaml_file(name, tmp_path):
    rules = recipe(name, network())
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(rules))
    rows = [list(summary(quantize_(network(), r), show=False)) for r in (name, rules, str(path))]
    assert rows[0] == rows[1] == rows[2]
    rules["0"]["weight"] = "q43"  # a dict of one's own
    assert "q43" not in str(RECIPES[name].rule)


def test_attention_and_the_last_layer_stay():
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2, enable_nested_tensor=False
    )
    rows = summary(quantize_(model, "mxfp8"), show=False)
    reached = [row.layer for row in rows if row.runs]
    assert reached == ["layers.0.linear1", "layers.0.linear2", "layers.1.linear1"]
    alone = quantize_(nn.Linear(64, 64), "mxfp8")
    assert summary(alone, show=False)[""].forward == "mxfp8_e4m3_rceil x mxfp8_e4m3_rceil"


def test_switches_at_steps():
    model = quantize_(network(), "nvfp4")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    handle = switch_at(model, optimizer, {2: "mxfp8", 3: None})
    seen = []
    for step in range(5):
        if step == 4:
            handle.remove()
        model(torch.randn(16, 64)).sum().backward()
        optimizer.step()
        seen.append(summary(model, show=False)["0"].forward)
    mx = "mxfp8_e4m3_rceil x mxfp8_e4m3_rceil"
    assert seen == ["nvfp4 x nvfp4_16x16", mx, "", "", ""]
    for steps, match in (({}, "expected rules by steps"), ({0: "mxfp8"}, "number of steps")):
        with pytest.raises((TypeError, ValueError), match=match):
            switch_at(model, optimizer, steps)


def test_three_quarters_of_mxfp4_are_unbiased():
    """By the paper's equations: the standard's scale of the block, elements of 3/4 of the number,
    the product times 16/9. Nothing is clipped."""
    three_quarters = target(RECIPES["mxfp4_backward"].rule["input_grad"]["error"]["format"])
    torch.manual_seed(1)
    x = torch.randn(3, 80) * torch.randn(80).exp2()
    x[0, 0] = 2.0 ** x[0, :32].abs().max().log2().ceil() * 1.999  # 7.996 times its scale
    draws = torch.stack([three_quarters.quantize(x, rounding="stochastic") for _ in range(2000)])
    mean, spread = draws.mean(0), draws.std(0) / 2000**0.5
    assert ((mean - x).abs() <= 5 * spread + 1e-6 * x.abs()).all() and spread[0, 0] > 0
    grid = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0}
    for start in range(0, 80, 32):
        block, drawn = x[:, start : start + 32], draws[..., start : start + 32]
        scale = 2.0 ** (block.abs().amax(-1, keepdim=True).log2().floor() - 2)
        elements = drawn / scale * 0.75
        assert set(elements.abs().mul(2).round().div(2).unique().tolist()) <= grid
        assert torch.allclose(elements, elements.mul(2).round().div(2))
    columns = three_quarters.along(0).quantize(x.t().contiguous(), rounding="toward_zero")
    assert torch.equal(columns.t(), three_quarters.quantize(x, rounding="toward_zero"))


def test_unknown_names():
    with pytest.raises(ValueError, match=r"ends in \.yaml .*but got 'nvfp8'; of recipes the near"):
        quantize_(network(), "nvfp8")
    with pytest.raises(ValueError, match="expected a model with linear layers"):
        quantize_(nn.ReLU(), "nvfp4")
    with pytest.raises(ValueError, match="expected a multiple of 64 in the dimension"):
        quantize_(nn.Sequential(nn.Linear(64, 20), nn.Linear(20, 2)), "mxfp4_backward")
