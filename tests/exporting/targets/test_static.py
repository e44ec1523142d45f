"""Static embeddings that are distilled from an encoder, against model2vec."""

from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner
from safetensors.numpy import load_file, save_file

from tests.checkpoints import Make
from tests.exporting.targets.making import teacher
from tests.inference.conftest import converted
from zoo.api import load
from zoo.checkpoint import load_checkpoint
from zoo.cli import cli
from zoo.exporting.targets.static.vectors import frequency_weights, principal_components

TEXTS = ["a b c", "h g", "d e f g h a b", "cab j", "i j", "a z b"]


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(cli, [*map(str, arguments)], catch_exceptions=False)


def failure(*arguments: Any) -> tuple[int, str]:
    done = CliRunner().invoke(cli, [*map(str, arguments)])
    return getattr(done.exception, "exit_code", 1), str(done.exception)


def test_vectors_are_those_of_model2vec(hub_checkpoint: Make, tmp_path: Path) -> None:
    from model2vec import StaticModel
    from model2vec.distill import distill
    from sentence_transformers import SentenceTransformer

    source, out = teacher(hub_checkpoint), tmp_path / "static"
    done = run("export", source, "--to", "static", "--dim", 8, "--max-drop", 1, "-o", out)
    assert done.exit_code == 0, done.output
    assert "approximation" in done.output and "rank correlation" in done.output
    theirs = distill(str(source), pca_dims=8, quantize_to="float32", device="cpu")
    ours = load(str(out))
    assert (ours.session.backend, ours.checkpoint.family.name) == ("static", "model2vec")
    expected, found = theirs.encode(TEXTS), ours.embed(TEXTS)
    assert found.shape == (6, 8)
    # the axes of principal components have no sign, and cosines do not depend on it
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=2e-5)
    opened: list[Any] = [
        StaticModel.from_pretrained(out),
        SentenceTransformer(str(out), device="cpu"),
    ]
    for model in opened:
        np.testing.assert_allclose(model.encode(TEXTS), found, rtol=1e-5, atol=1e-6)
    assert run("convert", out, "-o", tmp_path / "back").exit_code == 0
    again = load(str(tmp_path / "back"), backend="cpu")
    np.testing.assert_allclose(again.embed(TEXTS), found, rtol=1e-5, atol=1e-6)
    record = load_checkpoint(out).manifest.export
    assert record is not None and record["agreement"]["measure"] == "ranking"
    assert "approximation" in (out / "README.md").read_text()
    (out / "model.safetensors").write_bytes(bytes(100))
    code, message = failure("run", "embed", out, "a")
    assert code == 3 and "model.safetensors is not the file" in message


def test_a_token_whose_vector_is_not_finite_is_counted(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    source = teacher(hub_checkpoint)
    tensors = load_file(source / "model.safetensors")
    (name,) = (name for name in tensors if name.endswith("word_embeddings.weight"))
    tensors[name][-1] = 3e38  # their sum overflows; no compared text has this word
    save_file(tensors, source / "model.safetensors", {"format": "pt"})
    code, message = failure("export", source, "--to", "static", "-o", tmp_path / "out")
    assert code == 3 and "not finite" in message
    assert not (tmp_path / "out").exists()


def test_vectors_that_do_not_fit_into_float16(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = teacher(hub_checkpoint)
    tensors = load_file(source / "model.safetensors")
    for name in tensors:
        if "output.LayerNorm" in name:
            tensors[name] *= 1e9
    save_file(tensors, source / "model.safetensors", {"format": "pt"})
    half = ("--to", "static", "--dtype", "float16", "-o", tmp_path / "out")
    code, message = failure("export", source, *half)
    assert code == 3 and "--dtype float16: a vector holds NaN or infinity" in message
    assert not (tmp_path / "out").exists()


def test_what_ranks_otherwise_or_has_no_tokens_is_not_written(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    source, out = converted(teacher(hub_checkpoint), tmp_path / "model").path, tmp_path / "static"

    to = ("--to", "static", "-o", out)
    code, message = failure("export", source, "--max-drop", 0, *to)
    assert code == 3 and "distillation changes the ranking by" in message
    assert failure("export", source, "--int8", *to)[1].startswith(
        "--int8 is not an option of --to static"
    )
    plain = hub_checkpoint("BertModel", "plain", tokenizer=False)
    code, message = failure("export", plain, *to)
    assert code == 2 and "has no tokenizer whose tokens could have vectors" in message
    words = hub_checkpoint("BertForSequenceClassification", "classifier")
    code, message = failure("export", words, *to)
    assert code == 2 and "does not return hidden states of tokens" in message
    code, message = failure("run", "embed", source, "a", "--backend", "static")
    assert code == 2 and "makes another model, and is not a backend" in message
    assert not out.exists()


def test_principal_components_and_weights() -> None:
    """Against scikit-learn, and the formula of SIF by hand."""
    from sklearn.decomposition import PCA

    vectors = np.random.default_rng(0).standard_normal((20, 6)) * np.arange(1, 7)
    expected = PCA(3).fit_transform(vectors)
    expected *= np.sign(expected[np.abs(expected).argmax(0), np.arange(3)])
    np.testing.assert_allclose(principal_components(vectors, 3), expected, atol=1e-10)
    np.testing.assert_array_equal(principal_components(vectors[:3], 6), vectors[:3])
    # probabilities 1/2, 1/3, 1/4 over their sum 13/12: 6/13, 4/13, 3/13
    weights = frequency_weights(3, 0.1)
    np.testing.assert_allclose(weights, [0.1 / (0.1 + p / 13) for p in (6, 4, 3)])
    assert frequency_weights(3, None).tolist() == [1, 1, 1]


def test_a_head_without_vectors_of_tokens_says_how_to_leave_it_out(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    code, line = failure("export", hub_checkpoint(), "--to", "static", "-o", tmp_path / "static")
    assert code == 2 and not (tmp_path / "static").exists()
    assert "hidden states of tokens; `zoo convert" in line and "--head none -o" in line
