"""The vocabulary of a tokenizer for objectives: special tokens, templates and word starts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from zoo.errors import UsageError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers.info import TokenizerInfo

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class SpecialTokensTemplate:
    """The special tokens around one text, or around and between two."""

    # ids before the first text, after it, and so on: one tuple more than texts
    special_tokens: tuple[tuple[int, ...], ...]
    token_types: tuple[int, ...]  # token type of each part and each text, in order

    @property
    def size(self) -> int:
        """Number of special tokens."""
        return sum(map(len, self.special_tokens))

    def wrap(self, *texts: Ids) -> tuple[Ids, Ids, NDArray[np.bool_]]:
        """Add special tokens; return ids, types and the mask of text tokens, (tokens,) each."""
        pieces: list[Ids] = [np.array(self.special_tokens[0], dtype=np.int64)]
        for text, suffix in zip(texts, self.special_tokens[1:], strict=True):
            pieces += [text, np.array(suffix, dtype=np.int64)]
        sizes = [len(piece) for piece in pieces]
        token_types = np.repeat(np.array(self.token_types, dtype=np.int64), sizes)
        # Special tokens and texts alternate.
        is_text = np.repeat(np.arange(len(sizes)) % 2 == 1, sizes)
        return np.concatenate(pieces), token_types, is_text


def follows_space(text: str) -> bool:
    """Return whether the text of a token starts with a space; see ``Family.starts_word``."""
    return text.startswith(" ")


class TokenizerView:
    """The vocabulary of a tokenizer, for objectives.

    Args:
        tokenizer: tokenizer without truncation or padding.
        info: special tokens by role.
        size: number of rows of the model's token embedding, at least the size of the vocabulary.
        text_starts_word: rule for vocabularies that mark spaces, see ``Family.starts_word``.
    """

    def __init__(
        self,
        tokenizer: "Tokenizer",
        info: "TokenizerInfo",
        size: int,
        text_starts_word: Callable[[str], bool] = follows_space,
    ) -> None:
        self.tokenizer = tokenizer
        self.info = info
        self.vocab_size = size
        self.text_starts_word = text_starts_word

    def special_token_id(self, role: str) -> int:
        """Return the id of the special token of a role, such as ``mask``.

        Raises:
            UsageError: the tokenizer has no such token.
        """
        token_id: int | None = None
        token = self.info.special.get(role)
        if token is not None:
            token_id = self.tokenizer.token_to_id(token)
        if token_id is None:
            raise UsageError(
                f"the tokenizer has no {role} token, which this objective needs",
                "choose another tokenizer, or train one with `--tokenizer train`",
            )
        return token_id

    @property
    def pad_id(self) -> int:
        """Id of the padding token; 0 if there is none."""
        if "pad" not in self.info.special:
            return 0
        return self.special_token_id("pad")

    @cached_property
    def single_template(self) -> SpecialTokensTemplate:
        """Template of one text."""
        return self._template("a", None)

    @cached_property
    def pair_template(self) -> SpecialTokensTemplate:
        """Template of two texts."""
        return self._template("a", "a")

    def _template(self, first: str, second: str | None) -> SpecialTokensTemplate:
        """Return the template of an example encoding."""
        encoding = self.tokenizer.encode(first, second)
        special_parts: list[list[int]] = [[]]
        token_types: list[int] = [encoding.type_ids[0]]
        last_text: int | None = None
        for token_id, token_type, text in zip(
            encoding.ids, encoding.type_ids, encoding.sequence_ids, strict=True
        ):
            if text is None:
                if not special_parts[-1]:
                    token_types[-1] = token_type
                special_parts[-1].append(token_id)
            elif text != last_text:
                token_types += [token_type, token_type]
                special_parts.append([])
                last_text = text
        return SpecialTokensTemplate(tuple(map(tuple, special_parts)), tuple(token_types))

    @cached_property
    def special_ids(self) -> Ids:
        """Sorted ids of the special tokens, int64."""
        added_tokens = self.tokenizer.get_added_tokens_decoder()
        ids = [token_id for token_id, token in added_tokens.items() if token.special]
        return np.array(sorted(ids), dtype=np.int64)

    @cached_property
    def ordinary_ids(self) -> Ids:
        """Sorted ids of all other tokens, int64."""
        ids = np.fromiter(self.tokenizer.get_vocab().values(), dtype=np.int64)
        return np.setdiff1d(ids, self.special_ids)

    @cached_property
    def starts_word(self) -> NDArray[np.bool_]:
        """Mask of the tokens that start a word, (vocab_size,), bool.

        Three conventions are supported: a prefix of continuation pieces (``##``), a prefix of
        pieces after a space (``\\u0120`` for bytes, ``\\u2581`` for SentencePiece), where
        ``text_starts_word`` decides, and a suffix of pieces that end a word (``</w>``), which does
        not mark starts: there, every piece does.
        """
        vocabulary: Mapping[str, int] = self.tokenizer.get_vocab()
        decode = _token_decoder(vocabulary)
        starts_word = np.ones(self.vocab_size, dtype=bool)
        for token, token_id in vocabulary.items():
            if token.startswith("##") and len(token) > 2:
                starts_word[token_id] = False
            elif decode is not None:
                starts_word[token_id] = self.text_starts_word(decode(token))
        starts_word[self.special_ids] = True
        return starts_word


def _token_decoder(vocabulary: Mapping[str, int]) -> Callable[[str], str] | None:
    """Return the function from a token to its text; ``None`` where tokens do not mark spaces."""
    from tokenizers import decoders

    if any(token.startswith("\u0120") for token in vocabulary):
        byte_level = decoders.ByteLevel()
        return lambda token: byte_level.decode([token])
    if any(token.startswith("\u2581") for token in vocabulary):
        return lambda token: token.replace("\u2581", " ")
    return None
