"""Which row of the old embeddings each token of a new vocabulary gets its values from."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from zoo.data.tokenizer import ExistingTokenizer
from zoo.io.json import dump_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPACE = "\u2581"  # at the start of a word in SentencePiece
PRINTABLE = (range(33, 127), range(161, 173), range(174, 256))  # bytes that byte-level BPE keeps


class Form(NamedTuple):
    """What a token spells."""

    text: bytes
    starts: bool | None  # whether a word begins with it; ``None`` if the tokenizer does not mark it

    @property
    def is_symbol(self) -> bool:
        """Whether it has no letters or digits, such as punctuation."""
        return not any(c.isalnum() for c in self.text.decode("utf-8", "replace"))


class SpelledVocabulary:
    """The tokens of a tokenizer, and what they spell."""

    def __init__(self, tokenizer: ExistingTokenizer) -> None:
        from tokenizers import Tokenizer

        self.info = tokenizer.info
        self.tokenizer: Tokenizer = Tokenizer.from_buffer(tokenizer.json)
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        definition = json.loads(tokenizer.json)
        self.ids: Mapping[str, int] = self.tokenizer.get_vocab()
        self.added = {entry["content"] for entry in definition.get("added_tokens") or ()}
        self.prefix: str = definition["model"].get("continuing_subword_prefix") or ""
        steps = json.dumps(
            [definition.get("pre_tokenizer"), definition.get("decoder")], allow_nan=False
        )
        self.is_byte_level = '"ByteLevel"' in steps
        self.has_spaces = SPACE in steps
        # The letters that stand for bytes in byte-level BPE.
        self._bytes: dict[str, int] = {}
        for part in PRINTABLE:
            for byte in part:
                self._bytes[chr(byte)] = byte
        unprintable = [byte for byte in range(256) if byte not in self._bytes.values()]
        for number, byte in enumerate(unprintable):
            self._bytes[chr(256 + number)] = byte

    @property
    def size(self) -> int:
        """Highest id plus 1."""
        return max(self.ids.values()) + 1

    @cached_property
    def tokens(self) -> dict[int, str]:
        """Id -> token."""
        return {number: token for token, number in self.ids.items()}

    @cached_property
    def roles(self) -> dict[str, int]:
        """Role of a special token -> its id."""
        special = self.info.special.items()
        return {role: self.ids[token] for role, token in special if token in self.ids}

    @cached_property
    def forms(self) -> dict[Form, int]:
        """What a token spells -> its id, without added tokens."""
        return {self.form(token): self.ids[token] for token in self.ids if token not in self.added}

    def form(self, token: str) -> Form:
        """Return what a token spells."""
        if self.is_byte_level:
            text = bytes(self._bytes.get(letter, 0x3F) for letter in token)
            return Form(text.removeprefix(b" "), text.startswith(b" "))
        if self.has_spaces:
            if len(token) == 6 and token.startswith("<0x"):
                return Form(bytes.fromhex(token[3:5]), False)
            return Form(token.removeprefix(SPACE).encode(), token.startswith(SPACE))
        if self.prefix:
            starts = not token.startswith(self.prefix)
            return Form(token.removeprefix(self.prefix).encode(), starts)
        return Form(token.encode(), None)

    def shown(self, number: int) -> str:
        """Return a token as text; the bytes of byte-level BPE are decoded."""
        token = self.tokens[number]
        if not self.is_byte_level or token in self.added:
            return token
        form = self.form(token)
        text = form.text.decode("utf-8", "replace")
        return f"Ġ{text}" if form.starts else text

    def find(self, form: Form) -> int | None:
        """Return the id of the token that spells something, or ``None``."""
        candidates = [form, Form(form.text, None)]
        # A symbol always begins a word in WordPiece, and need not do so in other tokenizers.
        if form.is_symbol or form.starts is None:
            candidates += [Form(form.text, True), Form(form.text, False)]
        for candidate in candidates:
            if candidate in self.forms:
                return self.forms[candidate]
        return None

    @cached_property
    def inside(self) -> "Tokenizer | None":
        """WordPiece that splits a text like the rest of a word; ``None`` for other models."""
        from tokenizers import Tokenizer

        definition = json.loads(self.tokenizer.to_str())
        model = definition["model"]
        if not self.prefix or model.get("type") != "WordPiece":
            return None
        unmarked_tokens = {}
        continuing_tokens = {}
        special_tokens = {}
        for token, number in model["vocab"].items():
            if token.startswith(self.prefix):
                unmarked_tokens[token.removeprefix(self.prefix)] = number
                continuing_tokens[token] = number
            if token in self.added or token == model["unk_token"]:
                special_tokens[token] = number
        model["vocab"] = {**unmarked_tokens, **continuing_tokens, **special_tokens}
        return Tokenizer.from_str(dump_json(definition))

    def pieces(self, form: Form) -> list[int]:
        """Return the ids of the tokens that a text is split into, unknown ones left out."""
        try:
            text = form.text.decode()
        except UnicodeDecodeError:
            return []
        if not text.strip():
            return []
        if form.starts is not False:
            return self._split(self.tokenizer, f" {text}")
        if self.inside is not None:
            pieces = self._split(self.inside, text)
            if pieces:
                return pieces
        pieces = self._split(self.tokenizer, text)
        if pieces:
            # A tokenizer takes the beginning of a text for that of a word.
            first_text = self.form(self.tokens[pieces[0]]).text
            pieces[0] = self.forms.get(Form(first_text, False), pieces[0])
        return pieces

    def _split(self, tokenizer: "Tokenizer", text: str) -> list[int]:
        special = set(self.roles.values())
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        return [n for n in ids if n not in special and self.form(self.tokens[n]).text]


@dataclass(frozen=True)
class VocabularyPlan:
    """Where the row of each token of a new vocabulary comes from."""

    size: int  # number of rows
    kept: Mapping[int, int]  # id -> id of the same token in the old vocabulary
    # id -> ids in the old vocabulary whose rows are combined
    composed: Mapping[int, tuple[int, ...]]
    new: tuple[int, ...]  # ids of rows with random values

    @property
    def counts(self) -> dict[str, int]:
        """Number of rows of each kind."""
        return {"kept": len(self.kept), "composed": len(self.composed), "new": len(self.new)}


def plan_rows(
    old: SpelledVocabulary, new: SpelledVocabulary, *, compose: bool, keep: bool = True
) -> VocabularyPlan:
    """Return where the rows of a new vocabulary come from.

    Tokens are compared by their text, never by their ids: by what they spell and whether a word
    begins with them, so that ``##ing`` of WordPiece is ``ing`` of byte-level BPE, and ``the`` is
    ``Ġthe``.

    Args:
        old: the vocabulary of the model.
        new: the vocabulary that replaces it.
        compose: whether rows of tokens that the old vocabulary lacks are composed of the rows of
            the tokens that it splits their text into.
        keep: whether tokens that both vocabularies have keep their rows. Without it, all rows are
            random.
    """
    if not keep:
        return VocabularyPlan(new.size, {}, {}, tuple(range(new.size)))
    kept_rows = dict[int, int]()
    composed_rows = dict[int, tuple[int, ...]]()
    random_rows = list[int]()
    token_roles = {number: role for role, number in new.roles.items()}
    for number in range(new.size):
        token = new.tokens.get(number)
        if token is None:  # An id that the tokenizer skips.
            random_rows.append(number)
            continue
        old_number = _find_token(old, new, token, token_roles.get(number))
        if old_number is not None:
            kept_rows[number] = old_number
            continue
        pieces = []
        if compose and token not in new.added:
            pieces = old.pieces(new.form(token))
        if pieces:
            composed_rows[number] = tuple(pieces)
        else:
            random_rows.append(number)
    return VocabularyPlan(new.size, kept_rows, composed_rows, tuple(random_rows))


def _find_token(
    old: SpelledVocabulary, new: SpelledVocabulary, token: str, role: str | None
) -> int | None:
    """Return the id of a token in the old vocabulary; a special token has the same role."""
    if role is not None:
        return old.roles.get(role, old.ids.get(token))
    if token in new.added:
        return old.ids.get(token)
    return old.find(new.form(token))
