"""ALBERT's configuration and the keys of its Hub configuration."""

from typing import Any

from zoo.families.config import Activation, ConfigMap
from zoo.families.encoder import FIXED, KEYS, EncoderConfig
from zoo.io import limits
from zoo.io.sizes import size_problem


class AlbertConfig(EncoderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of an ALBERT; with the defaults of ``xxlarge`` and of the Hub."""

    vocab_size: int = 30000
    # width of the embeddings, which a linear map projects to ``hidden_size``
    embedding_size: int = 128
    hidden_size: int = 4096
    num_heads: int = 64
    intermediate_size: int = 16384
    num_groups: int = 1  # number of groups; each runs in an equal number of consecutive layers
    blocks_in_group: int = 1  # number of blocks in a group, which run one after another
    type_vocab_size: int = 2  # number of segment types
    activation: Activation = "gelu_new"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    classifier_dropout: float = 0.1  # dropout probability before a classifier
    layer_norm_eps: float = 1e-12  # epsilon of the layer norms
    # whether the bare backbone has a pooler; heads that use one always have it
    pooler: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_groups > self.num_layers:
            raise ValueError(f"num_groups {self.num_groups} is not in 1 to {self.num_layers}")
        blocks = self.num_layers * self.blocks_in_group
        problem = size_problem("number of blocks of all groups", blocks, limits.MAX_CONFIG_COUNT)
        if problem is not None:
            raise ValueError(problem)

    @property
    def order(self) -> list[int]:
        """Indices of the blocks in the order in which they run."""
        per_group = self.num_layers / self.num_groups
        return [
            int(layer / per_group) * self.blocks_in_group + inner
            for layer in range(self.num_layers)
            for inner in range(self.blocks_in_group)
        ]


SPECIAL_TOKENS = {
    "bos": "[CLS]",
    "eos": "[SEP]",
    "unk": "<unk>",
    "sep": "[SEP]",
    "pad": "<pad>",
    "cls": "[CLS]",
    "mask": "[MASK]",
}
_UNUSED = "written by the first release; no implementation reads it"
CONFIG_MAP = ConfigMap(
    keys={
        **KEYS,
        "embedding_size": "embedding_size",
        "num_hidden_groups": "num_groups",
        "inner_group_num": "blocks_in_group",
        "classifier_dropout_prob": "classifier_dropout",
    },
    fixed=FIXED,
    ignored={
        "down_scale_factor": _UNUSED,
        "gap_size": _UNUSED,
        "layers_to_keep": _UNUSED,
        "net_structure_type": _UNUSED,
        "num_memory_blocks": _UNUSED,
    },
)


_SHAPES: dict[str, dict[str, int]] = {
    "base": {"layers": 12, "width": 768},
    "large": {"layers": 24, "width": 1024},
    "xlarge": {"layers": 24, "width": 2048, "num_heads": 16},
    "xxlarge": {"layers": 12, "width": 4096},
}
_FIRST: dict[str, Any] = {"activation": "gelu", "dropout": 0.1, "attention_dropout": 0.1}
SIZES = {
    "tiny": AlbertConfig.sized(
        3, 96, num_heads=4, vocab_size=1000, embedding_size=32, max_positions=64
    ),
    **{f"{name}-v2": AlbertConfig.sized(**shape) for name, shape in _SHAPES.items()},
    **{f"{name}-v1": AlbertConfig.sized(**shape, **_FIRST) for name, shape in _SHAPES.items()},
    # the largest was released without dropout in either version
    "xxlarge-v1": AlbertConfig.sized(**_SHAPES["xxlarge"], activation="gelu"),
}
