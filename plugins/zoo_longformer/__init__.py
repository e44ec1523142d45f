"""Longformer (Beltagy et al. 2020, arXiv:2004.05150)."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import VerificationError
from zoo.families.adapters import AdapterTargets, separate_targets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap, TranslatedConfig
from zoo.families.encoder import EncoderFamily, encoder_heads
from zoo.families.longer import LongerModel
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.fairseq import FAIRSEQ_FIRST, FAIRSEQ_ROLES
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_longformer.config import CONFIG_MAP, DEFAULT_RULES, LongformerConfig, longer_roberta

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

    from zoo.io.tensors.formats import TensorInfo
    from zoo.tokenizers import SourceFiles


class Longformer(EncoderFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "longformer"
    package: ClassVar[str] = "zoo_longformer"
    model_types: ClassVar[tuple[str, ...]] = ("longformer",)
    tokenizer_classes: ClassVar[tuple[str, ...]] = ("LongformerTokenizer",)
    config_type: ClassVar[type[Config]] = LongformerConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "longformer-base-4096"
    adapter_targets: ClassVar[AdapterTargets] = separate_targets(
        "query", "key", "value", "output.dense"
    )
    special_tokens: ClassVar[Mapping[str, str]] = FAIRSEQ_ROLES
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "byte-level-bpe": TokenizerTrainSpec(FAIRSEQ_FIRST, ("<mask>",))
    }
    named_heads: ClassVar[Mapping[str, Head]] = encoder_heads("Longformer", pooler=True)
    grown_from: ClassVar[tuple[str, ...]] = ("roberta",)

    @override
    def inputs(self, config: Any) -> tuple[str, ...]:
        names = super().inputs(config)
        return names if config.type_vocab_size > 1 else names[:2]

    @override
    def from_hub(self, hub: Mapping[str, Any], location: str = "config.json") -> TranslatedConfig:
        dilation = hub.get("attention_dilation", 1)
        values = dilation if isinstance(dilation, list | tuple) else (dilation,)
        if any(value != 1 for value in values):
            raise VerificationError(
                f"{location}: attention_dilation = {dilation!r} is not implemented",
                "windows have no gaps: only 1 is, and no published model has another value",
            )
        return super().from_hub(hub, location)

    @override
    def infer_config(
        self, hub: Mapping[str, Any], tensors: "Mapping[str, TensorInfo]", files: "SourceFiles"
    ) -> Mapping[str, Any]:
        if files.has("modules.json"):  # sentence-transformers has windows only.
            return {"global_tokens": "none", **hub}
        return hub

    @override
    def unused_parameters(self, config: Any, head: str) -> Collection[str]:
        modules = []
        rule = DEFAULT_RULES.get(head)
        if rule in (None, "choice"):  # A batch has no global token, or may have none.
            modules += [
                f"layers.{layer}.attention.global_qkv" for layer in range(config.num_layers)
            ]
        if rule == "first" and head != "none":  # Only the first token of the last block is read.
            modules.append(f"layers.{config.num_layers - 1}.attention.qkv")
        return [f"{module}.{part}" for module in modules for part in ("weight", "bias")]

    @override
    def longer_model(self, family: str, config: Any, max_seq_len: int) -> LongerModel:
        if family not in self.grown_from:
            return super().longer_model(family, config, max_seq_len)
        return longer_roberta(config, max_seq_len)

    @override
    def reference_inputs(
        self, head: str, inputs: "Mapping[str, Tensor]", reference_config: Any
    ) -> "Mapping[str, Tensor]":
        from zoo_longformer.model import global_attention_mask

        if head not in DEFAULT_RULES:
            return inputs
        return {
            **inputs,
            "global_attention_mask": global_attention_mask(head, inputs, reference_config),
        }

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        from zoo.tokenizers import fairseq_bpe_tokenizer

        return fairseq_bpe_tokenizer(files, roles=FAIRSEQ_ROLES)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Longformer(),)
