"""Corpora for training, and resumed runs."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.fuzz.reader import Reader
from tests.fuzz.readers.examples import zoo
from tests.fuzz.readers.texts import RECIPE, write_texts
from tests.fuzz.readers.weights import stored

CORPUS = "built-corpus"
RUN = "the-run"
TRAIN = ["pretrain", "settings.yaml", "-o", RUN, "--device", "cpu", "--offline"]


def make_corpus(scene: Path, **settings: object) -> None:
    """Write a corpus, and settings of a run over it."""
    write_texts(scene / "texts")
    build = ["corpus", "build", "texts", "-o", CORPUS, "--tokenizer", "train"]
    options = ["--family", "gpt", "--vocab-size", "300", "--workers", "1", "--eval-fraction", "0.3"]
    zoo(scene, [*build, *options])
    recipe = {**RECIPE, "data": {"paths": [CORPUS]}, **settings}
    (scene / "settings.yaml").write_text(json.dumps(recipe, indent=1))


class Corpus(Reader):
    """Corpus with original digests of all files, so that every change must be detected."""

    name = "corpus"
    targets: Sequence[str] = (
        f"{CORPUS}/corpus.json",
        f"{CORPUS}/train/*",
        f"{CORPUS}/*/*",
        f"{CORPUS}/*.json",
    )

    def make(self, folder: Path) -> None:
        make_corpus(folder / "scene")
        shutil.copytree(folder / "scene", folder / "sound")
        zoo(folder / "sound", TRAIN)

    def commands(self, random: Random) -> list[list[str]]:
        return [TRAIN]

    def check(self, folder: Path) -> str:
        return same_result(folder)


class SealedCorpus(Corpus):
    """Corpus with digests of the mutated files, which must not crash a run."""

    name = "sealed-corpus"
    targets = (f"{CORPUS}/*/*.bin", f"{CORPUS}/*.json")

    def seal(self, folder: Path) -> None:
        from zoo.io.digests.files import hash_file

        path = folder / CORPUS / "corpus.json"
        manifest = json.loads(path.read_bytes())
        for split in manifest["splits"].values():
            for name in split["files"]:
                file = hash_file(folder / CORPUS / name)
                split["files"][name] = {"bytes": file.bytes, "blake3": file.blake3}
        manifest["tokenizer_digest"] = hash_file(folder / CORPUS / "tokenizer.json").blake3
        path.write_text(json.dumps(manifest))

    def check(self, folder: Path) -> str:
        return ""


class Resumed(Reader):
    """Run that was killed after its second step and is resumed."""

    name = "run"
    targets = (
        f"{RUN}/checkpoints/*/state.json",
        f"{RUN}/checkpoints/*/*",
        f"{RUN}/config.yaml",
        f"{RUN}/run.json",
        f"{RUN}/metrics.jsonl",
    )

    def make(self, folder: Path) -> None:
        make_corpus(folder / "sound", max_steps=3, save_total_limit=3)
        zoo(folder / "sound", TRAIN)
        shutil.copytree(folder / "sound", folder / "scene")
        shutil.rmtree(folder / "scene" / RUN / "model")
        shutil.rmtree(folder / "scene" / RUN / "checkpoints" / "step-00000003")

    def commands(self, random: Random) -> list[list[str]]:
        return [["pretrain", "--resume", RUN, "--device", "cpu", "--offline"]]

    def check(self, folder: Path) -> str:
        return same_result(folder)


def same_result(folder: Path) -> str:
    """Compare the trained weights with the valid example's, bit for bit."""
    sound = stored(folder.parent / "sound" / RUN / "model")
    result = stored(folder / RUN / "model")
    for name, array in sound.items():
        if name not in result or array.tobytes() != result[name].tobytes():
            return f"{name} differs from the sound example"
    return ""


READERS = (Corpus(), SealedCorpus(), Resumed())
