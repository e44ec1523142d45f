"""Prompt tuning (Lester et al. 2021, arXiv:2104.08691)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from zoo.adapted_models.virtual_tokens import VirtualTokens
from zoo.errors import UsageError
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import nn

    from zoo.adapted_models.targets import AdaptableModel


class PromptTuning(VirtualTokens, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Learned embeddings of virtual tokens before each text."""

    name: ClassVar[str] = "prompt"
    # as in the examples of peft; the paper trains with Adafactor at 0.3
    defaults: ClassVar[Mapping[str, Any]] = {
        "optimizer": {"learning_rate": 3e-2, "layerwise_lr_decay": 1.0},
        "warmup_ratio": 0.06,
    }

    # what they begin with: embeddings of tokens of the vocabulary, which section 3.2 finds better,
    # or normally distributed numbers, the default of peft
    init: Literal["sample_vocab", "random"] = "sample_vocab"

    @override
    def resolved(self, adaptable: "AdaptableModel") -> Self:
        from zoo.nn.adapters.prompt import token_embeddings

        if token_embeddings(adaptable.model) is None:
            raise UsageError(
                f"models of {adaptable.family.name} have no table of token embeddings, and no "
                "place for a prompt",
                "choose another --adapter",
            )
        return super().resolved(adaptable)

    @override
    def add_to(self, model: "nn.Module", adaptable: "AdaptableModel") -> None:
        from zoo.nn.adapters.prompt import SoftPrompt, attach_prompt, prompt_of, token_embeddings
        from zoo.nn.decoder import CausalBackbone

        self.resolved(adaptable)
        if prompt_of(model) is not None:
            raise UsageError("the model has a prompt already", "give only one --adapter of prompts")
        table: Any = token_embeddings(model)
        outputs = adaptable.family.onnx(adaptable.config, adaptable.head).outputs
        token_axes = {}
        for name, axes in outputs.items():
            if "tokens" in axes:
                token_axes[name] = axes.index("tokens")
        prompt = SoftPrompt(
            self.num_virtual_tokens,
            table.embedding_dim,
            token_axes,
            follows_padding=isinstance(model, CausalBackbone),
        )
        if self.init == "sample_vocab":
            prompt.sample(table.weight.detach())
        attach_prompt(model, prompt)
