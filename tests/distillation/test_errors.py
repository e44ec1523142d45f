"""Refusals of the command: one line, the documented exit code, and no run left behind."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests import warm
from tests.distillation.making import DISTILL_SMALL, make_setup, narrow, pretrained
from tests.finetuning.making import finetune, labelled, texts
from tests.finetuning.making import settings as finetune_settings
from tests.once import written_once
from tests.tasks.token_classification.making import tagged
from zoo.checkpoint import CONFIG, MANIFEST, TOKENIZER, Manifest, encode_manifest
from zoo.errors import UsageError
from zoo.io.json import read_json_record
from zoo.training.config.overrides import deep_merge

Command = Callable[..., str]


@pytest.fixture(scope="module")
def teacher() -> Path:
    return pretrained("bert")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")  # one cache of corpora for all tests


@pytest.fixture
def refused(tmp_path: Path, home: Path) -> Command:
    """Return a function that runs the command, and returns the one line of its error."""

    def run(*arguments: object, code: int = 2, **settings: Any) -> str:
        file = tmp_path / "settings.yaml"
        file.write_text(yaml.safe_dump({**DISTILL_SMALL, **settings}))
        words = (file, *arguments) if settings else arguments
        output = tmp_path / "run"
        options = () if "--resume" in arguments else ("-o", output)
        done = warm.zoo("distill", *words, *options, "--device", "cpu", ZOO_HOME=str(home))
        assert done.returncode == code, done.stderr
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert errors and done.stderr.rstrip().endswith(errors[-1]) and len(errors) == 1
        assert not output.exists() and "Traceback" not in done.stderr
        return errors[0]

    return run


@pytest.mark.long
def test_names(refused: Command, teacher: Path) -> None:
    both = ("--teacher", teacher, "--student", "distilbert")
    assert "name one with --student" in refused("--teacher", teacher)
    assert "name a teacher and a student" in refused("--student", "distilbert")
    line = refused("--teacher", teacher, "--student", "distilbrt")
    assert "did you mean distilbert" in line
    assert "did you mean minilmv2" in refused(*both, "--recipe", "minilmv3")


def test_a_teacher_that_is_not_here(refused: Command) -> None:
    student = ("--student", "distilbert", "--offline")
    line = refused("--teacher", "bert", *student, code=4)
    assert "the teacher bert: " in line and "`zoo pretrain bert` trains one" in line
    line = refused("--teacher", "allminilm-l6-v2", *student)
    assert "did you mean all-minilm-l6-v2" in line


def test_the_directory_of_a_run(refused: Command, teacher: Path) -> None:
    run = teacher.parent
    remedy = f"{run} holds no config.json; give {teacher}, the model of this run"
    line = refused("--teacher", run, "--student", "distilbert", code=4)
    assert line == f"error: the teacher {run}: {remedy}"
    assert refused("--teacher", teacher, "--student", run, code=4) == f"error: {remedy}"
    line = refused(
        "--teacher", teacher, "--student", "distilbert", "--set", f"data.tokenizer={run}"
    )
    assert line.endswith(f"has no tokenizer files; give {teacher}, the model of this run")


def test_a_damaged_teacher(refused: Command, teacher: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(teacher, tmp_path / "broken")
    weights = broken / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1
    weights.write_bytes(content)
    tree = {"distillation": {"teachers": [str(broken)]}, "student": "distilbert"}
    line = refused(code=3, **tree)
    assert "it was changed or is damaged" in line
    (broken / CONFIG).write_text("{")
    assert "config.json is not JSON" in refused(code=3, **tree)


def test_a_teacher_without_a_tokenizer(refused: Command, teacher: Path, tmp_path: Path) -> None:
    bare = shutil.copytree(teacher, tmp_path / "bare")
    (bare / TOKENIZER).unlink()
    model = json.loads((bare / CONFIG).read_text())
    del model["tokenizer"]
    (bare / CONFIG).write_text(json.dumps(model))
    without_digests(bare, TOKENIZER, CONFIG)
    line = refused("--teacher", bare, "--student", "distilbert")
    assert "has no tokenizer" in line


def without_digests(model: Path, *names: str) -> None:
    """Leave files out of the manifest of a model, so that they may change."""
    manifest = read_json_record(model / MANIFEST, Manifest)
    files = {name: file for name, file in manifest.files.items() if name not in names}
    changed = msgspec.structs.replace(manifest, files=files)
    (model / MANIFEST).write_bytes(encode_manifest(changed))


def test_another_vocabulary(refused: Command, teacher: Path) -> None:
    other = pretrained("distilbert", vocab_size=300)
    tree = {"distillation": {"teachers": [str(teacher)]}, "student": str(other)}
    assert "student and teacher have different tokens: " in refused(**tree)


def test_swapped_vocabularies(refused: Command, teacher: Path, tmp_path: Path) -> None:
    """The same tokens, of which two have each other's numbers."""
    vocabulary = json.loads((teacher / TOKENIZER).read_text())["model"]["vocab"]
    swapped = with_swapped_tokens(teacher, tmp_path / "swapped")
    tree = {"distillation": {"teachers": [str(teacher)]}, "student": str(swapped)}
    line = refused(**tree)
    total, a, b = len(vocabulary), *sorted((vocabulary["a"], vocabulary["b"]))
    named = f"2 of {total} tokens differ (id {a} is 'a' in {teacher} and 'b' in the student, {b} is"
    assert f"student and teacher have different tokens: {named}" in line
    assert "--align text compares texts" in line


def test_a_vocabulary_size_of_a_student(refused: Command, teacher: Path) -> None:
    student = {"name": "distilbert", "vocab_size": 77}
    line = refused(distillation={"teachers": [str(teacher)]}, student=student)
    assert "student.vocab_size is 77, but the tokenizer decides the size of the vocabulary" in line


def with_swapped_tokens(model: Path, path: Path) -> Path:
    """Copy a model, and swap the ids of two tokens."""
    swapped = shutil.copytree(model, path)
    tokenizer = json.loads((swapped / TOKENIZER).read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    (swapped / TOKENIZER).write_text(json.dumps(tokenizer))
    without_digests(swapped, TOKENIZER)
    return swapped


@pytest.mark.parametrize("task", [None, "text-classification"])
def test_rows_of_embeddings_are_not_copied_to_other_tokens(
    tmp_path: Path, task: str | None
) -> None:
    """Of a student with the teacher's layers, and with a tokenizer of its own."""
    teacher = classifier(task) if task else pretrained("bert")
    swapped = with_swapped_tokens(teacher, tmp_path / "its tokenizer")
    tree: dict[str, Any] = {
        "distillation": {"teachers": [str(teacher)]},
        "student": narrow("bert"),
    }
    if task:
        tree |= {"task": task, "data": {"train": [str(labelled(tmp_path / "t.jsonl"))]}}
        tree["tokenizer"] = str(swapped)
    else:
        tree["data"] = {"tokenizer": str(swapped)}
        tree["distillation"] |= {"align": "text", "recipe": "text"}
    tree["distillation"]["init_layers"] = "uniform"
    with pytest.raises(UsageError) as caught:
        make_setup(tree if task else deep_merge(DISTILL_SMALL, tree))
    line = str(caught.value)
    assert f"the student would copy embeddings of {teacher}, which belong to other tok" in line
    assert "is 'a' in the teacher and 'b' in the student" in line
    assert f"--set {'' if task else 'data.'}tokenizer={teacher} takes the teacher's" in line


def classifier(task: str) -> Path:
    """Return a model that was fine-tuned on a task with labels."""
    words = task == "token-classification"

    def write(folder: Path) -> None:
        table = tagged(folder / "words.conll") if words else labelled(folder / "texts.jsonl")
        changes = {"task": task, "max_steps": 2, "config": {"num_layers": 2}}
        finetune(folder / "run", finetune_settings("bert", table, **changes))

    return written_once(f"teacher-of-{task}", write) / "run/model"


@pytest.mark.by_default("replaced-token-detection")
@pytest.mark.parametrize(
    ("head", "student", "make"),
    [
        ("replaced-token-detection", "bert", lambda: pretrained("electra")),
        ("sequence-classification", "distilbert", lambda: classifier("text-classification")),
        ("token-classification", "distilbert", lambda: classifier("token-classification")),
    ],
)
def test_a_teacher_with_another_head(
    refused: Command, head: str, student: str, make: Callable[[], Path]
) -> None:
    line = refused(distillation={"teachers": [str(make())]}, student=student)
    assert f"has the head {head}, and masked-lm compares outputs of masked-lm" in line
    assert "with --task, name the task of a fine-tuned teacher" in line


def test_a_teacher_of_embeddings_is_a_sentence_encoder(refused: Command, tmp_path: Path) -> None:
    sentences = tmp_path / "sentences.txt"
    sentences.write_text("\n".join(texts(8)))
    both = ("--teacher", classifier("text-classification"), "--student", "bert")
    line = refused(*both, "--recipe", "embeddings", "--train", sentences)
    assert line.endswith("`zoo finetune --task sentence-embedding` trains one")


@pytest.mark.by_default("term0", "term2", "term6")
@pytest.mark.parametrize(
    ("term", "message"),
    [
        ({"kind": "hidden-mse", "layers": [[0, 7]]}, "the teacher has no layer 7"),
        ({"kind": "kl", "wieght": 1}, "did you mean weight"),
        ({"kind": "kl", "temperature": 0}, "temperature is 0"),
        ({"kind": "kl", "temperature": -1}, "distillation.terms.x: temperature is -1"),
        ({"kind": "kl", "temperature": "high"}, "terms.x.temperature: Expected `float`, got `str`"),
        ({"weight": 2}, "distillation.terms.x has no kind"),
        ({"kind": "hidden-msa"}, "terms.x.kind is 'hidden-msa', which is not a distillation loss"),
        (
            {"kind": "kl", "temperature": "nan"},
            "distillation.terms.x.temperature: Expected `float`",
        ),
        (3, "distillation.terms.x is 3, not a table of settings; --set distillation.terms.x.wei"),
        (None, "--set distillation.terms.x.weight=0 leaves a term out"),
        ({"kind": "hidden-cosine", "temperature": 3}, "x.temperature is 3, which hidden-cosine"),
        (
            {"kind": "hidden-cosine", "reduction": "elements"},
            "a setting of embeddings, first-token",
        ),
        ({"kind": "kl", "layers": "uniform"}, "x.layers is 'uniform', which kl does not read"),
    ],
)
def test_terms(refused: Command, teacher: Path, term: Any, message: str) -> None:
    distillation = {"teachers": [str(teacher)], "terms": {"x": term}}
    assert message in refused(distillation=distillation, student="distilbert")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("distillation=3", "distillation is 3, not a table of settings"),
        ("distillation.terms=3", "it has a name for each term"),
        ("distillation.stages=3", "it has settings by name of a stage"),
        ("distillation.recipe=3", "distillation.recipe is 3; name a recipe"),
        ("distillation.freeze=embeddings", "distillation.freeze: Expected `array`, got `str`"),
        ("distillation.replacement.rate=2", "distillation.replacement: rate is 2.0"),
        ("preset=glue", "--preset is for tasks on labelled data, and this run is on text"),
    ],
)
def test_settings(refused: Command, teacher: Path, setting: str, message: str) -> None:
    both = ("--teacher", teacher, "--student", "distilbert")
    assert message in refused(*both, "--set", setting)


def test_a_field_of_the_student(refused: Command, teacher: Path) -> None:
    both = ("--teacher", teacher, "--student", "distilbert")
    line = refused(*both, "--set", "student.num_layers=abc")
    assert "student.num_layers: Expected `int`, got `str`" in line


@pytest.mark.long
def test_attention_of_a_recurrent_teacher(refused: Command) -> None:
    terms = {"x": {"kind": "attention-mse"}}
    distillation = {"teachers": [str(pretrained("elmo"))], "terms": terms, "init_layers": None}
    line = refused(distillation=distillation, student="elmo")
    assert "compares attention, and a model has none" in line


# test_teacher_backends.py has this line of the settings, without the export.
@pytest.mark.long
def test_attention_of_a_teacher_on_onnx(refused: Command, teacher: Path) -> None:
    both = ("--teacher", teacher, "--student", "distilbert", "--teacher-backend", "onnx")
    line = refused(*both, "--recipe", "minilm")
    assert "the term attention compares attention-kl, but a teacher in ONNX" in line


@pytest.mark.long
def test_files(refused: Command, teacher: Path, tmp_path: Path) -> None:
    both = ("--teacher", teacher, "--student", "distilbert")
    broken, text = tmp_path / "broken.yaml", tmp_path / "recipe.txt"
    broken.write_text("a: [b")
    text.write_text("")
    assert "not YAML that can be read" in refused(broken, code=2)
    assert "is not a YAML file" in refused(text)
    assert "not YAML" in refused(*both, "--recipe", broken)
    table = tmp_path / "t.tsv"
    table.write_text("text\tlabel\na\tyes\n")
    assert "t.tsv is a table of labelled data; name its task" in refused(*both, "--train", table)


def test_a_run_of_another_kind(refused: Command, teacher: Path) -> None:
    line = refused("--resume", teacher.parent)
    assert "is a run of `zoo pretrain`, not of `zoo distill`" in line
