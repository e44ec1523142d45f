"""Check of a family's tokenizer against the reference library's, on published files."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.conformance.hf_reference import reference_tokenizer_class
from zoo.conformance.tiny_model import NotApplicable, TinyModel, require
from zoo.data.corpus_cache import SAMPLE
from zoo.errors import UsageError
from zoo.io.json import dump_json
from zoo.tokenizers import SourceFiles, TextTokenizer, tokenizer_info
from zoo.tokenizers.source_files import MERGES, PIECE_MODELS, TOKENIZER_JSON, VOCAB_JSON, VOCABULARY
from zoo.tokenizers.tokenizer import Text
from zoo.tokenizers.train import TokenizerTrainSpec, train
from zoo.tokenizers.wordpiece import DEFAULTS

SIZE = 400  # tokens of the vocabulary
KINDS: Mapping[frozenset[str], str] = {  # files of a vocabulary -> kind of tokenizer
    frozenset({VOCABULARY}): "wordpiece",
    frozenset({VOCAB_JSON, MERGES}): "byte-level-bpe",
    **{frozenset({name}): "unigram" for name in PIECE_MODELS},
}
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
        """Check that ids and types equal the reference's, for files without ``tokenizer.json``."""
        # A tokenizer of the kind that the reference library's class reads is trained on a sample
        # book; both encode texts and pairs of texts.
        reference = reference_tokenizer_class(self.family, self.config)
        names = frozenset(reference.vocab_files_names.values()) - {TOKENIZER_JSON}
        kind = KINDS.get(names, "")
        if kind not in self.family.new_tokenizers:
            raise NotApplicable(
                f"{reference.__name__} of the reference reads {TOKENIZER_JSON}, or files of a kind "
                f"that {self.family.name} does not train"
            )
        directory.mkdir(parents=True, exist_ok=True)
        self._write_tokenizer(directory, kind, min(names))
        expected = reference.from_pretrained(directory)
        files = SourceFiles(directory)
        tokenizer = self.family.tokenizer(files)
        ours = TextTokenizer(
            tokenizer, tokenizer_info(files, tokenizer, self.family.special_tokens or None)
        )
        for role in ours.info.special:
            number, its_number = ours.role_id(role), getattr(expected, f"{role}_token_id", None)
            require(
                its_number in (None, number),
                f"the {role} token has the id {number}, and {its_number} in the reference",
            )
        for text in TEXTS:
            # check that ids and token types of a text or a pair are the reference's
            (encoded,) = ours.encode([text], max_tokens=None)
            parts = text if isinstance(text, tuple) else (text,)
            columns = expected(*parts, return_token_type_ids=True)
            what = "pair" if isinstance(text, tuple) else "text"
            shown = f"{what} {dump_json(text, ensure_ascii=False)}"
            for name, actual in (("input_ids", encoded.ids), ("token_type_ids", encoded.type_ids)):
                require(
                    actual == columns[name],
                    f"the {shown} has the {name} {actual}, and {columns[name]} by "
                    f"{type(expected).__name__} of the reference",
                )

    def _write_tokenizer(self, directory: Path, kind: str, name: str) -> None:
        """Train a tokenizer, and write its files as they are published."""
        spec, roles = self.family.new_tokenizers[kind], self.family.special_tokens or DEFAULTS
        lines = (SAMPLE / "alice.txt").read_text("utf-8").splitlines()
        config = {**self.family.to_hub(self.config), "vocab_size": SIZE}
        (directory / "config.json").write_text(dump_json(config), encoding="utf-8")
        if kind == "unigram":
            (directory / name).write_bytes(_piece_model(spec, roles, lines))
        else:
            train(kind, spec, lambda: [lines], directory, size=SIZE, unknown=roles["unk"])


def _piece_model(spec: TokenizerTrainSpec, roles: Mapping[str, str], lines: list[str]) -> bytes:
    """Return a model file of SentencePiece, with the special tokens of a family at its start."""
    import io

    try:
        library = importlib.import_module("sentencepiece")
    except ModuleNotFoundError as error:
        raise UsageError("sentencepiece is not installed", "pip install sentencepiece") from error
    options: dict[str, Any] = {"pad_id": -1, "bos_id": -1, "eos_id": -1}
    named = {token: role for role, token in roles.items() if role in ("unk", "pad", "bos", "eos")}
    for number, token in enumerate(spec.first):
        if (role := named.get(token)) is not None:
            options |= {f"{role}_id": number, f"{role}_piece": token}
    controls = [token for token in spec.first if token not in named]
    written = io.BytesIO()
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=written,
        vocab_size=SIZE - 100,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
        control_symbols=",".join(controls),
        **options,
    )
    return written.getvalue()
