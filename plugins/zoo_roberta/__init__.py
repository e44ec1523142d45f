"""RoBERTa (Liu et al. 2019, arXiv:1907.11692), XLM-RoBERTa, its XL and XXL, and CamemBERT."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.families.adapters import AdapterTargets, separate_targets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.encoder import EncoderFamily, encoder_heads
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.fairseq import FAIRSEQ_FIRST, FAIRSEQ_ROLES
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_roberta.config import CONFIG_MAP, CONFIG_MAPS, RobertaConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles


class Roberta(EncoderFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "roberta"
    package: ClassVar[str] = "zoo_roberta"
    model_types: ClassVar[tuple[str, ...]] = (
        "roberta",
        "xlm-roberta",
        "camembert",
        "xlm-roberta-xl",
    )
    tokenizer_classes: ClassVar[tuple[str, ...]] = (
        "PhobertTokenizer",
        "BertweetTokenizer",
        "RobertaTokenizer",
        "XLMRobertaTokenizer",
        "CamembertTokenizer",
    )
    config_type: ClassVar[type[Config]] = RobertaConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    config_maps: ClassVar[Mapping[str, ConfigMap]] = CONFIG_MAPS
    default_checkpoint: ClassVar[str] = "roberta-base"
    adapter_targets: ClassVar[AdapterTargets] = separate_targets(
        "query",
        "key",
        "value",
        "output.dense",
        prefix_model_types=("roberta", "xlm-roberta", "camembert"),
    )
    special_tokens: ClassVar[Mapping[str, str]] = FAIRSEQ_ROLES
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = dict.fromkeys(
        ("byte-level-bpe", "unigram"),
        TokenizerTrainSpec(FAIRSEQ_FIRST, ("<mask>",)),
    )
    # They have the order of the model types.
    named_heads: ClassVar[Mapping[str, Head]] = encoder_heads(
        "Roberta", "XLMRoberta", "Camembert", "XLMRobertaXL", pooler=True
    )

    @override
    def inputs(self, config: Any) -> tuple[str, ...]:
        names = super().inputs(config)
        return names if config.type_vocab_size > 1 else names[:2]

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        from zoo_roberta.tokenizer import tokenizer

        return tokenizer(files)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Roberta(),)
