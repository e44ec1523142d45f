"""BERT (Devlin et al. 2018, arXiv:1810.04805)."""

from collections.abc import Mapping
from typing import ClassVar

from zoo.families.adapters import AdapterTargets, separate_targets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.encoder import WordPieceFamily, encoder_heads, mlm_head
from zoo.plugins.hookspecs import hookimpl
from zoo_bert.config import CONFIG_MAP, BertConfig


class Bert(WordPieceFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "bert"
    package: ClassVar[str] = "zoo_bert"
    model_types: ClassVar[tuple[str, ...]] = ("bert",)
    tokenizer_classes: ClassVar[tuple[str, ...]] = ("BertTokenizer", "BertJapaneseTokenizer")
    config_type: ClassVar[type[Config]] = BertConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    config_files: ClassVar[tuple[str, ...]] = ("config.json", "bert_config.json")
    default_checkpoint: ClassVar[str] = "bert-base-uncased"
    adapter_targets: ClassVar[AdapterTargets] = separate_targets(
        "query", "key", "value", "output.dense", prefix_model_types=("bert",)
    )
    named_heads: ClassVar[Mapping[str, Head]] = {
        **encoder_heads("Bert", pooler=True),
        "pretraining": mlm_head(
            "BertForPreTraining",
            summary="masked tokens and next sentence",
            tasks=("next-sentence",),
            seq_relationship_logits="batch 2",
        ),
        # No class of transformers has three classes of pairs.
        "structural-pretraining": mlm_head(
            summary="masked tokens, and a segment that follows, precedes or is random",
            tasks=("sentence-structure",),
            seq_relationship_logits="batch 3",
        ),
    }


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Bert(),)
