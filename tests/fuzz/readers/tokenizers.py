"""Tokenizer files of all formats, converted with a model and applied to a text."""

import json
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.octets import BYTES, Mutate
from tests.fuzz.reader import Reader
from tests.fuzz.readers.examples import bert_files, hub_model, write_files
from tests.fuzz.readers.weights import RESULT, SOURCE
from tests.fuzz.records import message_mutation

MERGES_CONFIG = {"add_prefix_space": False, "mask_token": "<mask>", "model_max_length": 30}
TEXT = "a bad cab, ABBA [MASK] é 中文 123"


class ModelWithTokenizer(Reader):
    """Small model with tokenizer files, converted and applied to a text."""

    family = "bert"
    vocab_size = 40

    def make(self, folder: Path) -> None:
        (folder / "scene").mkdir(parents=True)
        hub_model(folder / "scene" / SOURCE, self.family, self.vocab_size)
        write_files(folder / "scene" / SOURCE, self.files())

    def files(self) -> Mapping[str, str | bytes]:
        return {}

    def commands(self, random: Random) -> list[list[str]]:
        task = ["run", "embed", RESULT, TEXT, "--backend", "cpu"]
        return [["convert", SOURCE, "-o", RESULT], task]


class Tokenizer(ModelWithTokenizer):
    """Reader of tokenizer files, compared with another library."""

    def check(self, folder: Path) -> str:
        import tokenizers

        stored = tokenizers.Tokenizer.from_file(str(folder / RESULT / "tokenizer.json"))
        return self.difference(folder / SOURCE, stored)

    @abstractmethod
    def difference(self, source: Path, stored: Any) -> str:
        """Compare the stored tokenizer with another library's."""


class TokenizerJson(Tokenizer):
    name = "tokenizer-json"
    weight = 2
    targets = (*[f"{SOURCE}/tokenizer.json"] * 3, f"{SOURCE}/tokenizer_config.json")

    def files(self) -> Mapping[str, str | bytes]:
        return bert_files()

    def difference(self, source: Path, stored: Any) -> str:
        import tokenizers

        path = source / "tokenizer.json"
        if not path.exists():
            return ""  # the tokenizer is built from the vocabulary
        definition = json.loads(path.read_text("utf-8-sig"))
        definition |= {"truncation": None, "padding": None}  # set by each call
        library = tokenizers.Tokenizer.from_str(json.dumps(definition))
        return _differences(library.get_vocab(), stored.get_vocab())


class VocabularyText(Tokenizer):
    name = "vocab-txt"
    targets = (*[f"{SOURCE}/vocab.txt"] * 2, f"{SOURCE}/*_config.json", f"{SOURCE}/special*.json")

    def files(self) -> Mapping[str, str | bytes]:
        files = bert_files()
        del files["tokenizer.json"]
        return files

    def difference(self, source: Path, stored: Any) -> str:
        """Check the token ids; the last of duplicate lines determines the id."""
        lines = (source / "vocab.txt").read_bytes().decode("utf-8").split("\n")
        while lines and not lines[-1].rstrip():
            del lines[-1]
        expected = {line.rstrip(): number for number, line in enumerate(lines)}
        return _differences(expected, stored.get_vocab())


class Merges(Tokenizer):
    name = "merges"
    family = "roberta"
    vocab_size = 600
    targets = (f"{SOURCE}/vocab.json", f"{SOURCE}/merges.txt", f"{SOURCE}/tokenizer_config.json")

    def files(self) -> Mapping[str, str | bytes]:
        vocabulary, merges = _byte_level()
        return {
            "vocab.json": vocabulary,
            "merges.txt": merges,
            "tokenizer_config.json": json.dumps(MERGES_CONFIG),
        }

    def difference(self, source: Path, stored: Any) -> str:
        from tokenizers import Tokenizer, models, pre_tokenizers

        path = source / "tokenizer_config.json"
        settings = json.loads(path.read_bytes()) if path.is_file() else None
        if settings != MERGES_CONFIG:  # the library ignores these settings
            vocabulary = json.loads((source / "vocab.json").read_bytes())
            return _differences(vocabulary, stored.get_vocab())
        lines = (source / "merges.txt").read_text("utf-8").split("\n")
        filled = "".join(f"{line}\n" for line in lines if line.strip("\r"))
        (source / "filled.txt").write_text(filled, "utf-8")  # empty lines are skipped
        paths = (str(source / "vocab.json"), str(source / "filled.txt"))
        library: Any = Tokenizer(models.BPE.from_file(*paths))
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        for text in ("the cat sat", "a bad cab", "\u4e2d é"):
            expected = library.encode(text).tokens
            actual = stored.encode(text, add_special_tokens=False).tokens
            if expected != actual:
                return f"{text!r}: {actual}, the library has {expected}"
        return _differences(library.get_vocab(), stored.get_vocab())


class SentencePiece(Tokenizer):
    name = "sentencepiece"
    weight = 2
    family = "t5"
    vocab_size = 800
    targets = (*[f"{SOURCE}/spiece.model"] * 4, f"{SOURCE}/tokenizer_config.json")

    def files(self) -> Mapping[str, str | bytes]:
        from tests.tokenizers.trained import padded

        config = {"extra_ids": 0, "additional_special_tokens": [], "model_max_length": 30}
        return {"spiece.model": padded(), "tokenizer_config.json": json.dumps(config)}

    def commands(self, random: Random) -> list[list[str]]:
        task = ["run", "features", RESULT, TEXT, "--backend", "cpu"]
        return [["convert", SOURCE, "-o", RESULT, "--head", "encoder"], task]

    def mutations(self, path: Path) -> Any:
        if path.suffix == ".model":
            structural: Mutate = message_mutation
            return (*BYTES, *[structural] * (3 * len(BYTES)))
        return super().mutations(path)

    def difference(self, source: Path, stored: Any) -> str:
        import sentencepiece

        library = sentencepiece.SentencePieceProcessor()
        library.LoadFromSerializedProto((source / "spiece.model").read_bytes())
        expected = {library.IdToPiece(k): k for k in range(library.GetPieceSize())}
        problem = _differences(expected, stored.get_vocab())
        for text in ("" if problem else "the cat sat on", "a bad cab 12", "é"):
            actual = stored.encode(text, add_special_tokens=False).ids
            if not problem and library.EncodeAsIds(text) != actual:
                return f"{text!r}: {actual}, the library has {library.EncodeAsIds(text)}"
        return problem


class Pooling(ModelWithTokenizer):
    """Reader of the files that sentence-transformers adds to a model."""

    name = "pooling"
    targets = (
        f"{SOURCE}/modules.json",
        *[f"{SOURCE}/1_Pooling/config.json"] * 2,
        f"{SOURCE}/sentence_bert_config.json",
    )

    def files(self) -> Mapping[str, str | bytes]:
        modules = [
            {"idx": 0, "name": "0", "path": "", "type": _MODULES + "Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": _MODULES + "Pooling"},
            {"idx": 2, "name": "2", "path": "2_Normalize", "type": _MODULES + "Normalize"},
        ]
        pooling: dict[str, Any] = {f"pooling_mode_{mode}": False for mode in _MODES}
        pooling |= {"word_embedding_dimension": 32, "pooling_mode_cls_token": True}
        return {
            **bert_files(),
            "modules.json": json.dumps(modules, indent=1),
            "1_Pooling/config.json": json.dumps(pooling, indent=1),
            "sentence_bert_config.json": json.dumps({"max_seq_length": 12, "do_lower_case": False}),
        }

    def check(self, folder: Path) -> str:
        """Check that the result has the pooling mode of the files."""
        model = json.loads((folder / RESULT / "config.json").read_bytes())
        stated = json.loads((folder / SOURCE / "1_Pooling" / "config.json").read_bytes())
        modes = [mode for mode, key in _MODES_OF.items() if stated.get(key) is True]
        modules = json.loads((folder / SOURCE / "modules.json").read_bytes())
        used = any(str(module.get("type")).endswith("Pooling") for module in modules)
        actual = (model.get("pooling") or {}).get("mode", "mean")
        if used and len(modes) == 1 and "pooling_mode" not in stated and actual != modes[0]:
            return f"pooling is {actual}, and the file states {modes}"
        limit = json.loads((folder / SOURCE / "sentence_bert_config.json").read_bytes())
        length = limit.get("max_seq_length")
        tokens = (model.get("pooling") or {}).get("max_tokens")
        if isinstance(length, int) and length is not True and tokens != length:
            return f"texts are cut at {tokens}, and the file states {length}"
        return ""


_MODULES = "sentence_transformers.models."
_MODES = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
_MODES_OF = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
}


def _differences(expected: Mapping[str, int], actual: Mapping[str, int]) -> str:
    wrong = [token for token, number in expected.items() if actual.get(token) != number]
    if not wrong:
        return ""
    first = wrong[0]
    return (
        f"{len(wrong)} tokens differ: {first[:50]!r} is {actual.get(first)}, not {expected[first]}"
    )


def _byte_level() -> tuple[str, str]:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    from tests.tokenizers.texts import prose

    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(prose(300), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    merges = "\n".join(" ".join(pair) for pair in model["merges"])
    return json.dumps(model["vocab"]), f"#version: 0.2\n{merges}\n"


READERS = (TokenizerJson(), VocabularyText(), Merges(), SentencePiece(), Pooling())
