"""Chains of thought: prompts that are written by hand, and texts that transformers generates."""

import json
import string
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from tests.tasks.causal_lm.making import MakeSource, source
from tests.tasks.prompt.making import Causal
from zoo.api import Model
from zoo.checkpoint import load_checkpoint
from zoo.cli.inference.eval import command as eval_command
from zoo.cli.inference.run import command as run_command
from zoo.errors import UsageError
from zoo.inference import load_session
from zoo.inference.processing.records import TextExample
from zoo.tasks.prompt.answers import answer_key
from zoo.tasks.prompt.evaluate import PromptEvaluation
from zoo.tasks.prompt.predict import Prompting

__all__ = ["source"]
TEMPLATE = "{text}? {rationale} So {label}."
EXAMPLES = [
    {"text": "the cat", "rationale": "cat sat", "label": "sat"},
    {"text": "a dog", "rationale": "dog ran", "label": "ran"},
]
LETTERS_AND_DIGITS = string.ascii_lowercase + string.digits
QUESTIONS = ["the mat", "a cat", "dog", "sat on", "ran to"]


@pytest.fixture
def folder(source: MakeSource, tmp_path: Path) -> Path:
    lines = [json.dumps(example) for example in EXAMPLES]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    source()
    return tmp_path


def model_path(folder: Path) -> Path:
    return next(folder.glob("*/zoo.json")).parent


def evaluation(folder: Path, **options: Any) -> PromptEvaluation:
    checkpoint = load_checkpoint(model_path(folder))
    session = load_session(checkpoint, "cpu", dtype="float64")
    return PromptEvaluation(checkpoint, session, scoring="generate", **options)


def generated(folder: Path, prompt: str, count: int) -> str:
    """Return the text that transformers generates greedily."""
    reference = Causal(folder / "hub")
    ids = reference.tokenizer(prompt, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        tokens = reference.network.double().generate(
            ids, max_new_tokens=count, do_sample=False, pad_token_id=0
        )
    text: str = reference.tokenizer.decode(tokens[0], skip_special_tokens=True)
    return text[len(prompt) :]


def write_answers(folder: Path, answers: list[Any]) -> Path:
    file = folder / "test.jsonl"
    rows = zip(QUESTIONS, answers, strict=True)
    file.write_text("\n".join(json.dumps({"text": t, "label": a}) for t, a in rows))
    return file


def test_the_model_goes_on_after_the_question_of_a_prompt_by_hand(folder: Path) -> None:
    shots = {"shots": 2, "shots_from": str(folder / "train.jsonl"), "separator": "\n"}
    options: dict[str, Any] = {"template": TEMPLATE, "answer": "([a-z0-9])", "max_new_tokens": 12}
    prompts = evaluation(folder, **shots, **options)
    before = ""
    for shot in prompts.demonstrations.selections[0]:
        before += f"{shot.text}? {shot.rationale} So {shot.label}.\n"
    assert sorted(before.split("\n")) == [
        "",
        "a dog? dog ran So ran.",
        "the cat? cat sat So sat.",
    ]
    expected = []
    for question in QUESTIONS:
        text = generated(folder, f"{before}{question}?", 12).partition("\n")[0]
        characters = [character for character in text if character in LETTERS_AND_DIGITS]
        expected.append(characters[-1] if characters else None)
    assert len({*expected}) > 2 and expected[0] and expected[1], "answers differ"
    # The first is right, the second is one of two answers, and the others are wrong.
    answers: list[Any] = [expected[0], ["?!x", expected[1]], "not this", "nor", "this"]
    rows: list[Any] = []
    result = prompts.evaluate([write_answers(folder, answers)], on_prediction=rows.append)
    assert [row["prediction"] for row in rows] == expected
    assert [row["correct"] for row in rows] == [True, True, False, False, False]
    assert result.metrics["accuracy"] == pytest.approx(2 / 5)
    assert result.metrics.get("unanswered", 0) == pytest.approx(expected.count(None) / 5)


def test_a_step_by_step_prompt_needs_no_examples(folder: Path) -> None:
    (result,) = Model(load_checkpoint(model_path(folder)), evaluation_session(folder)).prompt(
        ["the mat"],
        template="{text}? step by step. {rationale}",
        scoring="generate",
        max_new_tokens=6,
    )
    assert result["generated"] == generated(folder, "the mat? step by step.", 6)


def test_the_answer_is_generated_by_a_second_prompt(folder: Path) -> None:
    template = "{text}? step by step. {rationale}"
    for text, joint in (("so it is", " "), ("\nso it is", "")):
        model = Model(load_checkpoint(model_path(folder)), evaluation_session(folder))
        results = model.prompt(
            QUESTIONS,
            template=template,
            scoring="generate",
            answer_prompt=text,
            answer="([a-z0-9])",
            max_new_tokens=5,
        )
        for question, result in zip(QUESTIONS, results, strict=True):
            prompt = f"{question}? step by step."
            rationale = generated(folder, prompt, 5)
            conclusion = generated(folder, f"{prompt}{rationale}{joint}{text}", 5)
            characters = [letter for letter in conclusion if letter in LETTERS_AND_DIGITS]
            assert (result["generated"], result["conclusion"]) == (rationale, conclusion)
            assert result["answer"] == (characters[-1] if characters else None)


def test_each_sample_has_a_second_prompt_whose_answer_is_greedy(folder: Path) -> None:
    options: dict[str, Any] = {
        "template": "{text}? step by step. {rationale}",
        "scoring": "generate",
        "answer": r"(\S)",
        "max_new_tokens": 4,
        "samples": 5,
        "seed": 3,
    }
    model = Model(load_checkpoint(model_path(folder)), evaluation_session(folder))
    (by_two,) = model.prompt(["the mat"], answer_prompt="so", **options)
    task = Prompting(model.checkpoint, model.session, **options)
    assert task.generator is not None
    prompt = "the mat? step by step."
    ((_, sampled),) = task.generator.task.stream([TextExample(prompt, location="here")])
    expected = []
    for sequence in sampled["sequences"]:
        text = generated(folder, f"{prompt}{sequence['generated']} so", 4)
        characters = "".join(text.split())
        expected.append(characters[-1] if characters else None)
    assert by_two["samples"] == expected
    rows: list[Any] = []
    file = folder / "one.jsonl"
    file.write_text(json.dumps({"text": "the mat", "label": "x"}))
    evaluation_options = {key: value for key, value in options.items() if key != "scoring"}
    evaluation(folder, answer_prompt="so", **evaluation_options).evaluate(
        [file], on_prediction=rows.append
    )
    answers = [answer for answer in expected if answer is not None]
    keys = [answer_key(answer) for answer in answers]
    assert rows[0]["prediction"] == answers[keys.index(max(keys, key=keys.count))]


def test_templates_without_a_rationale_have_one_prompt(folder: Path) -> None:
    templates = ["{text}? {rationale}", "{text}? It is {label}."]
    prompts = evaluation(folder, template=templates, answer_prompt="so", max_new_tokens=2)
    tasks: list[Any] = [prompts.task_of([number, 0, 0, 0, 0]) for number in (0, 1)]
    assert tasks[0].generator.extraction is not None
    assert tasks[1].generator.extraction is None


def test_a_long_chain_of_thought_leaves_room_for_the_answer(folder: Path) -> None:
    """A chain of thought whose tokens change with the second prompt is cut, and not an error."""
    model = Model(load_checkpoint(model_path(folder)), evaluation_session(folder))
    options: dict[str, Any] = {"template": "{text}? {rationale}", "scoring": "generate"}
    long_text = "the cat sat on a mat " * 60
    (result,) = model.prompt([long_text], answer_prompt="so it is", max_new_tokens=6, **options)
    assert result["generated"] and result["conclusion"]
    task = Prompting(model.checkpoint, model.session, answer_prompt="so", **options)
    assert task.generator is not None and task.generator.extraction is not None
    records = [TextExample("the mat?", location="here")]
    (conclusion,) = task.generator.extraction.generate([(records[0], " a cat" * 500)])
    assert conclusion
    with pytest.raises(UsageError, match="chain of thought and the answer leave no room"):
        model.prompt(["a"], answer_prompt="so it is " * 80, max_new_tokens=6, **options)


def evaluation_session(folder: Path) -> Any:
    return load_session(load_checkpoint(model_path(folder)), "cpu", dtype="float64")


def test_the_vote_of_an_evaluation_is_that_of_its_samples(folder: Path) -> None:
    model = Model(load_checkpoint(model_path(folder)), evaluation_session(folder))
    options: dict[str, Any] = {
        "template": "{text}: {rationale}",
        "answer": "([a-z])",
        "samples": 7,
        "max_new_tokens": 4,
        "temperature": 0.8,
    }
    sampled = model.prompt(QUESTIONS, scoring="generate", seed=5, **options)
    expected = []
    for result in sampled:
        keys = [answer_key(answer) for answer in result["samples"] if answer is not None]
        # ``max`` returns the first of equal ones.
        expected.append(max(keys, key=keys.count) if keys else None)
    rows: list[Any] = []
    prompts = evaluation(folder, seed=5, **options)
    prompts.evaluate([write_answers(folder, list("xyzxy"))], on_prediction=rows.append)
    assert [row["prediction"] for row in rows] == expected


def test_rationales_and_direct_answers_are_compared(folder: Path) -> None:
    prompts = evaluation(
        folder,
        template=[TEMPLATE, "{text}? So {label}."],
        shots=1,
        shots_from=str(folder / "train.jsonl"),
        shot_labels=["gold", "permuted", "none"],
        max_new_tokens=3,
    )
    details = prompts.evaluate([write_answers(folder, ["a", 3.5, ["b", "c"], 4, "d"])]).details
    assert len(details["prompts"]) == 6
    with_rationale = prompts.task_of([0, 0, 0, 0, 0])
    without = prompts.task_of([1, 0, 0, 0, 0])
    texts = [task.fitter.before for task in (with_rationale, without)]  # type: ignore[attr-defined]
    assert texts in (
        ["the cat? cat sat So sat.\n\n", "the cat? So sat.\n\n"],
        ["a dog? dog ran So ran.\n\n", "a dog? So ran.\n\n"],
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scoring": "likelihood", "label_words": "sat,ran"}, r"has the slot \{rationale\}; it is"),
        ({"shots": 1, "rationale": "why"}, "no column 'why'"),
        ({"shots": 1, "shot_labels": "random"}, "no set from which random labels are drawn"),
        ({"shots": 1, "wrong_labels": 1}, "no set from which 1 wrong labels are drawn"),
        ({"answer": "("}, "is not a regular expression"),
        ({"shots": 3}, "3 examples are more than the 2 rows"),
        ({"answer_prompt": "so", "template": "{text}: {label}"}, "which no template generates"),
        (
            {"answer_prompt": "so", "template": "{text}: {label} since {rationale}"},
            "which no template generates",
        ),
    ],
)
def test_wrong_options_are_refused(folder: Path, options: dict[str, Any], message: str) -> None:
    if "shots" in options:
        options = {**options, "shots_from": str(folder / "train.jsonl")}
    checkpoint = load_checkpoint(model_path(folder))
    with pytest.raises(UsageError, match=message):
        PromptEvaluation(
            checkpoint,
            load_session(checkpoint, "cpu"),
            **{"template": TEMPLATE, "scoring": "generate", **options},
        ).evaluate([write_answers(folder, ["sat", "ran", "sat", "ran", "sat"])])


def test_a_second_prompt_needs_a_chain_of_thought(folder: Path) -> None:
    model = Model(load_checkpoint(model_path(folder)), evaluation_session(folder))
    with pytest.raises(UsageError, match="generates none; end it with the slot"):
        model.prompt(["a"], template="{text}: {label}", scoring="generate", answer_prompt="so")
    with pytest.raises(UsageError, match="--answer-prompt is for --scoring generate"):
        model.prompt(["a"], template="{text}: {label}", label_words="a,b", answer_prompt="so")


def test_examples_in_python_have_a_rationale_as_third_value(folder: Path) -> None:
    model = Model(load_checkpoint(model_path(folder)), evaluation_session(folder))
    options: dict[str, Any] = {"template": TEMPLATE, "scoring": "generate", "max_new_tokens": 3}
    with pytest.raises(UsageError, match=r"example 1 has no rationale for the slot \{rationale\}"):
        model.prompt(["a"], examples=[("the cat", "sat")], **options)
    (result,) = model.prompt(["dog"], examples=[("the cat", "sat", "cat sat")], **options)
    assert result["generated"] == generated(folder, "the cat? cat sat So sat.\n\ndog?", 3)


def test_the_commands_take_rationales(folder: Path) -> None:
    options = ["--template", TEMPLATE, "--scoring", "generate", "--max-new-tokens", "4"]
    options += ["--shots", "2", "--shots-from", str(folder / "train.jsonl")]
    model = str(model_path(folder))
    done = CliRunner().invoke(run_command, ["prompt", model, "the mat", *options])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert set(result) >= {"generated", "answer"}
    data = str(write_answers(folder, list("abcde")))
    options += [
        "--answer-prompt",
        "so it is",
        "--task",
        "prompt",
        "--eval",
        data,
        "--samples",
        "3",
        "--seeds",
        "2",
    ]
    done = CliRunner().invoke(eval_command, [model, *options, "--no-record", "--json"])
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["prompts"]) == 2
