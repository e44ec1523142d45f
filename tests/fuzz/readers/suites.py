"""Files of suites as published: JSON lines of SuperGLUE, and texts of STS, SentEval and CoLA."""

import json
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.fuzz.case import run_zoo
from tests.fuzz.octets import BYTES, Mutate, change_line
from tests.fuzz.reader import Reader, by_suffix
from tests.fuzz.readers.examples import zoo
from tests.fuzz.readers.models import MODEL, make_model
from tests.fuzz.readers.retrieval import error_of
from tests.fuzz.readers.tables import json_lines, rows_of
from tests.suites.frozen_folders import make_cola, make_probing, make_senteval, make_sts
from tests.suites.superglue_folder import make_superglue

DATA = "data"
COUNT = 4


class SuiteReader(Reader):
    """A folder of a suite, whose tasks are evaluated."""

    also_named = (DATA,)
    computes = True
    reference = MODEL
    tasks = ""

    def words(self) -> list[str]:
        """Return the words of the evaluation."""
        words = ["eval", self.reference, "--suite", self.name, "--eval", DATA]
        return [*words, "--tasks", self.tasks, "--json", "--no-record", "--backend", "cpu"]

    def commands(self, random: Random) -> list[list[str]]:
        return [self.words()]

    @abstractmethod
    def rewrite(self, path: Path) -> None:
        """Write the rows of a file again, as another library reads them."""

    def check(self, folder: Path) -> str:
        """Check that the same rows, written again, have equal metrics."""
        printed = json.loads((folder.parent / "out").read_text())["tasks"]
        for target in dict.fromkeys(self.targets):
            self.rewrite(folder / target)
        if run_zoo(self.words(), folder.parent):
            return "the same rows, written again, are refused: " + error_of(folder)
        expected = json.loads((folder.parent / "out").read_text())["tasks"]
        return "" if printed == expected else f"{printed} is not {expected} of the same rows"


class SuperGlue(SuiteReader):
    """Tasks with nested rows, answered by a classifier each."""

    name = "superglue"
    reference = "models"
    tasks = "cb,copa,multirc,record,wic,wsc"
    targets = (
        f"{DATA}/ReCoRD/val.jsonl",
        f"{DATA}/MultiRC/val.jsonl",
        f"{DATA}/WSC/val.jsonl",
        f"{DATA}/WiC/val.jsonl",
        f"{DATA}/COPA/val.jsonl",
        f"{DATA}/CB/val.jsonl",
    )

    def make(self, folder: Path) -> None:
        scene = folder / "scene"
        make_superglue(scene / DATA, COUNT)
        words = ["finetune", "bert", "--suite", self.name, DATA, "--tasks", self.tasks]
        words += ["-o", self.reference, "--max-steps", "1", "--device", "cpu", "--offline"]
        for setting in ("num_layers=1", "hidden_size=16", "num_heads=2", "intermediate_size=16"):
            words += ["--set", f"config.{setting}"]
        zoo(scene, [*words, "--set", "vocab_size=300"])

    def mutations(self, path: Path) -> Sequence[Mutate]:
        return by_suffix(path)

    def rewrite(self, path: Path) -> None:
        path.write_bytes(json_lines(rows_of(path)))


class Texts(SuiteReader):
    """Texts by line, of a suite that measures embeddings."""

    def make(self, folder: Path) -> None:
        make_model(folder / "scene")
        self.write(folder / "scene" / DATA)

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write the files of the suite."""

    def mutations(self, path: Path) -> Sequence[Mutate]:
        return (*BYTES, *[change_line] * len(BYTES))

    def rewrite(self, path: Path) -> None:
        """Write lines with the ends that the published files have, and without a mark of UTF-8."""
        content = path.read_bytes().removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
        path.write_bytes(content)


class Similarity(Texts):
    """Pairs and scores of STS."""

    name = "sts"
    tasks = "sts16,sts-benchmark,sick-r"
    targets = (
        f"{DATA}/STS/STS16-en-test/STS.input.headlines.txt",
        f"{DATA}/STS/STS16-en-test/STS.gs.headlines.txt",
        f"{DATA}/STS/STSBenchmark/sts-test.csv",
        f"{DATA}/SICK/SICK_test_annotated.txt",
    )

    def write(self, folder: Path) -> None:
        make_sts(folder, COUNT)


class SentEval(Texts):
    """Tasks of SentEval with labels before or after their texts."""

    name = "senteval"
    tasks = "sst2,trec"
    targets = (
        f"{DATA}/downstream/SST/binary/sentiment-test",
        f"{DATA}/downstream/TREC/TREC_10.label",
    )

    def write(self, folder: Path) -> None:
        make_senteval(folder, 10)


class Probing(Texts):
    """Probing tasks, with the three splits in one file."""

    name = "senteval-probing"
    tasks = "past-present,word-content"
    targets = (f"{DATA}/probing/past_present.txt", f"{DATA}/probing/word_content.txt")

    def write(self, folder: Path) -> None:
        make_probing(folder, COUNT)


class Acceptability(Texts):
    """CoLA's files, and its annotations of phenomena."""

    name = "cola-probing"
    tasks = "in-domain,out-of-domain,phenomena"
    targets = (
        f"{DATA}/raw/in_domain_train.tsv",
        f"{DATA}/raw/out_of_domain_dev.tsv",
        f"{DATA}/raw/CoLA_grammatical_annotations_major_features.tsv",
    )

    def write(self, folder: Path) -> None:
        make_cola(folder, 8)


READERS = (SuperGlue(), Similarity(), SentEval(), Probing(), Acceptability())
