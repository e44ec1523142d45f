import random
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.inference.conftest import Small
from tests.tasks.causal_lm.making import MakeSource, source
from tests.tasks.sentence_embedding.making import pooled
from zoo.api import Model, load
from zoo.errors import UsageError
from zoo.inference.embed import Embed
from zoo.inference.processing.records import as_records
from zoo.inference.task import TaskWarning
from zoo.sentence_models.pooling import Pooling

__all__ = ["source"]
SENTENCES = [
    "A cat sits on the mat.",
    "",
    "Na\u00efve caf\u00e9 \u4e2d\u6587 \U0001f600!",
    "word " * 400,
    "It was the best of times, it was the worst of times, it was the age of wisdom.",
    "Hm",
]


def reference(source: Path, texts: list[str], max_tokens: int) -> "NDArray[np.float32]":
    """Embed by the code of the model card, one text at a time, so that nothing is padded."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, network = AutoTokenizer.from_pretrained(source), AutoModel.from_pretrained(source)
    rows = []
    for text in texts:
        inputs = tokenizer(text, truncation=True, max_length=max_tokens, return_tensors="pt")
        with torch.inference_mode():
            hidden = network.eval()(**inputs).last_hidden_state[0]
        rows.append(torch.nn.functional.normalize(hidden.mean(dim=0), dim=0).numpy())
    return np.stack(rows)


@pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
def test_a_real_encoder_gives_the_reference_embeddings(encoder: Model, packaged: Path) -> None:
    vectors = encoder.embed(SENTENCES)
    assert vectors.shape == (len(SENTENCES), 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, reference(packaged, SENTENCES, 256), atol=1e-5)


def test_truncation_is_reported_in_the_record_and_summed_up(encoder: Model) -> None:
    task = Embed(encoder.checkpoint, encoder.session)
    with pytest.warns(TaskWarning, match=r"was longer than 256 tokens and was cut"):
        results = list(task.run(as_records(SENTENCES)))
    assert [result.get("truncated") for result in results] == [None, None, None, 146, None, None]
    with pytest.warns(TaskWarning, match=r"2 of \d texts were longer than 4 tokens"):
        cut = Embed(encoder.checkpoint, encoder.session, max_tokens=4)
        assert [r.get("truncated") for r in cut.run(as_records(SENTENCES[::4]))] == [5, 19]


def test_no_warning_without_truncation(encoder: Model) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        encoder.embed(SENTENCES[:3])
    assert [str(warning.message) for warning in caught] == []


@pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
def test_results_come_in_input_order_whatever_their_length(small: Small) -> None:
    model, _ = small("BertModel")
    texts = [" ".join(["a", "b"] * n) for n in range(15)]
    random.Random(0).shuffle(texts)
    task = Embed(model.checkpoint, model.session, max_batch_tokens=64)
    results = list(task.run(as_records(texts)))
    assert [result["text"] for result in results] == texts
    alone = np.stack([model.embed([text])[0] for text in texts])
    np.testing.assert_allclose([r["embedding"] for r in results], alone, atol=1e-6)


@pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
def test_embeddings_do_not_depend_on_the_token_budget(small: Small) -> None:
    model, _ = small("BertModel")
    texts = [" ".join(["a b c d e"] * n) for n in range(8)]
    few, many = (
        Embed(model.checkpoint, model.session, max_batch_tokens=budget).vectors(as_records(texts))
        for budget in (48, 4096)
    )
    np.testing.assert_allclose(few, many, atol=1e-6)


@pytest.mark.by_default("3")
@pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
@pytest.mark.parametrize("size", [1, 3])
def test_a_batch_has_at_most_so_many_texts(
    small: Small, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = small("BertModel")
    texts = [" ".join(["a", "b"] * n) for n in range(1, 12)]
    shapes, run = [], model.session.run

    def watched(inputs: dict[str, NDArray[Any]], *arguments: Any) -> Any:
        shapes.append(len(inputs["input_ids"]))
        return run(inputs, *arguments)

    expected = model.embed(texts)
    monkeypatch.setattr(model.session, "run", watched)
    results = model.run("embed", texts, batch_size=size)
    assert max(shapes) == size and sum(shapes) == len(texts)
    np.testing.assert_allclose([r["embedding"] for r in results], expected, atol=1e-6)


MODES = ["mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]


def test_a_default_prompt_that_is_not_there_is_empty(small: Small) -> None:
    """sentence-transformers gives every model the names query and document."""
    model, _ = small("BertModel")
    default = pooled(model, Pooling(default_prompt_name="query"))
    texts = ["d e", "f"]
    np.testing.assert_array_equal(default.embed(texts), pooled(model, Pooling()).embed(texts))


@pytest.mark.parametrize("mode", MODES)
def test_every_pooling_mode_pools_the_tokens_of_the_text_alone(small: Small, mode: Any) -> None:
    model, _ = small("BertModel")
    texts = ["a b c d e", "f", ""]
    vectors = pooled(model, Pooling(mode=mode)).embed(texts)
    for text, vector in zip(texts, vectors, strict=True):
        hidden = model.features([text])[0]["layers"]["2"].astype(np.float64)
        positions = np.arange(1, len(hidden) + 1)[:, None]
        expected = {
            "mean": hidden.mean(axis=0),
            "cls": hidden[0],
            "max": hidden.max(axis=0),
            "mean_sqrt_len_tokens": hidden.sum(axis=0) / len(hidden) ** 0.5,
            "weightedmean": (hidden * positions).sum(axis=0) / positions.sum(),
            "lasttoken": hidden[-1],
        }
        np.testing.assert_allclose(vector, expected[mode], atol=1e-5)


def test_a_checkpoint_that_does_not_say_how_it_pools_is_pooled_by_the_mean(small: Small) -> None:
    model, _ = small("BertModel")
    with pytest.warns(TaskWarning, match="does not say how it pools"):
        vectors = model.embed(["a b", "c"])
    np.testing.assert_allclose(vectors, pooled(model, Pooling()).embed(["a b", "c"]), atol=1e-6)
    assert not np.allclose(np.linalg.norm(vectors, axis=1), 1)


def test_the_encoder_may_ask_for_lower_case(small: Small) -> None:
    model, _ = small("BertModel")
    tokenizer = model.checkpoint.path / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace('"lowercase": true', '"lowercase": false'))
    assert model.features(["A"])[0]["tokens"] == ["[CLS]", "[UNK]", "[SEP]"]
    lower = pooled(model, Pooling(lowercase=True))
    np.testing.assert_array_equal(lower.embed(["A B"]), lower.embed(["a b"]))
    exact = pooled(model, Pooling())
    assert not np.allclose(exact.embed(["A B"]), exact.embed(["a b"]))


def test_the_shortest_of_all_limits_counts(small: Small) -> None:
    model, _ = small("BertModel", max_position_embeddings=12)
    limits = [
        Embed(pooled(model, Pooling(max_tokens=limit)).checkpoint, model.session).max_tokens
        for limit in (None, 5, 50)
    ]
    assert limits == [12, 5, 12]


@pytest.mark.long
def test_what_was_cut_is_said_every_time(encoder: Model) -> None:
    program = (
        "import sys, zoo\n"
        "model = zoo.load(sys.argv[1], backend='cpu')\n"
        "for _ in range(2): model.embed(['word ' * 300])"
    )
    command = [sys.executable, "-c", program, str(encoder.checkpoint.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.count("was longer than 256 tokens and was cut") == 2


def test_a_text_without_tokens_is_refused(source: MakeSource) -> None:
    model = load(source("GPT2Model"), backend="cpu")
    with pytest.warns(TaskWarning), pytest.raises(UsageError, match="text 2 has no tokens"):
        model.embed(["the cat", ""])
    with pytest.warns(TaskWarning), pytest.raises(UsageError, match="has no tokens"):
        model.similarity([("the cat", "")])


def test_no_texts_give_no_vectors(encoder: Model) -> None:
    assert encoder.embed([]).shape == (0, 384)


PROMPTS = {"query": "a b ", "passage": "c "}


def test_a_prompt_precedes_each_text(small: Small) -> None:
    model, _ = small("BertModel")
    texts = ["d e", "", "F"]
    plain = pooled(model, Pooling())
    named = pooled(model, Pooling(prompts=PROMPTS, lowercase=True))
    options: dict[str, dict[str, Any]] = {
        "": {},
        "a b ": {"prompt_name": "query"},
        "c ": {"prompt_name": "passage"},
        "j ": {"prompt": "J "},
    }
    for prompt, arguments in options.items():
        expected = plain.embed([prompt + text.lower() for text in texts])
        np.testing.assert_allclose(named.embed(texts, **arguments), expected, atol=1e-6)
        np.testing.assert_allclose(named.encode(texts, **arguments), expected, atol=1e-6)
    default = pooled(model, Pooling(prompts=PROMPTS, default_prompt_name="query"))
    np.testing.assert_array_equal(default.embed(texts), default.embed(texts, prompt_name="query"))
    np.testing.assert_allclose(default.embed(texts, prompt=""), plain.embed(texts), atol=1e-6)
    pair = default.similarity([("d", "e")], prompt_name="passage")
    np.testing.assert_allclose(pair, plain.similarity([("c d", "c e")]), atol=1e-6)


@pytest.mark.by_default("mean")
@pytest.mark.parametrize("mode", MODES)
def test_a_prompt_may_be_left_out_of_pooling(small: Small, mode: Any) -> None:
    """As in sentence-transformers: with [CLS], which precedes it, but without [SEP]."""
    model, _ = small("BertModel")
    encoder = pooled(model, Pooling(mode=mode, include_prompt=False, prompts=PROMPTS))
    vectors = encoder.embed(["d e", "f"], prompt_name="query")
    for text, vector in zip(["d e", "f"], vectors, strict=True):
        (states,) = model.features([f"a b {text}"])
        assert states["tokens"][:3] == ["[CLS]", "a", "b"]
        hidden = states["layers"]["2"].astype(np.float64)[3:]
        positions = np.arange(4, 4 + len(hidden))[:, None]
        expected = {
            "mean": hidden.mean(axis=0),
            "cls": hidden[0],
            "max": hidden.max(axis=0),
            "mean_sqrt_len_tokens": hidden.sum(axis=0) / len(hidden) ** 0.5,
            "weightedmean": (hidden * positions).sum(axis=0) / positions.sum(),
            "lasttoken": hidden[-1],
        }
        np.testing.assert_allclose(vector, expected[mode], atol=1e-5)
    np.testing.assert_allclose(  # without a prompt, all tokens count
        encoder.embed(["d"]), pooled(model, Pooling(mode=mode)).embed(["d"]), atol=1e-6
    )


def test_leading_dimensions(small: Small) -> None:
    model, _ = small("BertModel")
    short = pooled(model, Pooling(truncate_dim=5, normalize=True))
    whole = pooled(model, Pooling(normalize=True)).embed(["a b"])
    np.testing.assert_array_equal(short.embed(["a b"]), whole[:, :5])
    assert short.embed([]).shape == (0, 5)


def test_options_of_a_call_do_not_last(small: Small) -> None:
    model, _ = small("BertModel")
    encoder = pooled(model, Pooling(normalize=True))
    whole = encoder.embed(["a b"])
    for _ in range(2):
        short = encoder.embed(["a b"], dim=5, output_dtype="float16")
        assert short.shape == (1, 5) and short.dtype == np.float16
        np.testing.assert_array_equal(encoder.embed(["a b"]), whole)
        np.testing.assert_array_equal(encoder.encode(["a b"], batch_size=1), whole)
        with pytest.raises(UsageError, match="cannot be cut at 0 numbers"):
            encoder.embed(["a b"], dim=0)


def test_prompts_that_are_refused(small: Small) -> None:
    model, _ = small("BertModel")
    encoder = pooled(model, Pooling(prompts=PROMPTS))
    with pytest.raises(UsageError, match=r"no prompt 'qury': .* query, passage; .*mean query\?"):
        encoder.embed(["a"], prompt_name="qury")
    with pytest.raises(UsageError, match="a name or a text, and not both"):
        encoder.embed(["a"], prompt_name="query", prompt="a")
    with pytest.raises(UsageError, match="the prompt is of type int, not a string"):
        encoder.embed(["a"], prompt=7)  # type: ignore[arg-type]


def test_a_text_of_a_prompt_only_is_refused(source: MakeSource) -> None:
    model = load(source("GPT2Model"), backend="cpu")
    encoder = pooled(model, Pooling(include_prompt=False))
    with pytest.raises(UsageError, match="text 2 has no tokens after the prompt"):
        encoder.embed(["the cat", ""], prompt="the")
