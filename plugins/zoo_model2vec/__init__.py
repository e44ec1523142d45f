"""Static embeddings of model2vec and sentence-transformers: vectors of tokens, and their mean."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from zoo.errors import UsageError, VerificationError
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.heads import standard_head
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo_model2vec.config import CONFIG_MAP, Model2VecConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.families.recipe import Recipe
    from zoo.io.tensors.formats import TensorInfo
    from zoo.sentence_models.pooling import Pooling
    from zoo.tokenizers import SourceFiles

TABLES = ("embeddings", "embedding.weight")  # in model2vec, and in sentence-transformers
MAX_TOKENS = 512  # of a text, where model2vec's configuration does not say it
_UNWRITTEN = ("id2label", "label2id", "problem_type")


class Model2Vec(Family):
    """The family; it imports torch when a model is built.

    A directory of model2vec has a ``config.json``. One of sentence-transformers has none, and its
    model may be in the folder ``0_StaticEmbedding``. Texts have no special tokens.
    """

    name: ClassVar[str] = "model2vec"
    package: ClassVar[str] = "zoo_model2vec"
    model_types: ClassVar[tuple[str, ...]] = ("model2vec",)
    config_type: ClassVar[type[Config]] = Model2VecConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "potion-base-8m"
    sentence_module: ClassVar[str] = "StaticEmbedding"

    @override
    def heads(self) -> Mapping[str, Head]:
        summary = "vectors of tokens, whose mean is the embedding of a text"
        return {"none": standard_head("none", "Static", summary=summary)}

    @override
    def recipe(self, size: str) -> "Recipe":
        raise UsageError(
            "static embeddings are not pretrained: they are distilled from an encoder",
            "`zoo distill --teacher REF --student static` trains them, and `zoo export REF "
            "--to static` makes them without data",
        )

    @override
    def infer_config(
        self, hub: Mapping[str, Any], tensors: "Mapping[str, TensorInfo]", files: "SourceFiles"
    ) -> dict[str, Any]:
        keys = dict(hub)
        shapes = [tensors[name].shape for name in TABLES if name in tensors]
        if shapes and len(shapes[0]) == 2:
            keys.setdefault("vocab_size", shapes[0][0])
            keys.setdefault("hidden_dim", shapes[0][1])
        # A model without a configuration is of sentence-transformers, which skips no token.
        if hub and "skipped_token_id" not in hub:
            keys["skipped_token_id"] = unknown_token_id(files)
        return keys

    @override
    def sentence_settings(
        self, hub: Mapping[str, Any], pooling: "Pooling | None", location: str
    ) -> "Pooling | None":
        from zoo.sentence_models.pooling import Pooling

        if not hub:
            return pooling
        normalizes = hub.get("normalize", False)
        limit = hub.get("max_length", MAX_TOKENS)
        if not isinstance(normalizes, bool):
            raise VerificationError(f"{location}: normalize is neither true nor false")
        if limit is not None and (type(limit) is not int or limit < 1):
            raise VerificationError(f"{location}: max_length is not a number of tokens")
        pooling = Pooling(normalize=normalizes) if pooling is None else pooling
        if pooling.normalizes != normalizes:
            raise VerificationError(
                f"{location}: normalize is {str(normalizes).lower()}, and modules.json says "
                f"otherwise: {pooling.describe()}",
                "correct one of them",
            )
        return msgspec.structs.replace(pooling, max_tokens=limit)

    @override
    def sentence_keys(self, pooling: "Pooling") -> dict[str, Any]:
        return {"normalize": pooling.normalizes, "max_length": pooling.max_tokens}

    @override
    def library_example(self, repository: str, texts: str) -> tuple[str, tuple[str, ...]]:
        lines = (
            "from model2vec import StaticModel",
            "",
            f'model = StaticModel.from_pretrained("{repository}")',
            f"embeddings = model.encode({texts})",
            "print(embeddings)",
        )
        return "model2vec", lines

    @override
    def to_hub(self, config: Any, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        hub = super().to_hub(config, extra)
        return {key: value for key, value in hub.items() if key not in _UNWRITTEN}

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        from zoo.tokenizers.tokenizer_json import load

        tokenizer = load(files)
        tokenizer.post_processor = None  # Neither library adds special tokens.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer


def unknown_token_id(files: "SourceFiles") -> int | None:
    """Return the id of the unknown token of a tokenizer, which model2vec leaves out."""
    from zoo.tokenizers.tokenizer_json import read_definition

    if not files.has("tokenizer.json"):
        return None
    definition = read_definition(files)
    model = definition["model"]
    added = definition.get("added_tokens") or ()
    unigram_id: int | None = model.get("unk_id")
    if unigram_id is not None:
        return unigram_id
    ids = {token["content"]: token["id"] for token in added}
    if isinstance(model["vocab"], dict):
        ids |= model["vocab"]
    return ids.get(model.get("unk_token"))


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Model2Vec(),)
