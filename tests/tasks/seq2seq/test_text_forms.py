"""Text-to-text forms, against those of T5's paper (arXiv:1910.10683, appendix D) and code."""

from pathlib import Path

import pytest

from zoo.data.readers.glue import GLUE
from zoo.data.readers.labelled import Columns
from zoo.errors import UsageError
from zoo.tasks.seq2seq.data import iter_text_to_text
from zoo.tasks.seq2seq.text_forms import form_of, glue_form, glue_tables

# columns and a row of the file in GLUE's archive -> source and target of the paper's examples
EXAMPLES = {
    "cola": (
        ("1", "2", "3", "4"),
        ("bc01", "1", "", "John made Bill master of himself."),
        "cola sentence: John made Bill master of himself.",
        "acceptable",
    ),
    "sst2": (
        ("sentence", "label"),
        ("it confirms fincher 's status as a film maker", "1"),
        "sst2 sentence: it confirms fincher 's status as a film maker",
        "positive",
    ),
    "mrpc": (
        ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"),
        ("1", "7", "8", "We acted because we saw.", "I acted because I saw."),
        "mrpc sentence1: We acted because we saw. sentence2: I acted because I saw.",
        "equivalent",
    ),
    "stsb": (
        ("index", "sentence1", "sentence2", "score"),
        ("0", "Representatives for Puretunes", "Puretunes representatives", "3.25"),
        "stsb sentence1: Representatives for Puretunes sentence2: Puretunes representatives",
        "3.2",
    ),
    "qqp": (
        ("id", "question1", "question2", "is_duplicate"),
        ("9", "What attributes make a man?", "How does one prevent water?", "0"),
        "qqp question1: What attributes make a man? question2: How does one prevent water?",
        "not_duplicate",
    ),
    "mnli": (
        ("sentence1", "sentence2", "gold_label"),
        ("yeah well you're a student", "Well you're a mechanics student right?", "neutral"),
        "mnli hypothesis: Well you're a mechanics student right? "
        "premise: yeah well you're a student",
        "neutral",
    ),
    "qnli": (
        ("index", "question", "sentence", "label"),
        ("2", "Where did Jebe die?", "Genghis Khan recalled Subutai.", "not_entailment"),
        "qnli question: Where did Jebe die? sentence: Genghis Khan recalled Subutai.",
        "not_entailment",
    ),
    "rte": (
        ("index", "sentence1", "sentence2", "label"),
        ("5", "A smaller proportion.", "Yugoslavs are a minority.", "entailment"),
        "rte sentence1: A smaller proportion. sentence2: Yugoslavs are a minority.",
        "entailment",
    ),
}


def write(path: Path, *rows: tuple[str, ...]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("task", EXAMPLES)
def test_forms_of_glue(task: str, tmp_path: Path) -> None:
    header, row, source, target = EXAMPLES[task]
    rows = (row,) if task == "cola" else (header, row)
    file = write(tmp_path / "train.tsv", *rows)
    (sample,) = iter_text_to_text([f"glue/{task}={file}"], glue_form)
    assert (sample.source, sample.target, sample.dataset) == (source, target, f"glue/{task}")
    assert (sample.number == sample.number) == (task == "stsb")


def test_all_tasks_with_such_a_form_have_an_example() -> None:
    assert set(EXAMPLES) == set(GLUE) - {"wnli"}
    with pytest.raises(UsageError, match="glue/wnli has no form as text"):
        glue_form("glue/wnli")
    with pytest.raises(UsageError, match="did you mean glue/cola"):
        form_of("glue/kola", Columns())


@pytest.mark.parametrize(
    ("score", "target"),
    # 5 times the score, rounded to the even neighbour: of 2.5, 7.5, 16.5
    [
        ("0", "0.0"),
        ("5.0", "5.0"),
        ("0.5", "0.4"),
        ("1.5", "1.6"),
        ("3.3", "3.2"),
        ("2.4999", "2.4"),
    ],
)
def test_scores_are_rounded_as_in_the_released_code(
    score: str, target: str, tmp_path: Path
) -> None:
    header = EXAMPLES["stsb"][0]
    file = write(tmp_path / "train.tsv", header, ("0", "a", "b", score))
    (sample,) = iter_text_to_text([f"glue/stsb={file}"], glue_form)
    assert sample.target == target
    assert sample.number == float(score)


def test_a_label_without_a_word_is_an_error(tmp_path: Path) -> None:
    file = write(tmp_path / "train.tsv", ("sentence", "label"), ("a", "2"))
    with pytest.raises(UsageError, match=r"train.tsv:2: the label is '2', not 0 or 1"):
        list(iter_text_to_text([f"glue/sst2={file}"], glue_form))


def test_pairs_of_other_data_have_the_same_form(tmp_path: Path) -> None:
    file = write(tmp_path / "t.tsv", ("a", "b", "label"), ("x y", "z", "no"))
    columns = Columns("a", "label", "b")
    cases = {
        f"own={file}": (None, None, "own a: x y b: z"),
        str(file): (None, None, "a: x y b: z"),
        f"own.2={file}": ({"own.2": "is "}, "like ", "is x y like z"),
        f"third={file}": ({"own": "is "}, {"own": "like "}, "third a: x y b: z"),
    }
    for path, (prefix, pair_prefix, source) in cases.items():
        (sample,) = iter_text_to_text(
            [path],
            lambda name, texts=(prefix, pair_prefix): form_of(name, columns, *texts),  # type: ignore[misc]
        )
        assert (sample.source, sample.target) == (source, "no"), path
    (single,) = iter_text_to_text([f"own={file}"], lambda name: form_of(name, Columns("a")))
    assert single.source == "own: x y"


def test_directories_are_their_files(tmp_path: Path) -> None:
    names = ("train", "dev_matched", "dev_mismatched")
    train, *dev = (write(tmp_path / "MNLI" / f"{name}.tsv", ("a",)) for name in names)
    paths = [f"glue/mnli={tmp_path}", f"own={tmp_path}", f"glue/mnli={train}", "x.tsv"]
    assert glue_tables(paths, "train") == [f"glue/mnli={train}", *paths[1:]]
    assert glue_tables(paths, "dev") == [*(f"glue/mnli={file}" for file in dev), *paths[1:]]
