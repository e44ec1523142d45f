"""Prefix tuning (Li and Liang 2021, arXiv:2101.00190)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from zoo.adapted_models.base import check_sizes
from zoo.adapted_models.virtual_tokens import VirtualTokens
from zoo.errors import UsageError
from zoo.families.base import DECODER_TOKENS
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import nn

    from zoo.adapted_models.targets import AdaptableModel


class PrefixTuning(VirtualTokens, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Learned keys and values before each text, in all layers."""

    name: ClassVar[str] = "prefix"
    # encoders in arXiv:2110.07602, whose prefixes these are, train with 5e-3 to 1e-2
    defaults: ClassVar[Mapping[str, Any]] = {
        "optimizer": {"learning_rate": 1e-2, "layerwise_lr_decay": 1.0},
        "warmup_ratio": 0.06,
    }

    # compute keys and values from smaller embeddings, by a network that is trained with them
    prefix_projection: bool = False
    encoder_hidden_size: int | None = None  # inner width of it; ``None`` for that of the keys
    # count the positions of a text from the end of the prefix, as peft does; AdapterHub's library
    # counts them from 0
    shift_positions: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoder_hidden_size is not None:
            check_sizes(self, "encoder_hidden_size")
            if not self.prefix_projection:
                raise ValueError("encoder_hidden_size is of a projection: set prefix_projection")

    @override
    def axis(self, limits: Mapping[str, int]) -> str:
        return DECODER_TOKENS if DECODER_TOKENS in limits else "tokens"

    @override
    def shortened(self, limits: Mapping[str, int]) -> dict[str, int]:
        return super().shortened(limits) if self.shift_positions else dict(limits)

    @override
    def resolved(self, adaptable: "AdaptableModel") -> Self:
        from zoo.nn.adapters.prefix import counts_distances, has_prefix, prefix_layers

        if prefix_layers(adaptable.model) is None and not has_prefix(adaptable.model):
            raise UsageError(
                f"models of {adaptable.family.name} have no attention that takes a prefix, such as "
                "attention by relative positions",
                "choose another --adapter",
            )
        if not self.shift_positions and counts_distances(adaptable.model):
            raise UsageError(
                f"adapter.shift_positions is false, and models of {adaptable.family.name} have "
                "relative positions, which count the prefix",
                "leave it out",
            )
        return super().resolved(adaptable)

    @override
    def add_to(self, model: "nn.Module", adaptable: "AdaptableModel") -> None:
        from zoo.nn.adapters.prefix import PrefixEncoder, attach_prefix, prefix_layers

        self.resolved(adaptable)
        layers = prefix_layers(model)
        if layers is None:
            raise UsageError("the model has a prefix already", "give only one --adapter of these")
        _, attentions = layers
        _, key_heads, _ = attentions[0].head_counts
        _, head_size = attentions[0].heads
        projection = None
        if self.prefix_projection:
            projection = self.encoder_hidden_size or key_heads * head_size
        prefix = PrefixEncoder(
            self.num_virtual_tokens, len(attentions), key_heads, head_size, projection
        )
        attach_prefix(model, prefix, shift_positions=self.shift_positions)
