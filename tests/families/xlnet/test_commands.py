"""XLNet in commands: its objective, its memory and its beams of answers, against transformers."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

from tests import warm
from tests.families.xlnet.beam_answers import beam_answers
from tests.finetuning.making import write_table
from tests.tasks.question_answering.making import Answers, assert_same
from tests.training.runs import DATA


class Commands:
    """Commands in a directory of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {"ZOO_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}

    def zoo(self, *arguments: object) -> dict[str, Any]:
        """Run a command, and return the JSON object that it prints."""
        done = warm.zoo(*arguments, "--json", cwd=self.folder, **self.environment)
        assert done.returncode == 0, done.stdout + done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        return result


pytestmark = pytest.mark.long  # what the commands call is tested without them

RUN = {
    "vocab_size": 400,
    "seq_len": 32,
    "global_batch_tokens": 256,
    "max_steps": 4,
    "eval_sequences": 4,
    "lr_scheduler.warmup_steps": 2,
}


def pretrain(commands: Commands, family: str, **changes: Any) -> Commands:
    """Write a run of a few steps to ``run``."""
    settings = [f"--set={name}={value}" for name, value in {**RUN, **changes}.items()]
    commands.zoo("pretrain", family, *DATA, *settings, "--device", "cpu", "-o", "run")
    return commands


def verify_all(commands: Commands) -> None:
    checks = commands.zoo("verify", "run/model")["checks"]
    assert {check["outcome"] for check in checks} == {"ok"}
    assert "transformers" in {check["name"] for check in checks}


@pytest.fixture(scope="module")
def xlnet(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return pretrain(Commands(tmp_path_factory.mktemp("xlnet")), "xlnet")


def convert_back(commands: Commands) -> None:
    """Convert to the Hub's layout in ``published``, and back bit for bit."""
    commands.zoo("convert", "run/model", "--to", "hub", "-o", "published")
    commands.zoo("convert", "published", "-o", "again")
    first, second = (
        load_file(commands.folder / name / "model.safetensors") for name in ("run/model", "again")
    )
    assert first.keys() == second.keys()
    assert [name for name, tensor in first.items() if not torch.equal(tensor, second[name])] == []


def distill(commands: Commands, family: str) -> None:
    distilled = ("--teacher", "run/model", "--student", family, "--max-steps", "2")
    settings = ("--set=seq_len=32", "--set=global_batch_tokens=256", "--set=eval_sequences=4")
    commands.zoo("distill", *distilled, *DATA, *settings, "--device", "cpu", "-o", "student")


def test_an_encoder_with_an_objective_of_its_own_fills_masks(xlnet: Commands) -> None:
    """Predictions are those of the reference's query stream, at the end of a padded row."""
    verify_all(xlnet)
    convert_back(xlnet)
    texts = ("Alice was <mask>", "the <mask> sat on the mat and was very late")
    tokenizer = transformers.AutoTokenizer.from_pretrained(xlnet.folder / "published")
    inputs = tokenizer(list(texts), padding=True, return_tensors="pt")
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    assert ids[:, -1].tolist() == [tokenizer.cls_token_id] * 2 and not mask[0, 0]
    is_mask, tokens = ids == tokenizer.mask_token_id, ids.shape[1]
    kind: Any = transformers.XLNetLMHeadModel
    model, loading = kind.from_pretrained(xlnet.folder / "published", output_loading_info=True)
    assert {key: value for key, value in loading.items() if value} == {}
    with torch.no_grad():
        logits = model.eval()(
            **inputs,
            perm_mask=is_mask[:, None].expand(-1, tokens, -1).float(),
            target_mapping=torch.eye(tokens).expand(2, -1, -1),
        ).logits
    expected = logits[is_mask].softmax(-1).topk(3)
    results = xlnet.zoo("run", "fill-mask", "run/model", *texts, "--top-k", "3")["results"]
    for result, scores in zip(results, expected.values, strict=True):
        (place,) = result["masks"]
        actual = [prediction["score"] for prediction in place["predictions"]]
        assert actual == pytest.approx(scores.tolist(), rel=1e-4)


def test_an_encoder_with_memory_generates(xlnet: Commands) -> None:
    """The tokens of the reference, with its default, a memory."""
    xlnet.zoo("convert", "run/model", "--to", "hub", "-o", "generating")
    texts = ("Alice was beginning to", "said the")
    tokenizer = transformers.AutoTokenizer.from_pretrained(xlnet.folder / "generating")
    kind: Any = transformers.XLNetLMHeadModel
    model = kind.from_pretrained(xlnet.folder / "generating").eval()
    expected = []
    for text in texts:
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        whole = model.generate(ids, max_new_tokens=6, do_sample=False)[0]
        expected.append(tokenizer.decode(whole, skip_special_tokens=True))
    results = xlnet.zoo("run", "generate", "run/model", *texts, "--max-new-tokens", "6")["results"]
    assert [result["text"] + result["generated"] for result in results] == expected


QUESTIONS = [
    ("Who was late?", "The rabbit was very late, and Alice was tired of sitting by her sister."),
    ("What?", " ".join(["Alice ran after it across the field, and down the hole."] * 3)),
    ("the", "the cat sat on the mat and the dog"),
]
WINDOW = {"max_seq_len": 40, "doc_stride": 9, "max_answer_len": 20}
OPTIONS = [f"--{name.replace('_', '-')}={value}" for name, value in WINDOW.items()]


@pytest.fixture(scope="module")
def beams(xlnet: Commands) -> tuple[Commands, list[tuple[Answers, float]]]:
    """The reference's head for beams in ``questions``, converted to ``asked``, and its answers.

    Its biases let some answers be likely, and let one question have none.
    """
    source = xlnet.folder / "questions"
    xlnet.zoo("convert", "run/model", "--to", "hub", "-o", "questions")
    kind: Any = transformers.XLNetForQuestionAnswering
    torch.manual_seed(1)
    model = kind.from_pretrained(source, start_n_top=4, end_n_top=6)
    for name, parameter in model.named_parameters():
        if not name.startswith("transformer."):
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(source)
    xlnet.zoo("convert", "questions", "-o", "asked")
    window, stride, longest = WINDOW.values()
    return xlnet, [
        beam_answers(source, *pair, window=window, stride=stride, longest=longest)
        for pair in QUESTIONS
    ]


def test_a_head_of_beams_is_verified_and_converted_back(beams: Any) -> None:
    """Its tensors come back to the reference's class bit for bit."""
    commands, _ = beams
    checks = commands.zoo("verify", "asked")["checks"]
    assert {check["outcome"] for check in checks} == {"ok"}
    assert "transformers" in {check["name"] for check in checks}
    commands.zoo("convert", "asked", "--to", "hub", "-o", "asked-again")
    kind: Any = transformers.XLNetForQuestionAnswering
    before, after = (
        kind.from_pretrained(commands.folder / name, output_loading_info=True)
        for name in ("questions", "asked-again")
    )
    assert {key: value for key, value in after[1].items() if value} == {}
    assert (after[0].start_n_top, after[0].end_n_top) == (4, 6)
    first, second = before[0].state_dict(), after[0].state_dict()
    assert first.keys() == second.keys()
    assert [name for name, tensor in first.items() if not torch.equal(tensor, second[name])] == []


def test_answers_of_beams_are_those_of_the_reference(beams: Any) -> None:
    """Also over several windows of a context, in padded batches."""
    commands, references = beams
    texts = [text for pair in QUESTIONS for text in pair]
    results = commands.zoo("run", "answer", "asked", *texts, *OPTIONS, "--top-k", "4")["results"]
    for result, (expected, _) in zip(results, references, strict=True):
        assert len(expected) > 1
        assert_same(result["predictions"], expected[:4])
    threshold = threshold_of_some(references)
    impossible = ("--handle-impossible-answer", f"--null-threshold={threshold}")
    results = commands.zoo("run", "answer", "asked", *texts, *OPTIONS, *impossible)["results"]
    for result, (expected, null_logit) in zip(results, references, strict=True):
        best, none = expected[0], {"answer": "", "score": 1 / (1 + math.exp(-null_logit))}
        chosen = none if null_logit > threshold else best
        assert result["answer"] == chosen["answer"]
        assert result["score"] == pytest.approx(chosen["score"], abs=1e-4)


def threshold_of_some(references: list[tuple[Answers, float]]) -> float:
    """Return a threshold between the two lowest logits of no answer."""
    lowest, second, *_ = sorted(null_logit for _, null_logit in references)
    assert second - lowest > 0.01
    return (lowest + second) / 2


def test_answers_of_beams_are_evaluated_and_not_fine_tuned(beams: Any) -> None:
    """Exact match, with a threshold above which a question counts as one without an answer."""
    commands, references = beams
    rows = []
    for (question, context), (expected, _) in zip(QUESTIONS, references, strict=True):
        answers = {"text": [expected[0]["answer"]], "answer_start": [expected[0]["start"]]}
        rows.append({"question": question, "context": context, "answers": answers})
    none: dict[str, Any] = {"text": [], "answer_start": []}
    data = commands.folder / "questions.jsonl"
    write_table(data, [*rows, *({**row, "answers": none} for row in rows)])
    task, threshold = ("--task", "question-answering"), threshold_of_some(references)
    options = ("--eval", data, "--max-seq-len=40", *OPTIONS[1:], f"--null-threshold={threshold}")
    metrics = commands.zoo("eval", "asked", *task, *options)["metrics"]
    assert metrics["has_answer_exact_match"] == pytest.approx(1 / 3)
    assert metrics["no_answer_exact_match"] == pytest.approx(2 / 3)
    training = ("finetune", "asked", *task, "--train", data)
    refused = warm.zoo(*training, cwd=commands.folder, **commands.environment)
    assert refused.returncode == 2
    assert "asked has the head beam-question-answering, which question-answering" in refused.stderr


def test_an_encoder_with_memory_is_resumed_exported_and_distilled(xlnet: Commands) -> None:
    xlnet.zoo("check", "resume", "xlnet", *DATA, *(f"--set={k}={v}" for k, v in RUN.items()))
    xlnet.zoo("export", "run/model", "--onnx", "-o", "graph")
    text = ("the <mask> sat", "--top-k", "3")
    results = [
        xlnet.zoo("run", "fill-mask", model, *text)["results"][0]["masks"][0]["predictions"]
        for model in ("run/model", "graph")
    ]
    first, second = ([p["score"] for p in predictions] for predictions in results)
    assert first == pytest.approx(second, rel=1e-4)
    refused = warm.zoo("run", "generate", "graph", "the", cwd=xlnet.folder, **xlnet.environment)
    assert refused.returncode == 2 and "generate with the model that it was" in refused.stderr
    distill(xlnet, "xlnet")
