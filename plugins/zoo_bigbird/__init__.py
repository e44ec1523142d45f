"""BigBird (Zaheer et al. 2020, arXiv:2007.14062)."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.families.adapters import AdapterTargets, separate_targets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.encoder import EncoderFamily, encoder_heads, mlm_head
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_bigbird.config import (
    CONFIG_MAP,
    SPECIAL_TOKENS,
    UNUSED_POOLER_HEADS,
    BigBirdConfig,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.families.onnx import OnnxSpec
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
    def onnx(self, config: Any, head: str) -> "OnnxSpec":
        spec = super().onnx(config, head)
        if head != "question-answering":
            return spec
        # The model finds the types of question and text itself, as the Hub's class does.
        inputs = {name: axes for name, axes in spec.inputs.items() if name != "token_type_ids"}
        return replace(spec, inputs=inputs)

    @override
    def unused_parameters(self, config: Any, head: str) -> Collection[str]:
        if head not in UNUSED_POOLER_HEADS or not config.pooler:
            return ()
        return ("unused_pooler.weight", "unused_pooler.bias")

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        from zoo.tokenizers import Template, sentencepiece_tokenizer
        from zoo.tokenizers.config_files import TokenizerFilesConfig
        from zoo.tokenizers.special_tokens import tokens_by_role

        # The model inputs of transformers' class have no token types: both texts of a pair are of
        # type 0, although the template of its files has the type 1 for the second text.
        template = Template("cls $A sep", "cls $A sep $B sep")
        tokenizer = sentencepiece_tokenizer(
            files, roles=SPECIAL_TOKENS, template=template, mask_takes_space=True
        )
        settings = TokenizerFilesConfig.read(files)
        states_inputs = settings.option("model_input_names", (list, type(None)), None) is not None
        if settings.class_name in (None, *self.tokenizer_classes) and not states_inputs:
            roles = tokens_by_role(settings, SPECIAL_TOKENS)
            tokenizer.post_processor = template.build(tokenizer, roles, settings.origin)
        return tokenizer


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (BigBird(),)
