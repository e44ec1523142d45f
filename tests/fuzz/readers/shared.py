"""Records that zoo writes itself: caches of teachers, evaluations, uploads, other recipes."""

import hashlib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from blake3 import blake3

from tests.fuzz.reader import Reader
from tests.fuzz.readers.examples import zoo
from tests.fuzz.readers.models import MODEL, make_model
from tests.fuzz.readers.tables import RUN, SMALL, TEXTS, finetune, json_lines
from tests.fuzz.readers.weights import stored
from tests.fuzz.trees import PATHS

CACHE = "teacher-cache"
HUB = "hub-model"
STUDENT = "student"
DISTILL = ["distill", "settings.yaml", "-o", STUDENT, "--device", "cpu", "--offline"]
FINETUNE = ["finetune", "settings.yaml", "-o", STUDENT, "--device", "cpu", "--offline"]
FEW: Mapping[str, Any] = {
    "task": "text-classification",
    "preset": "default",
    "batch_size": 4,
    "micro_batch_size": 4,
    "max_steps": 2,
    "eval_steps": 2,
    "save_steps": 2,
    "logging_steps": 1,
    "seed": 1,
    "optimizer": {"learning_rate": 0.001, "betas": [0.9, 0.99]},
    "lr_scheduler": {"warmup_steps": 1},
    "data": {"train": ["table.jsonl"]},
}


def seal_record(path: Path) -> None:
    """Write the digest of a record's present content into it."""
    record = json.loads(path.read_bytes())
    before = str(record["digest"]).encode()
    zeros = b"0" * 64
    content = path.read_bytes().replace(before, zeros, 1)
    path.write_bytes(content.replace(zeros, blake3(content).hexdigest().encode(), 1))


def make_table(scene: Path) -> None:
    scene.mkdir(parents=True)
    rows = [{"text": text, "label": ("no", "yes")[k % 2]} for k, text in enumerate(TEXTS * 4)]
    (scene / "table.jsonl").write_bytes(json_lines(rows))


def make_teacher(scene: Path) -> None:
    """Write a table, a teacher and the settings of a run that caches its outputs."""
    make_table(scene)
    finetune(scene, "bert", "text-classification", "table.jsonl")
    shutil.move(scene / RUN / "model", scene / "teacher")
    shutil.rmtree(scene / RUN)
    student = {"name": "bert"}
    cached = {"teachers": ["teacher"], "recipe": "logits", "cache_teacher": CACHE}
    config = {name: int(size) for name, _, size in (text.partition("=") for text in SMALL)}
    tree = {**FEW, "student": student, "distillation": cached, "config": config}
    (scene / "settings.yaml").write_text(json.dumps(tree, indent=1))


class TeacherCache(Reader):
    """A cache with its digests: a run ends at the sound weights, or refuses it."""

    name = "teacher-cache"
    weight = 0.3  # loading a teacher takes a second
    also_named = (CACHE,)
    targets: Sequence[str] = (f"{CACHE}/outputs-0.json", f"{CACHE}/outputs-0.bin")

    def make(self, folder: Path) -> None:
        make_teacher(folder / "scene")
        zoo(folder / "scene", DISTILL)
        shutil.move(folder / "scene" / STUDENT, folder / "sound")

    def commands(self, random: Random) -> list[list[str]]:
        return [[*DISTILL]]

    def check(self, folder: Path) -> str:
        sound = stored(folder.parent / "sound" / "model")
        result = stored(folder / STUDENT / "model")
        other = [name for name in sound if sound[name].tobytes() != result[name].tobytes()]
        return f"{other[0]} differs from the sound example" if other else ""


class SealedTeacherCache(TeacherCache):
    """A cache with digests of the mutated bytes, which must not crash a run."""

    name = "sealed-teacher-cache"

    def seal(self, folder: Path) -> None:
        data = bytearray((folder / CACHE / "outputs-0.bin").read_bytes())
        size = min(int.from_bytes(data[:8], "little"), len(data) - 24)
        data[:8] = size.to_bytes(8, "little")
        data[8:24] = blake3(data[24 : 24 + size]).digest(16)
        (folder / CACHE / "outputs-0.bin").write_bytes(data)
        path = folder / CACHE / "outputs-0.json"
        complete = f'"complete": {len(data)}'
        path.write_text(re.sub(r'"complete": \d+', complete, path.read_text()))
        seal_record(path)

    def may_leave(self, stderr: str) -> Sequence[str]:
        """Outputs of a teacher may be huge numbers: the run begins, and diverges."""
        return (STUDENT,) if "not a finite number" in stderr else ()

    def check(self, folder: Path) -> str:
        return ""


class DistillRecipe(Reader):
    name = "distill-recipe"
    weight = 0.7
    also_named = PATHS  # of a cache or of data, which a mutated recipe may name
    targets: Sequence[str] = ("settings.yaml",)
    computes = True  # the steps of a run
    COMMAND: ClassVar[Sequence[str]] = DISTILL

    def make(self, folder: Path) -> None:
        make_teacher(folder / "scene")

    def commands(self, random: Random) -> list[list[str]]:
        return [[*self.COMMAND, "--max-steps", "1"]]

    def check(self, folder: Path) -> str:
        """Check that the recorded settings of the run match the file."""
        import yaml

        stated = yaml.load((folder / "settings.yaml").read_bytes(), yaml.SafeLoader)
        noted = yaml.load((folder / STUDENT / "config.yaml").read_bytes(), yaml.SafeLoader)
        for key in stated.keys() - {"max_steps", "data", "config", "student", "distillation"}:
            if isinstance(stated[key], int | str) and stated[key] != noted.get(key):
                return f"{key} is {noted.get(key)}, and the file states {stated[key]}"
        return ""


class FinetuneRecipe(DistillRecipe):
    name = "finetune-recipe"
    COMMAND = FINETUNE

    def make(self, folder: Path) -> None:
        make_table(folder / "scene")
        config = {name: int(size) for name, _, size in (text.partition("=") for text in SMALL)}
        tree = {**FEW, "family": "bert", "vocab_size": 300, "config": config}
        (folder / "scene" / "settings.yaml").write_text(json.dumps(tree, indent=1))


class Evaluations(Reader):
    """Evaluation records in a manifest with a recomputed digest, and what shows or adds to them."""

    name = "evaluations"
    also_named = (MODEL,)
    targets = (f"{MODEL}/zoo.json",)
    unusual = False

    def make(self, folder: Path) -> None:
        scene = folder / "scene"
        make_table(scene)
        finetune(scene, "bert", "text-classification", "table.jsonl")
        shutil.move(scene / RUN / "model", scene / MODEL)
        shutil.rmtree(scene / RUN)
        for seed in "12":
            zoo(scene, [*self._evaluate(), "--seed", seed])

    def _evaluate(self) -> list[str]:
        return ["eval", MODEL, "--task", "text-classification", "--eval", "table.jsonl", "--json"]

    def seal(self, folder: Path) -> None:
        seal_record(folder / MODEL / "zoo.json")

    def commands(self, random: Random) -> list[list[str]]:
        card = ["convert", MODEL, "--to", "hub", "-o", HUB]
        return [random.choice((card, self._evaluate(), ["info", MODEL, "--json"]))]

    def check(self, folder: Path) -> str:
        """Check that a card has the names of all evaluated files, and that records are kept."""
        listed = json.loads((folder / MODEL / "zoo.json").read_bytes()).get("evaluations", [])
        if (folder / HUB).exists():
            card = (folder / HUB / "README.md").read_text("utf-8")
            tasks = [entry["task"] for entry in listed if f"{entry['task']}"[:4] not in card]
            return f"the card lacks {tasks[0]}" if tasks else ""
        return ""


class Upload(Reader):
    """Directory that ``zoo push`` lists, without sending anything."""

    name = "push-plan"
    also_named = (HUB, ".zoo.json")
    targets: Sequence[str] = (*[f"{HUB}/.zoo.json"] * 2, f"{HUB}/README.md", f"{HUB}/*")

    def make(self, folder: Path) -> None:
        make_model(folder / "made")
        zoo(folder / "made", ["convert", MODEL, "--to", "hub", "-o", HUB])
        (folder / "scene").mkdir()
        shutil.move(folder / "made" / HUB, folder / "scene" / HUB)
        shutil.rmtree(folder / "made")

    def commands(self, random: Random) -> list[list[str]]:
        return [["push", HUB, "someone/model", "--json"]]

    def check(self, folder: Path) -> str:
        """Check lengths and digests, and that nothing outside or hidden is listed."""
        for file in json.loads((folder.parent / "out").read_text())["files"]:
            path = folder / HUB / file["name"]
            content = path.read_bytes()
            stated = file["bytes"], file["sha256"]
            if stated != (len(content), hashlib.sha256(content).hexdigest()):
                return f"{file['name']} is listed with another digest"
            if path.is_symlink() or folder.resolve() / HUB not in path.resolve().parents:
                return f"{file['name']} is a link, or elsewhere"
        return ""


class SealedUpload(Upload):
    """A plan with digests of the mutated files, as an attacker would write them."""

    name = "sealed-push-plan"

    def seal(self, folder: Path) -> None:
        from zoo.io.digests.files import hash_file

        path = folder / HUB / ".zoo.json"
        record = json.loads(path.read_bytes())
        for name in record["files"]:
            if (folder / HUB / name).is_file() and not (folder / HUB / name).is_symlink():
                stated = hash_file(folder / HUB / name)
                record["files"][name] = {"bytes": stated.bytes, "blake3": stated.blake3}
        path.write_text(json.dumps(record))
        seal_record(path)


READERS = (
    TeacherCache(),
    SealedTeacherCache(),
    DistillRecipe(),
    FinetuneRecipe(),
    Evaluations(),
    Upload(),
    SealedUpload(),
)
