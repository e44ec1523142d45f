"""The outline of a model's modules has the parameters that torch counts."""

import pytest

from zoo.plugins import all_families
from zoo.weights.outline import outline


@pytest.mark.parametrize("name", ["bert", "gpt", "t5", "albert", "deberta", "elmo"])
def test_modules_have_the_parameters_of_torch(name: str) -> None:
    family = all_families()[name]
    config, head = family.sizes()["tiny"], list(family.heads())[1]
    model = family.model(config, head)
    lines = outline(family.weights(config, head).entries())
    seen: set[int] = set()
    for line in lines:
        for module in line.names:
            own = {id(p): p for p in model.get_submodule(module).parameters() if id(p) not in seen}
            assert sum(p.numel() for p in own.values()) == line.parameters, module
            seen |= own.keys()
    total = sum(p.numel() for p in model.parameters())
    assert sum(len(line.names) * line.parameters for line in lines) == total


def test_layers_are_one_line() -> None:
    family = all_families()["bert"]
    config = family.sizes()["base"]
    lines = outline(family.weights(config, "masked-lm").entries())
    names = [line.name for line in lines]
    assert names == ["embeddings", "layers.0\N{EN DASH}11", "head"]
    # Devlin et al. 2019: 768 hidden, 3072 intermediate; 4 products, their biases, two norms
    layer = 4 * (768 * 768 + 768) + 2 * 768 * 3072 + 3072 + 768 + 2 * 2 * 768
    assert lines[1].parameters == layer
