"""Settings of sentence encoders: pooling of tokens, prompts and similarity of embeddings."""

from typing import Any, Literal

import msgspec

from zoo.errors import UsageError, did_you_mean
from zoo.io.json import JsonStruct

PoolingMode = Literal["mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
SimilarityFunction = Literal["cosine", "dot", "euclidean", "manhattan"]
QUERY, DOCUMENT = ("query",), ("document", "passage", "corpus")  # names of prompts in retrieval


class Pooling(JsonStruct):
    """Computation of a sentence embedding from token embeddings, as in sentence-transformers."""

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

    def prompt(self, name: str | None = None) -> str:
        """Return the text of a prompt, by default of the default prompt, if any."""
        if name is None:
            return self.prompts.get(self.default_prompt_name or "", "")
        if name not in self.prompts:
            known = ", ".join(self.prompts)
            listed = f"its prompts are {known}" if known else "it has none"
            raise UsageError(
                f"the model has no prompt {name!r:.100}: {listed}",
                did_you_mean(name, list(self.prompts)) or "give the text itself",
            )
        return self.prompts[name]

    def query_prompt(self) -> str:
        """Return the prompt of a query in retrieval; empty if there is none."""
        return self._first(QUERY)

    def document_prompt(self) -> str:
        """Return the prompt of a text that is retrieved; empty if there is none."""
        # A prompt without text does not hide the next one: sentence-transformers writes an empty
        # ``document`` next to the ``passage`` of a model
        return self._first(DOCUMENT)

    def _first(self, names: tuple[str, ...]) -> str:
        return next((self.prompts[name] for name in names if self.prompts.get(name)), "")

    def dimension(self, hidden_size: int) -> int:
        """Return the size of an embedding."""
        return hidden_size if self.truncate_dim is None else min(self.truncate_dim, hidden_size)
