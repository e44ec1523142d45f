"""Normalizer, pre-tokenizer and decoder of SentencePiece tokenizers."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.io.limits import MAX_TOKENIZER_GROWTH
from zoo.io.sizes import check_size
from zoo.io.untrusted import rust_parsing
from zoo.tokenizers.sentencepiece.proto import PieceModel
from zoo.tokenizers.tokenizer_json import definition_of
from zoo.tokenizers.untrusted.definition import check_charsmap

if TYPE_CHECKING:
    from tokenizers import Tokenizer, normalizers
    from tokenizers.decoders import Decoder

SPACE = "\u2581"


@dataclass(frozen=True)
class NormalizationOptions:
    """Normalization of a family, which precedes the model file's."""

    lowercase: bool  # lower-case texts
    strip_accents: bool  # remove accents after compatibility decomposition
    # replace double grave accents and double apostrophes by quotes, and split words at any white
    # space
    plain_quotes: bool

    def steps(self, charsmap: bytes, origin: str) -> list["normalizers.Normalizer"]:
        """Return the normalizers in order."""
        from tokenizers import normalizers

        steps: list[normalizers.Normalizer] = []
        if self.plain_quotes:
            steps += [normalizers.Replace(old, '"') for old in ("``", "''")]
        if self.strip_accents:
            steps += [normalizers.NFKD(), normalizers.StripAccents()]
        if self.lowercase:
            steps.append(normalizers.Lowercase())
        if charsmap:
            growth = check_charsmap(charsmap, Path(origin))  # which the library does not check
            check_size(origin, "length of a replacement in bytes", growth, MAX_TOKENIZER_GROWTH)
            with rust_parsing(origin, "a map of characters"):
                step = normalizers.Precompiled(charsmap)
                composes = step.normalize_str("e\u0301") == "\u00e9"
            # For a letter with combining marks, the library replaces the shortest known prefix and
            # drops the marks, whereas sentencepiece replaces the longest. Prior composition (NFC)
            # avoids this
            steps += [normalizers.NFC(), step] if composes else [step]
        return steps


def set_pipeline(
    tokenizer: "Tokenizer", model: PieceModel, options: NormalizationOptions, origin: str
) -> None:
    """Set normalizer, pre-tokenizer and decoder of a tokenizer."""
    from tokenizers import Regex, normalizers, pre_tokenizers

    steps = options.steps(model.charsmap, origin)
    # pieces of several words need the words together
    whole = any(SPACE in piece.text[1:] for piece in model.pieces)
    scheme: Any = "always" if model.leading_space else "never"
    if model.single_spaces and model.leading_space and not whole:
        # A regular expression, because Transformers.js 4.3 also returns the separator if it is a
        # string (``create_pattern`` and ``Split`` of @huggingface/tokenizers).
        words = (
            pre_tokenizers.WhitespaceSplit()
            if options.plain_quotes
            else pre_tokenizers.Split(Regex(" "), "removed")
        )
        metaspace = pre_tokenizers.Metaspace(SPACE, prepend_scheme="always")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, metaspace])
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
    tokenizer.decoder = _decoder(model, whole=whole)


def _decoder(model: PieceModel, *, whole: bool) -> "Decoder":
    """Return the decoder of pieces to text; ``whole`` if pieces may have several words."""
    from tokenizers import decoders

    scheme: Any = "always" if model.leading_space else "never"
    steps: list[Decoder] = [decoders.Metaspace(SPACE, prepend_scheme=scheme)]
    if whole:  # the library removes every space of the first piece
        steps = [decoders.Replace(SPACE, " "), decoders.Fuse()]
        steps += [decoders.Strip(" ", 1, 0)] if model.leading_space else []
    if model.bytes_for_unknown:
        steps.insert(0, decoders.ByteFallback())
    return decoders.Sequence(steps) if len(steps) > 1 else steps[0]


def exclude(tokenizer: "Tokenizer", character: str) -> None:
    """Remove a character from all texts, and from decoded tokens."""
    from tokenizers import decoders, normalizers

    steps: list[normalizers.Normalizer] = [normalizers.Replace(character, "")]
    if tokenizer.normalizer is not None:
        steps.append(tokenizer.normalizer)
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Sequence([decoders.Replace(character, ""), tokenizer.decoder])


def override_normalizer(
    tokenizer: "Tokenizer", options: NormalizationOptions, stated: Mapping[str, bool], origin: str
) -> None:
    """Apply normalization options of the configuration to a stored tokenizer."""
    from tokenizers import normalizers

    state = definition_of(tokenizer.normalizer) or {"normalizers": []}
    stored_steps = state.get("normalizers", [state])
    kinds = {step["type"] for step in stored_steps}
    done = {"lowercase": "Lowercase" in kinds, "strip_accents": "StripAccents" in kinds}
    if any(done[name] != value for name, value in stated.items()):
        compiled = [s["precompiled_charsmap"] for s in stored_steps if s["type"] == "Precompiled"]
        charsmap = base64.b64decode(compiled[0] or "") if compiled else b""
        tokenizer.normalizer = normalizers.Sequence(options.steps(charsmap, origin))
