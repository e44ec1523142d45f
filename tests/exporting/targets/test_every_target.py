"""Export targets: the gate, missing runtimes, damaged files, options of other targets."""

import importlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import click
import msgspec
import numpy as np
import openvino
import pytest
from click.testing import CliRunner, Result

from tests.exporting.conftest import with_tokenizer
from tests.inference.making import draw_batch, make_checkpoint
from zoo.api import Model
from zoo.checkpoint import MANIFEST, Checkpoint, encode_manifest, load_checkpoint
from zoo.cli import cli
from zoo.cli.parameter_types import TargetChoice
from zoo.errors import UsageError, VerificationError
from zoo.exporting.gate import export_model
from zoo.exporting.quantization.plan import QuantizationPlan
from zoo.exporting.quantization.search import DropError
from zoo.exporting.session import open_session
from zoo.exporting.targets import BUILT_IN, find_target
from zoo.exporting.targets.base import ExportSettings, ExportTarget, Precision
from zoo.exporting.targets.gguf.llama import llama_problem
from zoo.exporting.targets.session import TargetSession
from zoo.inference import Session, load_session
from zoo.inference.load_model import load_model
from zoo.plugins import get_family

needs_llama = pytest.mark.skipif(llama_problem() is not None, reason="llama.cpp is not installed")
# ONNX, and what is another model, have tests of their own
OTHERS = [
    pytest.param(name, marks=needs_llama) if name == "gguf" else name
    for name in BUILT_IN
    if name not in ("onnx", "static")
]
# The gate is one for all targets, and OpenVINO takes longest to come to it.
FASTER = [
    pytest.param(case, marks=pytest.mark.long) if case == "openvino" else case for case in OTHERS
]
LOOSE = ExportSettings(allow_tokenizer_differences=True)


def zoo(*arguments: object) -> Result:
    return CliRunner().invoke(cli, list(map(str, arguments)))


def failure(*arguments: object) -> tuple[int, str]:
    error = zoo(*arguments).exception
    assert error is not None
    return getattr(error, "exit_code", 1), str(error)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return with_tokenizer(tmp_path_factory.mktemp("encoder") / "bert", "none")


@pytest.fixture(scope="module")
def exported(
    encoder: Checkpoint, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Return a cached function from a target to an export of the encoder, which no test changes."""

    @cache
    def export(name: str) -> Path:
        output = tmp_path_factory.mktemp("exports") / name
        loose = "--allow-tokenizer-differences"
        done = zoo("export", encoder.path, "--to", name, "-o", output, loose)
        assert done.exception is None and "wrote" in done.stdout
        return output

    return export


@pytest.mark.parametrize("name", FASTER)
def test_a_missing_runtime_writes_nothing_without_unverified(
    name: str, encoder: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = find_target(name)
    monkeypatch.setattr(type(target), "runtime_problem", lambda self: "it is not here")
    output = tmp_path / "export"
    with pytest.raises(UsageError, match="not available") as caught:
        export_model(target, encoder, output, ExportSettings())
    assert target.runtime_install() in caught.value.hint and "--unverified" in caught.value.hint
    assert not output.exists()
    report = export_model(target, encoder, output, ExportSettings(unverified=True))
    assert (report.validated, report.unverified) == (False, "it is not here")
    record: Any = load_checkpoint(output).manifest.export
    assert (record["validated"], record["unverified"]) == (False, "it is not here")
    with pytest.raises(UsageError, match="is not available: it is not here"):
        open_session(load_checkpoint(output))


@pytest.mark.parametrize("name", FASTER)
def test_a_difference_writes_nothing(
    name: str, encoder: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = load_model

    def changed(*arguments: Any) -> Any:  # torch of the comparison, and not what is written
        model = exact(*arguments)
        for parameter in model.parameters():
            parameter.data.mul_(1.01)
        return model

    monkeypatch.setattr("zoo.exporting.gate.load_model", changed)
    with pytest.raises(VerificationError, match="differs from torch by"):
        export_model(find_target(name), encoder, tmp_path / "export", LOOSE)
    assert [path for path in tmp_path.iterdir() if path.name != "zoo-home"] == []


class Liar(ExportTarget):
    """A target of a third party that is wrong for long rows only."""

    name, title, package = "liar", "Liar", ""
    precisions: ClassVar[Mapping[str, Precision]] = {"float32": Precision(1e-4, "none")}

    def refusal(self, *_: Any) -> str | None:
        return None

    def write(self, checkpoint: Checkpoint, directory: Path, precision: str) -> None:
        (directory / "weights").write_bytes(b"0")

    def open(self, checkpoint: Checkpoint, *_: Any) -> Session:
        return LiarSession(checkpoint, "liar", "float32")


class LiarSession(TargetSession):
    def compute(self, arrays: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
        outputs = load_session(load_checkpoint(Path(self._name)), "cpu").run(arrays)
        exact = arrays["input_ids"].shape[1] < 20
        return {name: outputs[name] if exact else np.roll(outputs[name], 1) for name in names}


def test_a_target_that_is_wrong_for_long_rows_writes_nothing(
    encoder: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BUILT_IN, "liar", f"{__name__}:Liar")
    code, message = failure("export", encoder.path, "--to", "liar", "-o", tmp_path / "export")
    assert code == 3 and "differs from torch by" in message and "x 40 tokens" in message
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize("name", OTHERS)
def test_an_export_runs_in_commands(
    name: str, encoder: Checkpoint, exported: Callable[[str], Path]
) -> None:
    export = load_checkpoint(exported(name))
    drawn = draw_batch([5, 3])
    ids = drawn["input_ids"] % encoder.model.config["vocab_size"]
    batch = {"input_ids": ids, "attention_mask": drawn["attention_mask"]}
    expected = load_session(encoder, "cpu").run(batch)
    mask = batch["attention_mask"].astype(bool)
    actual = open_session(export).run(batch)
    for output, value in actual.items():
        if output in expected:
            a, b = expected[output], value
            a, b = (a[mask], b[mask]) if a.shape[:2] == mask.shape else (a, b)
            assert np.abs(a - b).max() <= 1e-4 * np.abs(a).max()
    ours, theirs = (Model(c, open_session(c)).embed(["a b", "c"]) for c in (encoder, export))
    np.testing.assert_allclose(theirs, ours, atol=5e-3)
    for command in ("info", "verify"):
        assert zoo(command, export.path).exception is None
    assert zoo("run", "embed", export.path, "a text").exception is None


@pytest.mark.parametrize("name", OTHERS)
def test_damaged_files_are_named(
    name: str, exported: Callable[[str], Path], tmp_path: Path
) -> None:
    export = load_checkpoint(shutil.copytree(exported(name), tmp_path / "export"))
    (file,) = (path for path in export.path.rglob("*") if path.suffix in (".bin", ".gguf"))
    content = file.read_bytes()
    for damaged in (content[: len(content) // 2], content[:-1] + bytes([content[-1] ^ 1])):
        file.write_bytes(damaged)
        assert failure("run", "embed", tmp_path / "export", "a")[0] == 3
    file.unlink()
    code, message = failure("run", "embed", tmp_path / "export", "a")
    assert (code, "it is missing" in message) == (3, True)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"target": 5}, "target is not a text"),
        ({"dtype": "q9"}, "has no precision 'q9'"),
    ],
)
def test_a_record_of_something_else_is_refused(
    record: dict[str, Any], reason: str, exported: Callable[[str], Path], tmp_path: Path
) -> None:
    path = shutil.copytree(exported("ctranslate2"), tmp_path / "export")
    manifest = load_checkpoint(path).manifest
    changed = msgspec.structs.replace(manifest, export={**(manifest.export or {}), **record})
    (path / MANIFEST).write_bytes(encode_manifest(changed))
    code, message = failure("run", "embed", path, "a")
    assert code == 3 and reason in message, message


def test_an_export_says_what_it_is(exported: Callable[[str], Path], tmp_path: Path) -> None:
    export = exported("openvino")
    cases = {
        ("run", "embed", export, "a", "--backend", "cpu"): "--backend openvino",
        ("run", "embed", export, "a", "--dtype", "float16"): "in float32, not float16",
        ("convert", export, "-o", tmp_path / "again"): "openvino",
        ("export", export, "-o", tmp_path / "again"): "openvino",
    }
    messages = {arguments: failure(*arguments)[1] for arguments in cases}
    assert [a for a, part in cases.items() if part not in messages[a]] == [], messages


def test_options_of_another_target_are_refused(encoder: Checkpoint) -> None:
    to = ("export", encoder.path, "--to", "openvino")
    cases = {
        (
            "--opset",
            18,
        ): "--opset is not an option of --to openvino; leave it out; it is an option of --to onnx",
        ("--int4",): "--int4 is not an option of --to openvino; --dtype takes "
        + ", ".join(find_target("openvino").precisions),
        ("--int8", "static"): "--int8 static is not an option of --to openvino; leave static out",
        ("--int8", "--dtype", "fp16"): "an export to OpenVINO has one precision, not float16 and "
        "int8; give one of them",
        ("--max-drop", 0): "--max-drop is for quantized models; give --dtype int8, or leave it out",
        ("--dtype", "q4"): "OpenVINO has no precision 'q4'; give float32, float16, int8",
        ("--onnx",): "--onnx and --to openvino are two targets; give one of them",
    }
    assert {options: failure(*to, *options) for options in cases} == {
        options: (2, message) for options, message in cases.items()
    }


def test_targets_and_precisions_are_found_by_any_spelling() -> None:
    with pytest.raises(click.BadParameter, match="did you mean openvino"):
        TargetChoice().convert("openvin", None, None)
    gguf, onnx = find_target("gguf"), find_target("onnx")
    spellings = ("f32", "fp16", "BF16", "Q8_0", "q4_1", None)
    names = ["float32", "float16", "bfloat16", "q8_0", "q4_1", "float32"]
    assert [gguf.check_precision(name) for name in spellings] == names
    with pytest.raises(UsageError, match="no precision 'q4_k_m'; did you mean q4_1 or q4_0"):
        gguf.check_precision("q4_k_m")
    assert [gguf.check_precision(name) for name in ("int8", "INT4")] == ["q8_0", "q4_0"]
    # Quantized graphs are added to the one in float32.
    assert onnx.resolve_precisions(["int8"]) == ("float32", "int8")
    assert onnx.resolve_precisions(["fp16"]) == ("float16",)


def test_targets_are_folders() -> None:
    """A name may have hyphens; the module of its folder then has underscores."""
    folder = Path(importlib.import_module("zoo.exporting.targets").__path__[0])
    modules = {target.partition(":")[0].rpartition(".")[2] for target in BUILT_IN.values()}
    assert {p.name for p in folder.iterdir() if (p / "__init__.py").is_file()} == modules
    assert {name.replace("-", "_") for name in BUILT_IN} == modules


def test_openvino_stores_rows_of_8_bits(encoder: Checkpoint, tmp_path: Path) -> None:
    plan = QuantizationPlan((), max_drop=0.05)
    settings = ExportSettings(precision="int8", quantization=plan)
    report = export_model(find_target("openvino"), encoder, tmp_path / "export", settings)
    assert report.agreement is not None and (report.agreement.cosine or 0) > 0.999
    model = openvino.Core().read_model(tmp_path / "export" / report.files[1])
    constants = [op for op in model.get_ops() if op.get_type_name() == "Constant"]
    stored = [op for op in constants if np.asarray(op.data).dtype == np.int8]
    with encoder.open_weights() as reader:
        exact = np.asarray(reader.read("layers.0.ffn.up.weight"), np.float32)
    scales = np.abs(exact).max(1, keepdims=True) / 127
    # three tables of embeddings or fewer, four linear maps of the block, and the pooler
    assert 6 <= len(stored) <= 8
    arrays = [np.asarray(op.data) for op in stored]
    expected = np.rint(exact / scales)
    equal = [a for a in arrays if np.array_equal(a, expected) or np.array_equal(a.T, expected)]
    assert len(equal) == 1


MIXED = [
    # The search is that of ONNX, which tests/exporting/quantization has.
    pytest.param("openvino", "int8", marks=pytest.mark.long),
    pytest.param("gguf", "q4_0", marks=needs_llama),
]


@pytest.mark.parametrize(("name", "precision"), MIXED)
def test_layers_that_lose_most_are_kept(
    name: str, precision: str, encoder: Checkpoint, tmp_path: Path
) -> None:
    target = find_target(name)

    def export(folder: str, drop: float) -> Any:
        plan = QuantizationPlan((), max_drop=drop)
        settings = replace(LOOSE, precision=precision, quantization=plan)
        return export_model(target, encoder, tmp_path / folder, settings)

    everything = export("all", 1.0)
    some = export("some", everything.agreement.drop / 2)
    assert everything.kept == [] and some.kept
    assert some.agreement.drop <= everything.agreement.drop / 2 < everything.agreement.drop
    assert everything.bytes < some.bytes
    assert some.kept[0] in "\n".join(some.lines())
    session = open_session(load_checkpoint(tmp_path / "some"))
    assert session.dtype == precision


def test_one_precision_for_all_layers_is_said(encoder: Checkpoint, tmp_path: Path) -> None:
    plan = QuantizationPlan((), max_drop=0.0)
    settings = ExportSettings(precision="int8", quantization=plan)
    with pytest.raises(DropError, match="CTranslate2 has one precision for all layers"):
        export_model(find_target("ctranslate2"), encoder, tmp_path / "export", settings)


# The metric of a task is measured for all targets as test_quantize.py does for ONNX.
@pytest.mark.long
def test_labelled_data_decide(tmp_path: Path) -> None:
    classifier = with_tokenizer(tmp_path / "classifier", "sequence-classification")
    table, output = tmp_path / "table.tsv", tmp_path / "export"
    texts, labels = ("a", "b c", "a c", "b a a"), classifier.model.config["labels"]
    rows = [f"{text}\t{labels[n % 2]}" for n, text in enumerate(texts)]
    table.write_text("\n".join(["text\tlabel", *rows]))
    measured = ("--dtype", "int8", "--eval", table, "--max-drop", 1, "-o", output)
    done = zoo("export", classifier.path, "--to", "openvino", *measured)
    assert done.exception is None, done.output
    results = Model(classifier, load_session(classifier, "cpu")).run("classify", list(texts))
    right = [result["label"] == labels[n % 2] for n, result in enumerate(results)]
    agreement = (load_checkpoint(output).manifest.export or {})["agreement"]
    found = agreement["measure"], agreement["reference_metric"]
    assert found == ("accuracy", sum(right) / len(right))


def test_openvino_has_the_threads_of_the_environment(
    exported: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    session: Any = open_session(load_checkpoint(exported("openvino")))
    assert session._compiled.get_property("INFERENCE_NUM_THREADS") == 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("head", "dtype"),
    [
        pytest.param("masked-lm", "float32", marks=pytest.mark.long),
        ("masked-lm", "float16"),
        pytest.param("sequence-classification", "float32", marks=pytest.mark.long),
        pytest.param("multiple-choice", "float32", marks=pytest.mark.long),
    ],
)
def test_openvino_holds_heads(head: str, dtype: str, tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "model", head, num_layers=1)
    target = find_target("openvino")
    report = export_model(target, checkpoint, tmp_path / "export", ExportSettings(precision=dtype))
    assert report.validated and report.max_rel is not None
    assert report.max_rel < (1e-4 if dtype == "float32" else 2e-2)


def test_openvino_has_no_loop_over_tokens() -> None:
    family, target = get_family("elmo"), find_target("openvino")
    config = family.sizes()["tiny"]
    reasons = {head: target.refusal(family, config, head) or "" for head in family.heads()}
    assert [head for head, reason in reasons.items() if "no Scan" not in reason] == []


@pytest.mark.parametrize(
    ("architecture", "task", "backend", "reason"),
    [
        ("GPT2LMHeadModel", ("generate",), "openvino", "with {}: it generates no text"),
        ("BertModel", ("features",), "gguf", "with {}: it returns no vectors of tokens"),
        ("BertModel", ("features", "--layers", 0), "onnx", "does not expose single layers"),
        ("BertForTokenClassification", ("classify",), "ctranslate2", "cannot hold {}, of"),
    ],
)
def test_a_backend_refuses_before_an_export(
    architecture: str,
    task: tuple[str, ...],
    backend: str,
    reason: str,
    small: Callable[[str], Checkpoint],
    tmp_path: Path,
) -> None:
    """And names the model as the user does: here a folder of the Hub, converted into a cache."""
    small(architecture)
    verb, *options = task
    source, home = tmp_path / "source", tmp_path / "zoo-home"
    code, message = failure("run", verb, source, "a", *options, "--backend", backend)
    assert code == 2 and reason.format(source) in message, message
    assert str(home) not in message
    assert not [*home.glob("exports/*/*"), *home.glob("onnx/*")]


def test_a_session_names_the_model_and_not_the_cache(encoder: Checkpoint) -> None:
    with pytest.raises(UsageError, match=f"^{encoder.path} holds"):
        open_session(encoder, "openvino").generator()
