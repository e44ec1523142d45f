"""Settings of sentence encoders: modules after the backbone, prompts, similarity of embeddings."""

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from zoo.errors import UsageError, did_you_mean
from zoo.io.json import JsonStruct
from zoo.sentence_models.modules import (
    SENTENCE_VECTOR,
    UNKNOWN,
    AnyModule,
    DenseModule,
    Features,
    LexicalPoolingModule,
    MaskModule,
    NormalizeModule,
    PoolingMode,
    PoolingModule,
    SentenceModule,
    Shapes,
    final_features,
    weighted_modules,
)

if TYPE_CHECKING:
    from zoo.tokenizers.tokenizer import TextTokenizer

__all__ = ["Pooling", "PoolingMode", "QueryExpansion", "SimilarityFunction"]

SimilarityFunction = Literal["cosine", "dot", "euclidean", "manhattan", "maxsim", "meanmaxsim"]
EncoderType = Literal["SentenceTransformer", "SparseEncoder", "MultiVectorEncoder"]
SIMILARITIES: dict[EncoderType, tuple[SimilarityFunction, ...]] = {  # the first is the default
    "SentenceTransformer": ("cosine", "dot", "euclidean", "manhattan"),
    "SparseEncoder": ("dot", "cosine", "euclidean", "manhattan"),
    "MultiVectorEncoder": ("maxsim", "meanmaxsim"),
}
# names of prompts in retrieval
DENSE = "dense"  # The representation that ``Pooling`` itself describes.
# Roles of the special tokens that have no lexical weight.
SPECIAL_ROLES = ("bos", "cls", "eos", "sep", "pad", "unk")
QUERY = ("query", "retrieval.query")
DOCUMENT = ("document", "passage", "corpus", "retrieval.passage")


class QueryExpansion(JsonStruct):
    """Mask tokens after a query, which late interaction scores (arXiv:2004.12832, section 3.2)."""

    strategy: Literal["fixed", "min"]  # ``min`` does not truncate longer queries
    length: Annotated[int, msgspec.Meta(ge=1)]  # number of tokens of a query
    attend: bool = False  # whether the tokens of the query attend to the expansion
    token: str | None = None  # by default the mask token

    def token_id(self, tokenizer: "TextTokenizer") -> int:
        """Return the id of the token: of the mask token, or of the last one if there is none."""
        if self.token is not None:
            token_id = tokenizer.token_id(self.token)
        else:
            token_id = tokenizer.mask_id
            if token_id is None:
                token_id = tokenizer.role_id("eos")
        if token_id is None:
            raise UsageError(
                f"queries are expanded by {self.token or 'a mask token'}, which the vocabulary "
                "lacks",
                "convert the model with its own tokenizer",
            )
        return token_id


class Pooling(JsonStruct):
    """Computation of embeddings from the output of a model, as in sentence-transformers."""

    # ``mean`` of the tokens, first token (``cls``), ``max``, ``mean_sqrt_len_tokens``,
    # ``weightedmean`` (weights are positions) or ``lasttoken``
    mode: PoolingMode = "mean"
    normalize: bool = False  # scale the embedding to unit length
    # maximum length of a text in tokens; ``None`` for the model's
    max_tokens: int | None = None
    lowercase: bool = False  # lower-case the text before tokenization
    # whether the tokens of a prompt, and special tokens before them, are pooled
    include_prompt: bool = True
    # name -> text that precedes a text
    prompts: dict[str, str] = msgspec.field(default_factory=dict)
    default_prompt_name: str | None = None  # name of the prompt of a text for which none is chosen
    # similarity of two embeddings; of distances, the negative
    similarity_fn_name: SimilarityFunction = "cosine"
    # number of leading dimensions of the embedding that are kept, after ``normalize``; ``None`` for
    # all
    truncate_dim: int | None = None
    # file -> its keys that do not change embeddings, which conversion to the Hub's layout writes
    # back
    extra: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    # modules after the backbone, in place of ``mode``, ``include_prompt`` and ``normalize``, which
    # describe the usual two; see ``steps``
    modules: tuple[AnyModule, ...] = ()
    # vectors of texts, weights of the vocabulary's words, or vectors of tokens
    model_type: EncoderType = "SentenceTransformer"
    # output of the model that the modules read
    output: Literal["last_hidden_state", "logits"] = "last_hidden_state"
    # number of the largest weights of a sparse embedding that are kept; ``None`` for all
    max_active_dims: int | None = None
    query_length: int | None = None  # maximum length of queries; ``None`` for ``max_tokens``
    document_length: int | None = None  # maximum length of documents
    query_expansion: QueryExpansion | None = None
    # name -> further representation of a text, which modules of its own compute from the same
    # output of the model
    representations: dict[str, "Pooling"] = msgspec.field(default_factory=dict)
    # folder of a checkpoint that holds the folders of the modules; empty for the checkpoint itself
    folder: str = ""

    @property
    def steps(self) -> tuple[AnyModule, ...]:
        """Modules after the backbone, in order."""
        if self.modules:
            return self.modules
        return usual_steps(self.mode, include_prompt=self.include_prompt, normalize=self.normalize)

    @property
    def normalizes(self) -> bool:
        """Whether embeddings of texts have unit length before they are truncated."""
        for step in reversed(self.steps):
            if not isinstance(step, NormalizeModule):
                return False
            if step.module_output_name == SENTENCE_VECTOR:
                return True
        return False

    @property
    def pools_prompt(self) -> bool:
        """Whether all tokens of a prompt are pooled."""
        pooling_steps = [step for step in self.steps if isinstance(step, PoolingModule)]
        return all(step.include_prompt for step in pooling_steps)

    def skipped_tokens(self, tokenizer: "TextTokenizer") -> list[int]:
        """Return the ids of the tokens that late interaction or lexical weights leave out."""
        token_ids = list[int]()
        for step in self.steps:
            if isinstance(step, LexicalPoolingModule):
                role_ids = map(tokenizer.role_id, SPECIAL_ROLES)
                token_ids += sorted({number for number in role_ids if number is not None})
            if not isinstance(step, MaskModule):
                continue
            for word in step.skiplist_words:
                token_id = tokenizer.token_id(word)
                if token_id is not None:
                    token_ids.append(token_id)
        return token_ids

    def limit(self, role: str | None) -> int | None:
        """Return the maximum length of a ``query``, ``document`` or other text in tokens."""
        role_limit = None
        if role == "query":
            role_limit = self.query_length
        elif role == "document":
            role_limit = self.document_length
        expansion = self.query_expansion if role == "query" else None
        if expansion is not None and expansion.strategy == "fixed":
            return expansion.length
        if expansion is not None and role_limit is not None:
            return max(role_limit, expansion.length)
        return self.max_tokens if role_limit is None else role_limit

    def input_width(self, config: Any) -> int:
        """Return the width of the output that the modules read, for the model's configuration."""
        field = "vocab_size" if self.output == "logits" else "hidden_size"
        width: int = getattr(config, field, UNKNOWN)
        return width

    def features(self, width: int, folders: Mapping[str, str] | None = None) -> Features:
        """Return the features after all modules, of an output of the model of a width.

        Errors name the folders of modules; see ``final_features``.
        """
        return final_features(self.steps, width, folders)

    def weighted_modules(self) -> dict[str, Shapes]:
        """Return folder in a checkpoint -> names and shapes of weights, of all representations."""
        shapes_by_folder = {}
        for pooling in (self, *self.representations.values()):
            for folder, shapes in weighted_modules(pooling.steps).items():
                shapes_by_folder[pooling.checkpoint_folder(folder)] = shapes
        return shapes_by_folder

    def checkpoint_folder(self, folder: str) -> str:
        """Return the folder in a checkpoint of the folder of a module."""
        return f"{self.folder}/{folder}" if self.folder else folder

    def with_vocabulary(self, vocab_size: int) -> "Pooling":
        """Return the settings for another number of tokens of the vocabulary."""
        modules = list[AnyModule]()
        for module in self.modules:
            if isinstance(module, LexicalPoolingModule):
                module = msgspec.structs.replace(module, vocab_size=vocab_size)
            modules.append(module)
        representations = {}
        for name, pooling in self.representations.items():
            representations[name] = pooling.with_vocabulary(vocab_size)
        return msgspec.structs.replace(
            self, modules=tuple(modules), representations=representations
        )

    def representation(self, name: str | None) -> "Pooling":
        """Return the settings of a representation of texts by its name; by default the first.

        Raises:
            UsageError: the model has no such representation.
        """
        if name is None or name == DENSE:
            return self
        if name in self.representations:
            return self.representations[name]
        names = (DENSE, *self.representations)
        raise UsageError(
            f"the model has no representation {name!r:.100}: it has {', '.join(names)}",
            did_you_mean(name, list(names)) or "leave the representation out",
        )

    def describe(self) -> str:
        """Return the modules in words, such as ``mean, normalized``."""
        words = {
            "Normalize": "normalized",
            "SpladePooling": "SPLADE",
            "MultiVectorMask": "mask",
            "LexicalPooling": "lexical weights",
        }
        parts = []
        for step in self.steps:
            if isinstance(step, PoolingModule):
                parts.append("+".join(step.modes))
            elif isinstance(step, DenseModule):
                parts.append(f"dense {step.out_features}")
            else:
                parts.append(words.get(step.class_name, step.class_name.lower()))
        return ", ".join(parts) or "none"

    def prompt(self, name: str | None = None) -> str:
        """Return the text of a prompt, by default of the default prompt, if any."""
        return find_prompt(self.prompts, name, self.default_prompt_name)

    def query_prompt(self) -> str:
        """Return the prompt of a query in retrieval; empty if there is none."""
        return self.prompts.get(self.role_prompt_name("query") or "", "")

    def document_prompt(self) -> str:
        """Return the prompt of a text that is retrieved; empty if there is none.

        A prompt without text does not hide the next one: sentence-transformers writes an empty
        ``document`` next to the ``passage`` of a model.
        """
        return self.prompts.get(self.role_prompt_name("document") or "", "")

    def role_prompt_name(self, role: Literal["query", "document"]) -> str | None:
        """Return the name of the prompt of a role in retrieval; ``None`` if it has none."""
        for name in QUERY if role == "query" else DOCUMENT:
            if self.prompts.get(name):
                return name
        return None

    def dimension(self, width: int) -> int:
        """Return the size of an embedding, given the width of the model's output."""
        features = self.features(width)
        name = SENTENCE_VECTOR if SENTENCE_VECTOR in features else next(iter(features))
        size = features[name].width
        return size if self.truncate_dim is None else min(self.truncate_dim, size)


def find_prompt(prompts: Mapping[str, str], name: str | None, default: str | None) -> str:
    """Return the text of a prompt; without a name, of the default one, if any."""
    if name is None:
        return prompts.get(default or "", "")
    if name in prompts:
        return prompts[name]
    names = ", ".join(prompts)
    available = f"its prompts are {names}" if names else "it has none"
    raise UsageError(
        f"the model has no prompt {name!r:.100}: {available}",
        did_you_mean(name, list(prompts)) or "give the text itself",
    )


@functools.cache  # Each embedding reads them several times, and records take long to make.
def usual_steps(
    mode: PoolingMode, *, include_prompt: bool, normalize: bool
) -> tuple[PoolingModule] | tuple[PoolingModule, NormalizeModule]:
    """Return the modules of one mode of pooling, and perhaps of normalization."""
    pooling = PoolingModule(modes=(mode,), include_prompt=include_prompt)
    if normalize:
        return (pooling, NormalizeModule())
    return (pooling,)


def is_usual(steps: tuple[SentenceModule, ...]) -> bool:
    """Return whether modules are one mode of pooling, and perhaps the usual normalization."""
    if not steps:
        return False
    pooling, *later_steps = steps
    if not isinstance(pooling, PoolingModule) or len(pooling.modes) != 1:
        return False
    return later_steps in ([], [NormalizeModule()])
