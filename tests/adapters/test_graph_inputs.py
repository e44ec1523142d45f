"""One exported graph that serves many adapters, whose tensors are its inputs."""

import itertools
import json
import shutil
from pathlib import Path

import onnxruntime
import pytest
from safetensors.numpy import load_file

import zoo as zoo_api
from tests.adapters.conftest import QUICK, Adapted
from tests.adapters.making import TEXTS, Trained, error_of, scores, write_random_adapter, zoo
from tests.adapters.making import trained as trained
from tests.checkpoints import Make
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import finetune, settings, texts, write_table
from tests.inference.conftest import converted
from zoo.adapters.graph_inputs import write_adapters
from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.conformance.verify import verify
from zoo.conversion.cache import resolve_checkpoint
from zoo.errors import UsageError, VerificationError


def flat(rows: list[list[float]]) -> list[float]:
    return [score for row in rows for score in row]


WORDS = ("a word b", "a term b")
NAMES = ("words", "terms", "plain")
METHODS = [
    pytest.param("lora", marks=pytest.mark.long),  # dora is lora with a length of each row
    *("dora", "prefix"),
    # factors of features, matrices and rows of embeddings are simpler inputs than these
    *(pytest.param(method, marks=pytest.mark.long) for method in ("ia3", "pfeiffer", "prompt")),
]


@pytest.mark.by_default("dora")
@pytest.mark.parametrize("method", METHODS)
def test_a_graph_serves_several_adapters(method: str, adapted: Adapted, tmp_path: Path) -> None:
    base, first = adapted(method, "first")
    second = adapted(method, "second", seed=7)[1]
    graph = tmp_path / "graph"
    options = ("--adapter", first, "--adapter", second, "--adapter-inputs", "-o", graph)
    report = json.loads(zoo("export", base, *options, "--json"))
    assert report["adapters"] == ["first", "second"] and report["max_rel"] < 1e-4
    expected = [flat(scores(base, "--adapter", adapter)) for adapter in (first, second)]
    gaps = [abs(one - other) for one, other in zip(*expected, strict=True)]
    assert max(gaps) > 1e-4, "the adapters differ"
    close = [pytest.approx(values, abs=1e-6) for values in expected]
    assert flat(scores(graph)) == close[0]
    assert flat(scores(graph, "--adapter", second)) == close[1]
    assert flat(scores(graph, "--adapter", graph / "adapters" / "first")) == close[0]
    loaded = zoo_api.load(graph, adapter=[second]).classify(TEXTS)
    assert flat([list(row["scores"].values()) for row in loaded]) == close[1]
    inputs = load_file(second / "adapter.safetensors")
    session = onnxruntime.InferenceSession(graph / "onnx" / "model.onnx")
    free = {value.name: tuple(value.shape) for value in session.get_overridable_initializers()}
    assert free == {name: tensor.shape for name, tensor in inputs.items()}
    assert load_checkpoint(graph / "adapters" / "second").is_adapter


@pytest.mark.long
def test_adapters_that_do_not_fit_are_refused(adapted: Adapted, tmp_path: Path) -> None:
    base, first = adapted("dora", "first")
    others = {
        "rank is 4, not 8": adapted("dora", "narrow", adapter={"rank": 4})[1],
        "alpha is 16.0, not 8.0": adapted("dora", "strong", adapter={"alpha": 16})[1],
        "method is lora, not dora": adapted("lora", "other")[1],
        "it has no": adapted("dora", "wide", adapter={"target_modules": ["key"]})[1],
    }
    graph = tmp_path / "graph"
    zoo("export", base, "--adapter", first, "--adapter-inputs", "-o", graph)
    for reason, adapter in others.items():
        kind, message = error_of(["run", "classify", graph, "--adapter", adapter, "a"])
        assert kind is VerificationError and reason in message
    for arguments in (
        ["adapter", "merge", first, "--base", graph],
        ["export", graph, "--adapter", first],
    ):
        kind, message = error_of([*arguments, "-o", tmp_path / "x"])
        assert kind is UsageError and "whose weights an adapter cannot change" in message
    arguments = ["export", base, "--adapter", first, "--adapter", others["rank is 4, not 8"]]
    kind, message = error_of([*arguments, "--adapter-inputs", "-o", tmp_path / "x"])
    assert kind is UsageError and "one graph does not take both" in message
    kind, message = error_of(["export", base, "--adapter-inputs", "-o", tmp_path / "x"])
    assert kind is UsageError and "needs a model with an adapter" in message
    options = ["--adapter", first, "--adapter-inputs", "-o", tmp_path / "x"]
    for more, reason in {
        ("--dtype", "float16"): "graphs in float32",
        ("--int8",): "quantized copies",
        ("--to", "gguf"): "is not an option of --to gguf",
    }.items():
        kind, message = error_of(["export", base, *options, *more])
        assert kind is UsageError and reason in message
    assert not (tmp_path / "x").exists()
    arguments = ["run", "classify", graph, "--adapter", first, "--adapter", first, "a"]
    kind, message = error_of(arguments)
    assert kind is UsageError and "one adapter at a time" in message


def test_adapters_of_one_name_are_refused(adapted: Adapted, tmp_path: Path) -> None:
    base, first = adapted("lora", "first")
    name = first.parent.name if first.name == "model" else first.name
    shutil.copytree(first, tmp_path / "elsewhere" / name)
    adapters = ["--adapter", first, "--adapter", tmp_path / "elsewhere" / name]
    arguments = ["export", base, *adapters, "--adapter-inputs", "-o", tmp_path / "x"]
    kind, message = error_of(arguments)
    assert kind is UsageError and f"two adapters are called {name}" in message
    assert not (tmp_path / "x").exists()


def generator_with_adapter(hub_checkpoint: Make, tmp_path: Path) -> tuple[Checkpoint, Path]:
    """Return a GPT-2, and the directory of an adapter of it."""
    ids = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 0)
    source = hub_checkpoint("GPT2LMHeadModel", tokenizer=False, **ids)
    base = converted(source, tmp_path / "base")
    write_random_adapter(base, tmp_path / "adapter", method="lora")
    return base, tmp_path / "adapter"


def test_a_graph_that_generates_has_no_adapter_inputs(hub_checkpoint: Make, tmp_path: Path) -> None:
    base, adapter = generator_with_adapter(hub_checkpoint, tmp_path)
    options = ["--adapter", adapter, "--adapter-inputs", "-o", tmp_path / "x"]
    kind, message = error_of(["export", base.path, *options])
    assert kind is UsageError and "a graph that generates has no inputs" in message
    assert "add --no-cache" in message and not (tmp_path / "x").exists()


@pytest.mark.long
def test_a_graph_that_generates_without_a_cache_has_adapter_inputs(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    base, adapter = generator_with_adapter(hub_checkpoint, tmp_path)
    options = ["--adapter", adapter, "--adapter-inputs", "-o", tmp_path / "x"]
    zoo("export", base.path, *options, "--no-cache")
    assert (tmp_path / "x" / "adapters" / "adapter" / "adapter.safetensors").exists()


def adapters_with_tokenizers(trained: Trained, tmp_path: Path) -> Path:
    """Write adapters with different words or none; return their base."""
    trained("BertForSequenceClassification", task_type="SEQ_CLS", spare=5)
    base, theirs = tmp_path / "base", tmp_path / "theirs"
    zoo("convert", theirs, "--base", base, "-o", tmp_path / "words")
    text = (theirs / "tokenizer.json").read_text()
    (theirs / "tokenizer.json").write_text(text.replace('"word"', '"term"'))
    zoo("convert", theirs, "--base", base, "-o", tmp_path / "terms")
    for file in theirs.glob("*token*"):
        file.unlink()
    zoo("convert", theirs, "--base", base, "-o", tmp_path / "plain")
    assert [(tmp_path / name / "tokenizer.json").exists() for name in NAMES] == [True, True, False]
    return base


@pytest.mark.long
def test_adapters_of_one_graph_read_one_tokenizer(trained: Trained, tmp_path: Path) -> None:
    base = adapters_with_tokenizers(trained, tmp_path)
    for first, second in itertools.combinations(NAMES, 2):
        adapters = ["--adapter", tmp_path / first, "--adapter", tmp_path / second]
        options = ["--adapter-inputs", "-o", tmp_path / "graph"]
        kind, message = error_of(["export", base, *adapters, *options])
        assert kind is UsageError and "tokenizer" in message
        assert not (tmp_path / "graph").exists()


# test_a_graph_serves_several_adapters has graphs, and adapters with words are in peft/.
@pytest.mark.long
def test_a_graph_reads_the_tokenizer_of_its_adapter(trained: Trained, tmp_path: Path) -> None:
    """Three adapters have the same tensors, and tokenizers with different words or none."""
    base = adapters_with_tokenizers(trained, tmp_path)
    expected = {
        name: flat(scores(base, "--adapter", tmp_path / name, texts=WORDS)) for name in NAMES
    }
    assert len({tuple(values) for values in expected.values()}) == 3
    for first, second in itertools.product(NAMES, NAMES):
        graph, adapter = tmp_path / f"graph-of-{first}", tmp_path / second
        if not graph.exists():
            zoo("export", base, "--adapter", tmp_path / first, "--adapter-inputs", "-o", graph)
        if second == "plain" and first != second:  # the graph no longer has the base's tokenizer
            kind, message = error_of(["run", "classify", graph, "--adapter", adapter, "a"])
            assert kind is VerificationError and "with its base's tokenizer" in message
            continue
        values = flat(scores(graph, "--adapter", adapter, texts=WORDS))
        assert values == pytest.approx(expected[second], abs=1e-5)


def test_copies_of_adapters_are_complete(pretrained: Pretrained, tmp_path: Path) -> None:
    """With the projection of a model with late interaction."""
    pairs = zip(texts(24), texts(24, seed=1), strict=True)
    table = write_table(tmp_path / "t.tsv", [{"text": a, "pair": b} for a, b in pairs])
    tree = settings(
        pretrained()[0], table, task="late-interaction", adapter={"method": "lora"}, **QUICK
    )
    tree |= {"data": {**tree["data"], "pair": "pair"}, "task_args": {"dimension": 8}}
    adapter = finetune(tmp_path / "run", tree) / "model"
    write_adapters([resolve_checkpoint(str(adapter))], tmp_path)
    copy = tmp_path / "adapters" / "run"
    assert [c.outcome for c in verify(copy)] == ["ok", "ok"]
    found, expected = (zoo_api.load(path).rerank("a b", TEXTS) for path in (copy, adapter))
    assert found == expected
