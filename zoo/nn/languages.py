"""Language embeddings: a vector for the language of each token (arXiv:1901.07291, section 3.1)."""

from typing import Any

from torch import Tensor, nn

from zoo.nn.encoder import Encoder
from zoo.nn.transformer import Embeddings
from zoo.overrides import override


class LanguageEmbeddings(Embeddings):
    """Embeddings that may get the languages of tokens, in place of segment types.

    Args:
        num_languages: number of languages; 0 for no language embeddings.
        **options: see ``Embeddings``.
    """

    def __init__(self, *, num_languages: int, **options: Any) -> None:
        super().__init__(**options)
        self.languages: nn.Embedding | None = None
        if num_languages:
            self.languages = nn.Embedding(num_languages, options["hidden_size"])

    @override
    def embed_segments(self, token_type_ids: Tensor | None) -> Tensor | None:
        """Return the embeddings of languages; ``None`` if no languages are given.

        Raises:
            ValueError: languages are given to a model without language embeddings.
        """
        if token_type_ids is None:
            return None
        if self.languages is None:
            raise ValueError("langs are given, and this model has no language embeddings")
        return self.languages(token_type_ids)  # type: ignore[no-any-return]


class LanguageInputs(Encoder):
    """Mixin before the class of a head, for encoders with ``LanguageEmbeddings``."""

    @override
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        langs: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Run backbone and head.

        Args:
            input_ids: (batch, tokens), int64.
            attention_mask: (batch, tokens), int64: 1 for tokens, 0 for padding; ``None`` for all 1.
            langs: the language of each token, (batch, tokens), int64; ``None`` to add no language.
        """
        return super().forward(input_ids, attention_mask, langs)
