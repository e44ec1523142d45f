"""Check of a family's tokenizer against the reference library's, on published files."""

import contextlib
import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.conformance.hf_reference import reference_tokenizer_class
from zoo.conformance.tiny_model import NotApplicable, TinyModel, require
from zoo.data.cache import SAMPLE
from zoo.errors import UsageError
from zoo.io.json import dump_json
from zoo.tokenizers import SourceFiles, TextTokenizer, tokenizer_info
from zoo.tokenizers.source_files import MERGES, PIECE_MODELS, TOKENIZER_JSON, VOCAB_JSON, VOCABULARY
from zoo.tokenizers.tokenizer import Text
from zoo.tokenizers.train import train
from zoo.tokenizers.wordpiece import DEFAULTS

SIZE = 400  # tokens of the vocabulary
# files of a vocabulary -> type of the tokenizer
TOKENIZER_TYPES: Mapping[frozenset[str], str] = {
    frozenset({VOCABULARY}): "wordpiece",
    frozenset({VOCAB_JSON, MERGES}): "byte-level-bpe",
    **{frozenset({name}): "unigram" for name in PIECE_MODELS},
}
# The first pieces of published SentencePiece models, by role. The tokens of a family may follow
# from a model with other pieces, such as those of fairseq's models, whose file has SentencePiece's.
FIRST_PIECES: Sequence[Mapping[str, str]] = (
    {"unk": "<unk>", "bos": "<s>", "eos": "</s>"},
    {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"},
)
PAIR = ("Alice was beginning", "to get very tired")
TEXTS: tuple[Text, ...] = (
    "Alice was beginning to get very tired of sitting by her sister",
    "The Queen said: 'Off with her head!' It was 10 o'clock, and CRÈME brûlée.",
    "unseen 漢字 and symbols",
    "a",
    PAIR,
    ("What is it?", "A cat."),
)


class TokenizerChecks(TinyModel):
    """Checks of a family's tokenizer."""

    def check_reference_tokenizer(self, directory: Path) -> None:
        """Check that ids and types equal the reference's, for files without ``tokenizer.json``.

        A tokenizer of the type that the reference library's class reads is trained on a sample
        book. Both encode texts and pairs of texts. Token types are compared if the reference
        returns them.
        """
        reference_tokenizer = self._write_tokenizer(directory)
        files = SourceFiles(directory)
        tokenizer = self.family.tokenizer(files)
        roles = self.family.special_tokens or None
        info = tokenizer_info(files, tokenizer, roles, splitter=self.family.splitter(files))
        text_tokenizer = TextTokenizer(tokenizer, info)
        _check_special_ids(text_tokenizer, reference_tokenizer)
        for text in TEXTS:
            _check_encoding(text, text_tokenizer, reference_tokenizer)

    def _write_tokenizer(self, directory: Path) -> Any:
        """Train a tokenizer and write it as it is published; return the reference's tokenizer."""
        reference = reference_tokenizer_class(self.family, self.config)
        names = frozenset(reference.vocab_files_names.values()) - {TOKENIZER_JSON}
        tokenizer_type = TOKENIZER_TYPES.get(names, "")
        if tokenizer_type not in self.family.new_tokenizers:
            raise NotApplicable(
                f"{reference.__name__} of the reference reads {TOKENIZER_JSON}, or files of a kind "
                f"that {self.family.name} does not train"
            )
        directory.mkdir(parents=True, exist_ok=True)
        if tokenizer_type == "unigram":
            return self._write_piece_model(directory, reference, min(names))
        self._train_tokenizer(directory, tokenizer_type)
        try:
            self.family.tokenizer(SourceFiles(directory))
        except UsageError as error:
            raise NotApplicable(f"{self.family.name} refuses the files: {error}") from error
        return reference.from_pretrained(directory)

    def _train_tokenizer(self, directory: Path, tokenizer_type: str) -> None:
        """Train a tokenizer, and write its files as they are published."""
        self._write_config(directory)
        spec = self.family.new_tokenizers[tokenizer_type]
        roles = self.family.special_tokens or DEFAULTS
        train(tokenizer_type, spec, lambda: [_lines()], directory, size=SIZE, unknown=roles["unk"])

    def _write_piece_model(self, directory: Path, reference: Any, name: str) -> Any:
        """Write a SentencePiece model as it is published; return the reference's tokenizer."""
        # The first pieces of a published model are the family's own, or usual ones that the class
        # replaces by others. With the wrong ones, the class fails or has a piece twice.
        self._write_config(directory)
        spec = self.family.new_tokenizers["unigram"]
        roles = self.family.special_tokens or DEFAULTS
        own_pieces = {token: role for role, token in roles.items()}
        layouts = [[(own_pieces.get(token, ""), token) for token in spec.first]]
        for pieces in FIRST_PIECES:
            layouts.append(list(pieces.items()))
        for layout in layouts:
            (directory / name).write_bytes(_piece_model(layout))
            with contextlib.suppress(Exception):  # the class raises whatever its code happens to
                tokenizer = reference.from_pretrained(directory)
                if _has_distinct_pieces(tokenizer):
                    return tokenizer
        raise NotApplicable(
            f"{reference.__name__} of the reference reads no {name} that begins with "
            f"{', '.join(spec.first)} or with the usual pieces"
        )

    def _write_config(self, directory: Path) -> None:
        config = {**self.family.to_hub(self.config), "vocab_size": SIZE}
        (directory / "config.json").write_text(dump_json(config), encoding="utf-8")


def _check_special_ids(tokenizer: TextTokenizer, reference_tokenizer: Any) -> None:
    """Check that special tokens have the ids that they have in the reference."""
    for role in tokenizer.info.special:
        token_id = tokenizer.role_id(role)
        reference_id = getattr(reference_tokenizer, f"{role}_token_id", None)
        require(
            reference_id in (None, token_id),
            f"the {role} token has the id {token_id}, and {reference_id} in the reference",
        )


def _check_encoding(text: Text, tokenizer: TextTokenizer, reference_tokenizer: Any) -> None:
    """Check that ids and token types of a text or a pair of texts are the reference's."""
    (encoded,) = tokenizer.encode([text], max_tokens=None)
    if isinstance(text, tuple):
        reference_columns = reference_tokenizer(*text)
        description = f"pair {dump_json(text, ensure_ascii=False)}"
    else:
        reference_columns = reference_tokenizer(text)
        description = f"text {dump_json(text, ensure_ascii=False)}"
    columns = {"input_ids": encoded.ids, "token_type_ids": encoded.type_ids}
    for name, values in columns.items():
        reference_values = reference_columns.get(name, values)
        require(
            values == reference_values,
            f"the {description} has the {name} {values}, and {reference_values} by "
            f"{type(reference_tokenizer).__name__} of the reference",
        )


def _lines() -> list[str]:
    """Return the lines of a sample book."""
    return (SAMPLE / "alice.txt").read_text("utf-8").splitlines()


def _has_distinct_pieces(tokenizer: Any) -> bool:
    """Return whether no piece of the reference's tokenizer has two ids."""
    definition = json.loads(tokenizer.backend_tokenizer.to_str())
    pieces = [piece for piece, _ in definition["model"]["vocab"]]
    return len(set(pieces)) == len(pieces)


def _piece_model(layout: Sequence[tuple[str, str]]) -> bytes:
    """Return a model file of SentencePiece.

    Args:
        layout: role and text of the first pieces; roles that SentencePiece does not have are those
            of control symbols.
    """
    import io

    try:
        library = importlib.import_module("sentencepiece")
    except ModuleNotFoundError as error:
        raise UsageError("sentencepiece is not installed", "pip install sentencepiece") from error
    options: dict[str, Any] = {"pad_id": -1, "bos_id": -1, "eos_id": -1}
    controls = []
    for number, (role, token) in enumerate(layout):
        if role in ("unk", "pad", "bos", "eos"):
            options |= {f"{role}_id": number, f"{role}_piece": token}
        else:
            controls.append(token)
    written = io.BytesIO()
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(_lines()),
        model_writer=written,
        vocab_size=SIZE - 100,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
        control_symbols=",".join(controls),
        **options,
    )
    return written.getvalue()
