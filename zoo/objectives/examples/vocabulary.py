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
        for text, after in zip(texts, self.special_tokens[1:], strict=True):
            pieces += [text, np.array(after, dtype=np.int64)]
        sizes = [len(piece) for piece in pieces]
        kinds = np.repeat(np.array(self.token_types, dtype=np.int64), sizes)
        return np.concatenate(pieces), kinds, np.repeat(np.arange(len(sizes)) % 2 == 1, sizes)


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
        token = self.info.special.get(role)
        number: int | None = None if token is None else self.tokenizer.token_to_id(token)
        if number is None:
            raise UsageError(
                f"the tokenizer has no {role} token, which this objective needs",
                "choose another tokenizer, or train one with `--tokenizer train`",
            )
        return number

    @property
    def pad_id(self) -> int:
        """Id of the padding token; 0 if there is none."""
        return self.special_token_id("pad") if "pad" in self.info.special else 0

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
        parts: list[list[int]] = [[]]
        types: list[int] = [encoding.type_ids[0]]
        seen: int | None = None
        for number, kind, text in zip(
            encoding.ids, encoding.type_ids, encoding.sequence_ids, strict=True
        ):
            if text is None:
                if not parts[-1]:
                    types[-1] = kind
                parts[-1].append(number)
            elif text != seen:
                types += [kind, kind]
                parts.append([])
                seen = text
        return SpecialTokensTemplate(tuple(map(tuple, parts)), tuple(types))

    @cached_property
    def special_ids(self) -> Ids:
        """Sorted ids of the special tokens, int64."""
        added = self.tokenizer.get_added_tokens_decoder()
        return np.array(sorted(k for k, token in added.items() if token.special), dtype=np.int64)

    @cached_property
    def ordinary_ids(self) -> Ids:
        """Sorted ids of all other tokens, int64."""
        known = np.fromiter(self.tokenizer.get_vocab().values(), dtype=np.int64)
        return np.setdiff1d(known, self.special_ids)

    @cached_property
    def starts_word(self) -> NDArray[np.bool_]:
        """Mask of the tokens that start a word, (vocab_size,), bool.

        Three conventions are supported: a prefix of continuation pieces (``##``), a prefix of
        pieces after a space (``\\u0120`` for bytes, ``\\u2581`` for SentencePiece), where
        ``text_starts_word`` decides, and a suffix of pieces that end a word (``</w>``), which does
        not mark starts: there, every piece does.
        """
        spelled: Mapping[str, int] = self.tokenizer.get_vocab()
        text_of = _token_text(spelled)
        starts = np.ones(self.vocab_size, dtype=bool)
        for token, number in spelled.items():
            if token.startswith("##") and len(token) > 2:
                starts[number] = False
            elif text_of is not None:
                starts[number] = self.text_starts_word(text_of(token))
        starts[self.special_ids] = True
        return starts


def _token_text(vocabulary: Mapping[str, int]) -> Callable[[str], str] | None:
    """Return the function from a token to its text; ``None`` where tokens do not mark spaces."""
    from tokenizers import decoders

    if any(token.startswith("\u0120") for token in vocabulary):
        byte_level = decoders.ByteLevel()
        return lambda token: byte_level.decode([token])
    if any(token.startswith("\u2581") for token in vocabulary):
        return lambda token: token.replace("\u2581", " ")
    return None
