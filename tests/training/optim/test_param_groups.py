import msgspec
import pytest
from torch import nn

from zoo.families.recipe import OptimizerConfig
from zoo.plugins import get_family
from zoo.training.optim.param_groups import parameter_groups


def make_config(layerwise_lr_decay: float = 1.0) -> OptimizerConfig:
    return OptimizerConfig(
        learning_rate=0.1, weight_decay=0.01, layerwise_lr_decay=layerwise_lr_decay
    )


class Model(nn.Module):
    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(5, 4)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(layers))
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 5)
        self.head.weight = self.embeddings.weight


def test_biases_and_norms_do_not_decay() -> None:
    decayed, spared = parameter_groups(Model(), make_config())
    assert decayed["names"] == ["embeddings.weight", "layers.0.weight", "layers.1.weight"]
    assert spared["names"] == [
        *("layers.0.bias", "layers.1.bias", "norm.weight", "norm.bias", "head.bias")
    ]
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.01, 0.0)
    assert (decayed["decayed"], spared["decayed"]) == (True, False)
    assert decayed["scale"] == spared["scale"] == 1.0


def test_names_are_those_of_the_parameters() -> None:
    model = Model()
    for group in parameter_groups(model, make_config(0.5)):
        for name, parameter in zip(group["names"], group["params"], strict=True):
            assert model.get_parameter(name) is parameter


def test_a_frozen_parameter_is_in_no_group() -> None:
    model = Model()
    model.head.bias.requires_grad_(False)
    assert "head.bias" not in parameter_groups(model, make_config())[1]["names"]


def test_lower_layers_learn_more_slowly() -> None:
    # key_to_depths of the released _get_layer_lrs for n_layers = 2: embeddings 0, layers 1 and 2,
    # task_specific 4; the rate is layerwise_lr_decay ** (n_layers + 2 - depth)
    expected = {"embeddings": 0.5**4, "layers.0": 0.5**3, "layers.1": 0.5**2, "norm": 1, "head": 1}
    groups = parameter_groups(Model(), make_config(0.5))
    scales = {name: group["scale"] for group in groups for name in group["names"]}
    assert len(scales) == 8
    for name, scale in scales.items():
        assert scale == expected[name.rpartition(".")[0]], name


def test_ten_layers_are_not_taken_for_one() -> None:
    groups = parameter_groups(Model(11), make_config(0.5))
    scales = {name: group["scale"] for group in groups for name in group["names"]}
    assert scales["layers.1.weight"] == 0.5**11 and scales["layers.10.weight"] == 0.5**2


def test_each_of_several_networks_counts_its_own_layers() -> None:
    both = nn.ModuleDict({"small": Model(1), "large": Model(3)})
    groups = parameter_groups(both, make_config(0.5))
    scales = {name: group["scale"] for group in groups for name in group["names"]}
    assert scales["small.embeddings.weight"] == 0.5**3
    assert scales["large.embeddings.weight"] == 0.5**5
    assert scales["small.layers.0.bias"] == scales["large.layers.2.bias"] == 0.5**2


def test_layers_that_do_not_exist_are_named() -> None:
    with pytest.raises(ValueError, match="the model has no layers"):
        parameter_groups(nn.Linear(2, 2), make_config(0.5))


@pytest.mark.parametrize("family", ["albert", "bert", "deberta", "electra", "elmo", "gpt", "t5"])
def test_every_family_can_be_sorted(family: str) -> None:
    plugin = get_family(family)
    head = "none" if family in ("elmo", "gpt", "t5") else next(iter(plugin.heads()))
    model = plugin.model(plugin.sizes()["tiny"], head)
    groups = parameter_groups(model, make_config(0.9))
    listed = [parameter for group in groups for parameter in group["params"]]
    assert len(listed) == len({id(p) for p in listed}) == len(list(model.parameters()))
    spared = [name for g in groups if not g["decayed"] for name in g["names"]]
    assert {name for name, p in model.named_parameters() if p.dim() < 2} == set(spared)
    assert not [n for g in groups if g["decayed"] for n in g["names"] if "norm" in n or "bias" in n]
    lowest = min(groups, key=lambda group: float(group["scale"]))
    relative = {"deberta": ("relative.",), "t5": ("positions.", "decoder.positions.")}
    below = ("embeddings.", *relative.get(family, ()))
    assert [name for name in lowest["names"] if not name.startswith(below)] == []


def test_layers_that_are_shared_are_in_one_group() -> None:
    plugin = get_family("albert")
    config = plugin.sizes()["tiny"]
    model = plugin.model(config, "none")
    groups = parameter_groups(model, make_config(0.5))
    scales = {g["scale"] for g in groups for name in g["names"] if name.startswith("layers.")}
    assert config.num_layers > 1 and scales == {0.5**2}


@pytest.mark.parametrize(
    ("family", "modules"),
    [
        ("deberta", ["embeddings", "relative", "relative_norm"]),
        ("t5", ["embeddings", "positions", "decoder.positions"]),
    ],
)
def test_what_all_layers_read_is_below_them(family: str, modules: list[str]) -> None:
    plugin = get_family(family)
    model = plugin.model(plugin.sizes()["tiny"], "sequence-classification")
    groups = parameter_groups(model, make_config(0.5))
    scales = {name: group["scale"] for group in groups for name in group["names"]}
    lowest = {name for name, scale in scales.items() if scale == 0.5**4}
    assert lowest == {name for name in scales if name.startswith(tuple(f"{m}." for m in modules))}
    assert scales["layers.0.ffn_norm.weight"] == 0.5**3


def test_a_mix_of_layers_is_no_layer() -> None:
    plugin = get_family("elmo")
    config = msgspec.structs.replace(plugin.sizes()["tiny"], mix=True)
    groups = parameter_groups(plugin.model(config, "token-classification"), make_config(0.5))
    scales = {name: group["scale"] for group in groups for name in group["names"]}
    assert scales["layers.2.gamma"] == scales["layers.2.weights"] == scales["head.weight"] == 1
    assert scales["embeddings.characters.weight"] == 0.5**4
