"""What happens to a text before it is split into pieces: spelling, and where words begin."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.io.limits import MAX_TOKENIZER_GROWTH, check_limit
from zoo.io.untrusted import rust_parsing
from zoo.tokenizers.definition import check_charsmap
from zoo.tokenizers.sentencepiece.proto import PieceModel

if TYPE_CHECKING:
    from tokenizers import Tokenizer, normalizers

SPACE = "\u2581"


@dataclass(frozen=True)
class NormalizationOptions:
    """What a family does to texts before the model file's own replacements.

    Attributes:
        lowercase: whether texts are lower-cased.
        strip_accents: whether accents are removed, after compatible characters are decomposed.
        plain_quotes: whether double grave accents and double apostrophes become quotes, and any
            white space separates words.
    """

    lowercase: bool
    strip_accents: bool
    plain_quotes: bool

    def steps(self, charsmap: bytes, where: str) -> list["normalizers.Normalizer"]:
        """Return all replacements in order.

        Raises:
            VerificationError: the model file's replacements are malformed.
        """
        from tokenizers import normalizers

        steps: list[normalizers.Normalizer] = []
        if self.plain_quotes:
            steps += [normalizers.Replace(old, '"') for old in ("``", "''")]
        if self.strip_accents:
            steps += [normalizers.NFKD(), normalizers.StripAccents()]
        if self.lowercase:
            steps.append(normalizers.Lowercase())
        if charsmap:
            steps += _precompiled(charsmap, where)
        return steps


def set_pipeline(
    tokenizer: "Tokenizer", model: PieceModel, spelling: NormalizationOptions, where: str
) -> None:
    """Say how texts become pieces and pieces texts.

    Args:
        tokenizer: has the model.
        model: the model file's contents.
        spelling: what the family does first.
        where: the file, for messages.

    Raises:
        VerificationError: the model file's replacements are malformed.
    """
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers

    steps = spelling.steps(model.charsmap, where)
    # pieces of more than one word need the words together
    whole = any(SPACE in piece.text[1:] for piece in model.pieces)
    scheme: Any = "always" if model.leading_space else "never"
    if model.single_spaces and model.leading_space and not whole:
        words = (
            pre_tokenizers.WhitespaceSplit()
            if spelling.plain_quotes
            else pre_tokenizers.Split(" ", "removed")
        )
        marked = pre_tokenizers.Metaspace(SPACE, prepend_scheme="always")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, marked])
    else:
        if model.single_spaces:
            steps.append(normalizers.Replace(Regex("^ +| +$"), ""))
            steps.append(normalizers.Replace(Regex(" {2,}"), " "))
        elif model.leading_space:
            steps.append(normalizers.Prepend(SPACE))
        first: Any = scheme if model.single_spaces else "never"
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
            SPACE, prepend_scheme=first, split=not whole
        )
    if steps:
        tokenizer.normalizer = normalizers.Sequence(steps)
    ends: list[decoders.Decoder] = [decoders.Metaspace(SPACE, prepend_scheme=scheme)]
    if whole:  # of the first piece the library removes every space
        ends = [decoders.Replace(SPACE, " "), decoders.Fuse()]
        ends += [decoders.Strip(" ", 1, 0)] if model.leading_space else []
    if model.bytes_for_unknown:
        ends.insert(0, decoders.ByteFallback())
    tokenizer.decoder = decoders.Sequence(ends) if len(ends) > 1 else ends[0]


def override_normalizer(
    tokenizer: "Tokenizer", spelling: NormalizationOptions, stated: Mapping[str, bool], where: str
) -> None:
    """Let a stored tokenizer do what the configuration states.

    Args:
        tokenizer: its normalizer is replaced if it does otherwise.
        spelling: what the family and the configuration want.
        stated: which of ``lowercase`` and ``strip_accents`` the configuration itself states.
        where: the file, for messages.

    Raises:
        VerificationError: the stored replacements are malformed.
    """
    from tokenizers import normalizers

    found = _stored(tokenizer)
    kinds = {step["type"] for step in found}
    done = {"lowercase": "Lowercase" in kinds, "strip_accents": "StripAccents" in kinds}
    if any(done[name] != value for name, value in stated.items()):
        compiled = [s["precompiled_charsmap"] for s in found if s["type"] == "Precompiled"]
        charsmap = base64.b64decode(compiled[0] or "") if compiled else b""
        tokenizer.normalizer = normalizers.Sequence(spelling.steps(charsmap, where))


def _stored(tokenizer: "Tokenizer") -> list[dict[str, Any]]:
    """Return the steps of a normalizer as they are stored, one after the other."""
    if tokenizer.normalizer is None:
        return []
    state: dict[str, Any] = json.loads(tokenizer.normalizer.__getstate__())
    steps: list[dict[str, Any]] = state.get("normalizers", [state])
    return steps


def _precompiled(charsmap: bytes, where: str) -> list["normalizers.Normalizer"]:
    """Build the replacements, of which the library trusts that they are well-formed.

    Of a letter with marks after it the library replaces the shortest part that it knows, where
    sentencepiece replaces the longest, and loses the rest. Composing them first leaves one part.
    """
    from tokenizers import normalizers

    growth = check_charsmap(charsmap, Path(where))
    check_limit(where, "length of a replacement in bytes", growth, MAX_TOKENIZER_GROWTH)
    with rust_parsing(where, "a map of characters"):
        step = normalizers.Precompiled(charsmap)
        composes = step.normalize_str("e\u0301") == "\u00e9"
    return [normalizers.NFC(), step] if composes else [step]
