import inspect
import subprocess
import sys

import numpy as np
import pytest

import zoo
from tests.inference import conftest
from tests.inference.conftest import Small
from zoo.errors import UsageError

small, hub_checkpoint = conftest.small, conftest.hub_checkpoint


@pytest.mark.parametrize("backend", ["auto", "cpu", "onnx"])
def test_a_directory_is_loaded_on_any_backend(small: Small, backend: zoo.api.Backend) -> None:
    made, source = small("BertModel")
    expected = made.features(["a b", "c"])
    for path in (made.checkpoint.path, str(source)):
        model = zoo.load(path, backend=backend, threads=1, offline=True)
        assert model.session.backend == ("cpu" if backend == "auto" else backend)
        for ours, theirs in zip(model.features(["a b", "c"]), expected, strict=True):
            assert ours["tokens"] == theirs["tokens"]
            np.testing.assert_allclose(ours["layers"]["2"], theirs["layers"]["2"], atol=1e-5)
    assert repr(model) == (
        f"<zoo model {model.checkpoint.path.name}: none, {model.session.backend} on cpu, float32>"
    )
    if backend == "onnx":
        with pytest.raises(UsageError, match=r"does not expose single layers.*--backend cpu"):
            model.features(["a"], layers=[0])


@pytest.mark.filterwarnings("ignore::zoo.inference.tasks.base.TaskWarning")
def test_a_single_string_is_not_taken_for_a_list_of_letters(small: Small) -> None:
    model, _ = small("BertModel")
    with pytest.raises(UsageError, match="a single string was given for texts; put it into a list"):
        model.embed("a b")


@pytest.mark.filterwarnings("ignore::zoo.inference.tasks.base.TaskWarning")
def test_any_iterable_will_do(small: Small) -> None:
    model, _ = small("BertModel")
    assert model.embed(text for text in ("a", "b", "c")).shape == (3, 32)


def test_a_name_that_nothing_has_is_refused() -> None:
    with pytest.raises(UsageError, match="no model is called 'all-minilm-l6-v3'; did you mean"):
        zoo.load("all-minilm-l6-v3")


def test_distilling_is_a_function_before_and_after_its_modules_are_imported() -> None:
    code = "import zoo; first = zoo.distill; import zoo.distillation.losses.terms; " + (
        "print(callable(first), zoo.distill is first)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


def test_importing_zoo_and_its_tasks_is_cheap() -> None:
    code = (
        "import sys, zoo, zoo.api, zoo.inference.tasks; zoo.distill;"
        "import zoo.inference.processing.inputs, zoo.inference.tasks.embed;"
        "print(sorted({'torch', 'numpy', 'tokenizers', 'onnxruntime'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# The signatures in docs/api.md. A change here needs a line in the changelog.
LOAD = (
    "(ref: str | os.PathLike[str], *, backend: Literal['auto', 'cpu', 'cuda', 'onnx'] = 'auto', "
    "device: str | None = None, dtype: str | None = None, threads: int | None = None, "
    "revision: str | None = None, offline: bool = False) -> 'Model'"
)
DISTILL = (
    "(teacher: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], "
    "student: str | os.PathLike[str], *, recipe: str | os.PathLike[str] | None = None, "
    "data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (), "
    "settings: Mapping[str, Any] | None = None, output: str | os.PathLike[str] | None = None, "
    "device: str | None = None, score: bool = True, offline: bool = False) -> "
    "zoo.distillation.function.Distilled"
)
METHODS = {
    "embed": "(self, texts: Iterable[str]) -> 'NDArray[np.floating[Any]]'",
    "fill_mask": "(self, texts: Iterable[str], *, top_k: int = 5) -> list[dict[str, Any]]",
    "features": "(self, texts: Iterable[str | tuple[str, str]], *, "
    "layers: Sequence[int] = (-1,)) -> list[dict[str, Any]]",
    "classify": "(self, texts: Iterable[str | tuple[str, str]], *, "
    "aggregate: 'Aggregate' = 'none') -> list[dict[str, Any]]",
    "answer": "(self, texts: Iterable[tuple[str, str]], *, top_k: int = 1, "
    "doc_stride: int | None = None, max_answer_len: int = 15, "
    "handle_impossible_answer: bool = False, null_threshold: float = 0.0) -> list[dict[str, Any]]",
    "choose": "(self, questions: Iterable[tuple[str, str, Sequence[str]]]) -> list[dict[str, Any]]",
    "score": "(self, texts: Iterable[str | tuple[str, str]]) -> list[dict[str, Any]]",
    "similarity": "(self, texts: Iterable[tuple[str, str]]) -> 'NDArray[np.float64]'",
    "encode": "(self, sentences: Iterable[str], *, batch_size: int | None = None, **_: Any) "
    "-> 'NDArray[np.floating[Any]]'",
    "generate": "(self, texts: Iterable[str], **settings: Any) -> list[dict[str, Any]]",
    "seq2seq": "(self, texts: Iterable[str], **settings: Any) -> list[dict[str, Any]]",
    "stream": "(self, text: str, **settings: Any) -> Iterator[str]",
}
ERRORS = {
    "ZooError": 1,
    "UsageError": 2,
    "VerificationError": 3,
    "NonFiniteError": 3,
    "SourceError": 4,
    "PluginError": 5,
    "Interrupted": 130,
}
CAPTURE = ["model", "hidden", "attention", "attention_scores", "cross_attention"]


def signature(function: object) -> str:
    """Return a signature without module names."""
    text = str(inspect.signature(function))  # type: ignore[arg-type]
    for module in ("typing.", "collections.abc."):
        text = text.replace(module, "")
    return text


def test_the_public_names_are_those_of_the_documentation() -> None:
    from zoo import errors
    from zoo.distillation.function import distill
    from zoo.nn.capture import capture

    assert zoo.__all__ == ["Model", "__version__", "distill", "load"]
    assert signature(zoo.load) == LOAD
    assert signature(distill) == DISTILL
    methods = {n: signature(getattr(zoo.Model, n)) for n in dir(zoo.Model) if n in METHODS}
    assert methods == METHODS
    public = {name for name in dir(zoo.Model) if not name.startswith("_")}
    assert public == {*METHODS, "tokenizer"}
    classes = {n: c for n, c in vars(errors).items() if isinstance(c, type)}
    codes = {n: c.exit_code for n, c in classes.items() if issubclass(c, errors.ZooError)}
    assert codes == ERRORS
    assert list(inspect.signature(capture).parameters) == [*CAPTURE, "queries_keys_values"]
