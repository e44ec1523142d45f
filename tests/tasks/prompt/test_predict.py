"""The task prompt: every score against one computed by hand from transformers' logits."""

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from click.testing import CliRunner

from tests.checkpoints import Make, byte_level_roberta, hub_checkpoint
from tests.inference.conftest import converted
from tests.tasks.causal_lm.making import MakeSource, source
from tests.tasks.prompt.making import Causal, Masked, log_softmax
from tests.tasks.seq2seq.making import hub
from zoo.api import Model
from zoo.checkpoint import Checkpoint, load_checkpoint, load_text_tokenizer
from zoo.cli.inference.run import command
from zoo.errors import UsageError
from zoo.inference import load_session
from zoo.inference.processing.records import TextExample
from zoo.tasks import make_task
from zoo.tasks.prompt.answers import AnswerPattern
from zoo.tasks.prompt.fit import PromptFitter
from zoo.tasks.prompt.generate import AnswerGenerator
from zoo.tasks.prompt.template import PromptTemplate

__all__ = ["hub", "hub_checkpoint", "source"]
Results = list[dict[str, Any]]


def exact(checkpoint: Checkpoint) -> Model:
    return Model(checkpoint, load_session(checkpoint, "cpu", dtype="float64"))


def prompted(model: Model, texts: Any, **options: Any) -> Results:
    return model.prompt(texts, **options)


def assert_choice(
    result: dict[str, Any], expected: dict[str, float], prior: dict[str, float] | None = None
) -> None:
    """Compare a result with the log-probabilities of the labels' words."""
    assert result["log_probs"] == pytest.approx(expected, abs=1e-6)
    weights = {label: math.exp(value) for label, value in expected.items()}
    if prior is not None:
        whole = {name: sum(values.values()) for name, values in (("w", weights), ("p", prior))}
        weights = {n: (w / whole["w"]) / (prior[n] / whole["p"]) for n, w in weights.items()}
    scores = {label: weight / sum(weights.values()) for label, weight in weights.items()}
    best = max(scores, key=scores.__getitem__)
    assert result["scores"] == pytest.approx(scores, abs=1e-6)
    assert (result["label"], result["score"]) == (best, pytest.approx(scores[best], abs=1e-6))


@pytest.fixture
def bert(hub_checkpoint: Make, tmp_path: Path) -> tuple[Model, Masked]:
    folder = hub_checkpoint("BertForMaskedLM")
    return exact(converted(folder, tmp_path / "model")), Masked(folder)


def test_a_masked_model_scores_each_token_of_a_word_given_the_others(
    bert: tuple[Model, Masked],
) -> None:
    model, reference = bert
    words = {"good": "a", "bad": "j", "mixed": "jab"}
    assert len(reference.tokenizer.tokenize("jab")) == 3
    texts = ["c d", "e f g"]
    template = "{text} b {label} c."
    results = prompted(model, texts, template=template, label_words=words)
    for text, result in zip(texts, results, strict=True):
        assert result["text"] == text
        scores = {n: reference.score(f"{text} b ", word, " c.") for n, word in words.items()}
        assert_choice(result, scores)


def test_likelihoods_can_be_divided_by_the_number_of_tokens(bert: tuple[Model, Masked]) -> None:
    model, reference = bert
    options = {"template": "{text} {label}", "label_words": "good=a,mixed=jab"}
    (result,) = prompted(model, ["c"], scoring="normalized", **options)
    expected = {"good": reference.score("c ", "a", ""), "mixed": reference.score("c ", "jab", "")}
    assert_choice(result, {**expected, "mixed": expected["mixed"] / 3})


def test_words_that_the_tokenizer_does_not_know_are_refused(bert: tuple[Model, Masked]) -> None:
    with pytest.raises(UsageError, match="label word 'a ~' has a part that the tokenizer"):
        bert[0].prompt(["a b"], template="{text} c {label}", label_words="x=a ~,y=j")


def test_byte_level_words_have_the_space_before_them(hub_checkpoint: Make, tmp_path: Path) -> None:
    folder = byte_level_roberta(hub_checkpoint, "RobertaForMaskedLM")
    model = exact(converted(folder, tmp_path / "model"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network: Any = transformers.RobertaForMaskedLM.from_pretrained(folder).eval()
    words = {w: tokenizer.encode(f" {w}", add_special_tokens=False) for w in ("a", "Zyx")}
    assert len(words["a"]) == 1 < len(words["Zyx"])
    (result,) = prompted(model, ["we"], template="{text} is {label}.", label_words="a,Zyx")
    expected = {}
    for word, tokens in words.items():
        pieces = tokenizer(f"we is {word}.")["input_ids"]
        start = len(tokenizer("we is")["input_ids"]) - 1
        assert pieces[start : start + len(tokens)] == tokens
        expected[word] = 0.0
        for position in range(start, start + len(tokens)):
            ids = list(pieces)
            ids[position] = tokenizer.mask_token_id
            values = log_softmax(network, input_ids=torch.tensor([ids]))
            expected[word] += float(values[position, pieces[position]])
    assert_choice(result, expected)


@pytest.fixture
def gpt(source: MakeSource) -> tuple[Model, Causal]:
    checkpoint = load_checkpoint(source())
    return exact(checkpoint), Causal(checkpoint.path.parent / "hub")


SHOTS = [("the cat", "cats"), ("a dog", "dogs")]
KINDS = {"cats": "cat", "dogs": "dog"}


def test_a_causal_model_reads_examples_before_the_prompt(gpt: tuple[Model, Causal]) -> None:
    model, reference = gpt
    options = {"template": "{text}: {label}.", "label_words": KINDS, "separator": "\n"}
    (result,) = prompted(model, ["the mat"], examples=SHOTS, **options)
    context = "the cat: cat.\na dog: dog.\nthe mat: "
    assert_choice(result, {n: reference.score(context, word) for n, word in KINDS.items()})


@pytest.mark.parametrize("texts", [(), ("N/A", "the", " ")])
def test_calibration_divides_by_the_probabilities_without_content(
    gpt: tuple[Model, Causal], texts: tuple[str, ...]
) -> None:
    model, reference = gpt
    options = {"template": "{text} is a {label}", "label_words": KINDS}
    (result,) = prompted(model, ["the mat"], calibrate=True, content_free=texts, **options)
    prior = dict.fromkeys(KINDS, 0.0)
    for text in texts or ("N/A",):
        weights = {n: math.exp(reference.score(f"{text} is a ", w)) for n, w in KINDS.items()}
        for name, weight in weights.items():
            prior[name] += weight / sum(weights.values())
    expected = {n: reference.score("the mat is a ", word) for n, word in KINDS.items()}
    assert_choice(result, expected, prior)


@pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
def test_a_long_text_is_cut_and_the_rest_of_the_prompt_is_not(gpt: tuple[Model, Causal]) -> None:
    model, reference = gpt
    text = "the cat sat on the mat. " * 12
    options = {"template": "{text} is a {label}", "label_words": KINDS}
    (result,) = prompted(model, [text], examples=SHOTS, **options)
    ids = reference.tokenizer(text)["input_ids"]
    kept = reference.tokenizer.decode(ids[: len(ids) - result["truncated"]]).rstrip()
    before = "the cat is a cat\n\na dog is a dog\n\n"
    expected = {n: reference.score(f"{before}{kept} is a ", word) for n, word in KINDS.items()}
    assert_choice(result, expected)
    whole = reference.tokenizer(f"{before}{kept} is a cat")["input_ids"]
    assert 60 <= len(whole) <= 64
    with pytest.raises(UsageError, match=r"text 1: the prompt leaves no room for its text: .*64"):
        prompted(model, ["a"], examples=SHOTS * 9, **options)


def test_both_texts_of_a_pair_are_cut(gpt: tuple[Model, Causal]) -> None:
    """Where the prompt does not fit even without the longer one."""
    model, reference = gpt
    checkpoint = model.checkpoint
    template = PromptTemplate.parse("{text} or {text_pair} is {label}")
    words = ["a cat", "a"]
    fitter = PromptFitter(template, "", words, load_text_tokenizer(checkpoint), 24)
    text, pair = "the cat " * 20, "a dog " * 20
    (fitted,) = fitter.fit([TextExample(text, pair, location="here")])
    prompts = [prompt.text for prompt in fitter.prompts(fitted)]
    lengths = [len(reference.tokenizer(prompt)["input_ids"]) for prompt in prompts]
    assert 16 <= max(lengths) <= 24
    assert fitted.pair is not None and len(fitted.text) > 3 < len(fitted.pair)
    assert text.startswith(fitted.text) and pair.startswith(fitted.pair)
    with pytest.raises(UsageError, match="here: the prompt leaves no room for its text"):
        replace(fitter, before="the cat " * 9).fit([TextExample(text, pair, location="here")])


@pytest.mark.by_default("{text} {label} Why")
@pytest.mark.parametrize(
    ("template", "before", "prefix"),
    [
        ("{text} Why? {label}", "{} Why?", ""),
        ("{text} {label} Why", "{} <extra_id_0> Why", "<extra_id_0>"),
    ],
)
def test_an_encoder_decoder_predicts_a_target_or_a_span(
    hub: Path, tmp_path: Path, template: str, before: str, prefix: str
) -> None:
    model = exact(converted(hub, tmp_path / "model"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(hub)
    network: Any = transformers.T5ForConditionalGeneration.from_pretrained(hub).eval()
    words = {"yes": "the house", "no": "to"}
    (result,) = prompted(model, ["The cat sat."], template=template, label_words=words)
    expected = {}
    start = [0, *tokenizer.convert_tokens_to_ids([prefix] if prefix else [])]
    for name, word in words.items():
        tokens = tokenizer(word, add_special_tokens=False)["input_ids"]
        values = log_softmax(
            network,
            input_ids=torch.tensor([tokenizer(before.format("The cat sat."))["input_ids"]]),
            decoder_input_ids=torch.tensor([[*start, *tokens[:-1]]]),
        )
        rows = values[len(start) - 1 :]
        expected[name] = sum(float(rows[k, token]) for k, token in enumerate(tokens))
    assert_choice(result, expected)


def test_generated_text_is_the_references_and_names_a_label(gpt: tuple[Model, Causal]) -> None:
    model, reference = gpt
    options: dict[str, Any] = {"template": "the {text} {label}", "scoring": "generate"}
    (result,) = prompted(model, ["cat"], max_new_tokens=5, **options)
    ids = reference.tokenizer("the cat", return_tensors="pt")["input_ids"]
    new = reference.network.generate(ids, max_new_tokens=5, do_sample=False, pad_token_id=0)[0]
    expected = reference.tokenizer.decode(new)[len("the cat") :]
    assert result["generated"] == expected
    assert result["answer"] == expected.strip().split("\n")[0]
    words = {"right": expected.strip()[:2].upper(), "wrong": "zzz"}
    (result,) = prompted(model, ["cat"], max_new_tokens=5, label_words=words, **options)
    assert result["label"] == "right"


def test_the_most_frequent_answer_of_samples_wins(gpt: tuple[Model, Causal]) -> None:
    model, _ = gpt
    options: dict[str, Any] = {
        "template": "the {text} {label}",
        "scoring": "generate",
        "max_new_tokens": 4,
        "samples": 12,
        "answer": "([a-z])",
        "temperature": 0.5,
        "seed": 3,
    }
    (every,) = prompted(model, ["cat"], **options)
    assert len(every["samples"]) == 12 and len(set(every["samples"])) > 1
    found = [answer for answer in every["samples"] if answer is not None]
    (voted,) = prompted(model, ["cat"], vote=True, **options)
    counts = {answer: found.count(answer) for answer in found}
    assert voted["votes"] == counts
    assert counts[voted["answer"]] == max(counts.values())
    assert voted["answer"] in voted["generated"]


def test_an_answer_is_the_group_of_the_last_match() -> None:
    """A match without the group, such as one of the other alternative, has no answer."""
    task: Any = None
    answers = AnswerGenerator(task, {}, AnswerPattern("is ([0-9]+)|unknown"))
    assert answers.find(["it is 3, or is 4", "unknown", ""]) == ["4", None, None]
    assert AnswerGenerator(task, {}, AnswerPattern("[0-9]+")).find(["3 or 4"]) == ["4"]


@pytest.mark.by_default("options0", "options2", "options4", "options7")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"template": "{text} {label}"}, "there are no words to choose from; give --label-words"),
        ({"template": "It was {label}", "label_words": "a,b"}, r"has no slot \{text\}"),
        ({"template": "{text} it", "label_words": "a,b"}, r"has no slot \{label\}"),
        ({"template": "{text} {text} {label}"}, r"the slot \{text\} twice"),
        ({"template": "{txt} {label}"}, r"slot \{txt\}, which is unknown; did you mean text"),
        ({"template": "{text} {label", "label_words": "a,b"}, "cannot be read"),
        ({"template": "{label} {text}", "label_words": "a,b"}, "reads from left to right"),
        ({"template": "{text} {label}", "label_words": "a"}, "'a' is the only label with a word"),
        ({"template": "{text} {label}", "label_words": "x=a,y=a"}, "have the same word 'a'"),
        ({"template": "{text} {label}", "label_words": "x=a,x=b"}, "the label 'x' has two words"),
        (
            {"template": "{text} {label}", "label_words": "a,b", "samples": 2},
            "--samples is for --sc",
        ),
        ({"template": "{text}", "scoring": "generate", "vote": True}, "--vote needs --samples N"),
        ({"template": "{text}", "scoring": "generate", "calibrate": True}, "--calibrate is for"),
        ({"template": "{text}", "scoring": "generate", "answer": "("}, "not a regular expression"),
        (
            {"template": "{text} {label}", "label_words": "a,b", "content_free": ["a"]},
            "is for --cal",
        ),
        (
            {"template": "{text} {label}", "label_words": "a,b", "examples": [("x", "c")]},
            "example 1 has the label 'c', which has no word",
        ),
        (
            {"template": "{text} {text_pair} {label}", "label_words": "a,b"},
            "text 1 has no second text",
        ),
    ],
)
def test_wrong_prompts_are_refused(
    gpt: tuple[Model, Causal], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        prompted(gpt[0], ["a"], **options)


def test_the_command_reads_template_and_examples_from_files(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    folder = hub_checkpoint("BertForMaskedLM")
    reference = Masked(folder)
    template, shots = tmp_path / "pattern.txt", tmp_path / "train.csv"
    template.write_text("{text} b {label}\n")
    rows = [["text", "label"], ["a b", "x"], ["c d", "y"], ["e", "x"]]
    with shots.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    options = ["--template", str(template), "--label-words", "x=a,y=j", "--separator", " . "]
    options += ["--backend", "cpu", "--dtype", "float64", "--shots-from", str(shots)]
    run = CliRunner()
    done = run.invoke(command, ["prompt", str(folder), "f g", *options, "--shots", "2"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    words = {"x": "a", "y": "j"}
    filled = [f"{text} b {words[label]} . " for text, label in rows[1:]]
    found = [
        (first, second)
        for first in filled
        for second in filled
        if first != second
        and reference.score(f"{first}{second}f g b ", "a", "")
        == pytest.approx(result["log_probs"]["x"], abs=1e-6)
    ]
    assert len(found) == 1, "the examples are two different rows"
    done = run.invoke(command, ["prompt", str(folder), "f g", *options, "--shots", "4"])
    assert "4 examples are more than the 3 rows" in str(done.exception)
    done = run.invoke(command, ["prompt", str(folder), "f g", *options])
    assert "--shots-from needs --shots N" in str(done.exception)
    named = ["--template", "nothing.txt", "--label-words", "a,b"]
    done = run.invoke(command, ["prompt", str(folder), "f g", *named])
    assert "nothing.txt is neither a file nor a template" in str(done.exception)
    done = run.invoke(command, ["prompt", str(folder), "f g"])
    assert "there is no template" in str(done.exception)


def test_a_head_that_predicts_no_tokens_is_refused(hub_checkpoint: Make, tmp_path: Path) -> None:
    model = exact(converted(hub_checkpoint("BertForTokenClassification"), tmp_path / "model"))
    with pytest.raises(UsageError, match="and not prompt; convert the source with --head masked"):
        prompted(model, ["a"], template="{text} {label}", label_words="a,b")


def reported(task: Any, texts: list[str]) -> list[int]:
    """Return what a task reports until its first result is there, of texts in one chunk."""
    counts: list[int] = []
    task.on_progress = counts.append
    results = task.run(TextExample(text, location=str(row)) for row, text in enumerate(texts, 1))
    next(results)
    before_results = list(counts)
    assert len(list(results)) == len(texts) - 1
    assert sum(counts) == len(texts)
    return before_results


def test_progress_is_reported_for_each_batch_of_words(bert: tuple[Model, Masked]) -> None:
    model, _ = bert
    options: Any = {"template": "{text} b {label}", "label_words": "good=a,bad=j"}
    task = make_task("prompt", model.checkpoint, model.session, batch_size=4, **options)
    texts = [f"c d {first} {second}" for first in "abcdefgh" for second in "abcde"]
    # Words of one token share a row: 40 texts are 40 rows, in 10 batches.
    assert reported(task, texts) == [4] * 10


def test_progress_is_reported_for_each_batch_of_answers(source: MakeSource, tmp_path: Path) -> None:
    folder = source("GPT2LMHeadModel")
    model = exact(converted(folder, tmp_path / "model"))
    options: Any = {"template": "{text} ", "scoring": "generate", "max_new_tokens": 2}
    task: Any = make_task("prompt", model.checkpoint, model.session, **options)
    task.generator.task.batch_size = 4
    assert len(reported(task, ["a b"] * 20)) == 5
