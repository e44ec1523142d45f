"""What an objective needs to know of a tokenizer: special tokens, frames, where words start."""

from collections.abc import Mapping
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
    """The special tokens around a text, or around and between two.

    Attributes:
        parts: the special tokens before the first text, after it, and so on: one list more than
            there are texts.
        types: the segment of each part and each text, in the order in which they stand.
    """

    special_tokens: tuple[tuple[int, ...], ...]
    token_types: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many special tokens there are."""
        return sum(map(len, self.special_tokens))

    def wrap(self, *texts: Ids) -> tuple[Ids, Ids, NDArray[np.bool_]]:
        """Put texts into the frame.

        Returns:
            token numbers, their segments, and which of them are the texts', (tokens,) each.
        """
        pieces: list[Ids] = [np.array(self.special_tokens[0], dtype=np.int64)]
        for text, after in zip(texts, self.special_tokens[1:], strict=True):
            pieces += [text, np.array(after, dtype=np.int64)]
        sizes = [len(piece) for piece in pieces]
        kinds = np.repeat(np.array(self.token_types, dtype=np.int64), sizes)
        return np.concatenate(pieces), kinds, np.repeat(np.arange(len(sizes)) % 2 == 1, sizes)


class TokenizerView:
    """A tokenizer, as objectives see it.

    Args:
        tokenizer: without truncation or padding.
        info: its special tokens by role.
        size: rows of the model's token embedding, at least as many as there are tokens.
    """

    def __init__(self, tokenizer: "Tokenizer", info: "TokenizerInfo", size: int) -> None:
        self.tokenizer, self.info, self.vocab_size = tokenizer, info, size

    def special_token_id(self, role: str) -> int:
        """Return the id of the token that plays a role such as ``mask``.

        Raises:
            UsageError: there is none.
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
        """The token that fills up rows; 0 where none is meant for it."""
        return self.special_token_id("pad") if "pad" in self.info.special else 0

    @cached_property
    def single_template(self) -> SpecialTokensTemplate:
        """What stands around one text."""
        return self._template("a", None)

    @cached_property
    def pair_template(self) -> SpecialTokensTemplate:
        """What stands around and between two texts."""
        return self._template("a", "a")

    def _template(self, first: str, second: str | None) -> SpecialTokensTemplate:
        """Read a frame off an example."""
        found = self.tokenizer.encode(first, second)
        parts: list[list[int]] = [[]]
        types: list[int] = [found.type_ids[0]]
        seen: int | None = None
        for number, kind, text in zip(found.ids, found.type_ids, found.sequence_ids, strict=True):
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
        """The ids of special tokens, in order."""
        added = self.tokenizer.get_added_tokens_decoder()
        return np.array(sorted(k for k, token in added.items() if token.special), dtype=np.int64)

    @cached_property
    def ordinary_ids(self) -> Ids:
        """The ids of tokens that stand for text, in order."""
        known = np.fromiter(self.tokenizer.get_vocab().values(), dtype=np.int64)
        return np.setdiff1d(known, self.special_ids)

    @cached_property
    def starts_word(self) -> NDArray[np.bool_]:
        """Of each id, whether the token starts a word, (size,).

        Three spellings are told apart: a mark at pieces that go on (``##``), one at pieces that
        follow a space (``\\u0120`` for bytes, ``\\u2581`` for SentencePiece), and one at pieces
        that end a word (``</w>``), which tells nothing of starts: there each piece counts.
        """
        spelled: Mapping[str, int] = self.tokenizer.get_vocab()
        marks = [m for m in ("\u0120", "\u2581") if any(t.startswith(m) for t in spelled)]
        starts = np.ones(self.vocab_size, dtype=bool)
        for token, number in spelled.items():
            if token.startswith("##") and len(token) > 2:
                starts[number] = False
            elif marks:
                starts[number] = token.startswith(marks[0])
        starts[self.special_ids] = True
        return starts
