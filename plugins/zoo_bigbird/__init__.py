"""BigBird (Zaheer et al. 2020, arXiv:2007.14062)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from zoo.families.adapters import AdapterTargets, separate_targets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.encoder import EncoderFamily, encoder_heads, mlm_head
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_bigbird.config import CONFIG_MAP, SPECIAL_TOKENS, BigBirdConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles


class BigBird(EncoderFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "bigbird"
    package: ClassVar[str] = "zoo_bigbird"
    model_types: ClassVar[tuple[str, ...]] = ("big_bird",)
    tokenizer_classes: ClassVar[tuple[str, ...]] = ("BigBirdTokenizer",)
    config_type: ClassVar[type[Config]] = BigBirdConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "bigbird-roberta-base"
    special_tokens: ClassVar[Mapping[str, str]] = SPECIAL_TOKENS
    adapter_targets: ClassVar[AdapterTargets] = separate_targets(
        "query", "key", "value", "output.dense"
    )
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "unigram": TokenizerTrainSpec(
            ("<pad>", "</s>", "<s>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
        )
    }
    named_heads: ClassVar[Mapping[str, Head]] = {
        **encoder_heads("BigBird", pooler=True),
        "pretraining": mlm_head(
            "BigBirdForPreTraining",
            summary="masked tokens and next sentence",
            tasks=("next-sentence",),
            seq_relationship_logits="batch 2",
        ),
    }

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        from zoo.tokenizers import CLS_SEP, sentencepiece_tokenizer

        return sentencepiece_tokenizer(
            files, roles=SPECIAL_TOKENS, template=CLS_SEP, mask_takes_space=True
        )


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (BigBird(),)
