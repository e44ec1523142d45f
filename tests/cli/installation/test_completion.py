"""Completion of the command line, in shells on a terminal and as their scripts ask for it."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click
import msgspec
import pytest

from tests import cold
from tests.inference.making import make_checkpoint, write_manifest
from tests.interfaces import commands
from tests.warm import zoo
from zoo.checkpoint import CONFIG
from zoo.io.json import encode_json
from zoo.objectives import OBJECTIVES, supports_objective
from zoo.plugins import all_families
from zoo.sentence_models.pooling import Pooling

SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(zoo completion bash)"'),
    "zsh": (
        ["zsh", "-f", "-i"],
        'autoload -U compinit; compinit -u; eval "$(zoo completion zsh)"',
    ),
}
# what is typed before TAB -> what follows on the line
TYPED = {
    "zoo compl": "completion ",
    "zoo run simil": "similarity ",
    "zoo run embed a-model --backe": "backend ",
    "zoo run embed a-model --backend onn": "onnx ",
    "zoo info bert-base-unc": "uncased ",
    "zoo verify my-mod": "model ",
    "zoo run embed a-model --input note": "notes.jsonl ",
    "zoo pretrain a-family --train note": "notes.jsonl ",
    "zoo finetune a-model --train note": "notes.jsonl ",
    "zoo pretrain a-family --set lr_scheduler.name=cos": "ine ",
    "zoo pretrain a-family --set lr_scheduler.name=cosine --objec": "tive ",
    "zoo pretrain a-family --set lr_scheduler.na\tcos": "ine ",
}
SECONDS = 30


class Terminal:
    """An interactive shell on a terminal of its own, in which ``zoo`` is found."""

    def __init__(self, argv: list[str], cwd: Path) -> None:
        self._main, other = pty.openpty()
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, "TERM": "dumb", "PS1": "$ ", "HOME": str(cwd)}
        self._shell = subprocess.Popen(
            argv, stdin=other, stdout=other, stderr=other, env=env, cwd=cwd, start_new_session=True
        )
        os.close(other)
        self.transcript = ""

    def type(self, keys: str, until: str) -> str:
        """Type keys, and return what the terminal shows up to a text, or before time is up."""
        os.write(self._main, keys.encode())
        shown, end = "", time.monotonic() + SECONDS
        while until not in shown and time.monotonic() < end:
            if select.select([self._main], [], [], 0.1)[0]:
                shown += os.read(self._main, 4096).decode(errors="replace")
        self.transcript += shown
        return shown

    def close(self) -> None:
        self._shell.kill()
        self._shell.wait()
        os.close(self._main)


@pytest.mark.by_default("bash")
@pytest.mark.parametrize("name", SHELLS)
def test_tab_completes_and_prints_nothing_else(name: str, tmp_path: Path) -> None:
    argv, setup = SHELLS[name]
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{name} is not installed")
    (tmp_path / "notes.jsonl").touch()
    (tmp_path / "my-model").mkdir()
    terminal, shown = Terminal(argv, tmp_path), {}
    try:
        terminal.type(f"{setup}; echo rea''dy\n", "ready\r\n")
        for typed, expected in TYPED.items():
            shown[typed] = terminal.type(f"{typed}\t", expected)
            terminal.type("\x15\n", "$ ")  # an empty line
    finally:
        terminal.close()
    missing = [typed for typed, expected in TYPED.items() if expected not in shown[typed]]
    assert missing == [] and "error" not in terminal.transcript, terminal.transcript


@pytest.mark.long
def test_fish_completes_lines(tmp_path: Path) -> None:
    fish = shutil.which("fish")
    if fish is None:
        pytest.skip("fish is not installed")
    (tmp_path / "notes.jsonl").touch()
    (tmp_path / "my-model").mkdir()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "HOME": str(tmp_path)}
    lines = {line: word for line, word in TYPED.items() if "\t" not in line}
    program = "zoo completion fish | source\n"
    for line in lines:
        program += f"complete -C '{line}' | string split -f 1 \\t; echo\n"
    done = subprocess.run(
        [fish, "--private", "-c", program],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=20 * SECONDS,
        check=True,
    )
    assert done.stderr == ""
    answers = done.stdout.split("\n\n")
    for (line, word), answer in zip(lines.items(), answers, strict=False):
        (completion,) = answer.split()
        assert completion.rstrip("/").endswith(word.strip()), line


@pytest.mark.by_default("words0", "words9", "words14")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["zoo", ""], "plain,finetune"),
        (["zoo", "run", ""], "plain,embed"),
        (["zoo", "run", ""], "plain,fill-mask"),
        (["zoo", "run", "question"], "plain,question-answering"),
        (["zoo", "run", "n"], "plain,ner"),
        (["zoo", "finetune", "bert", "--task", "question"], "plain,question-answering"),
        (["zoo", "finetune", "bert", "--task", "an"], "plain,answer"),
        (["zoo", "distill", "--task", "n"], "plain,ner"),
        (["zoo", "eval", "m", "--task", "perp"], "plain,perplexity"),
        (["zoo", "finetune", "bert", "--task", "sentences"], None),  # for distillation only
        (["zoo", "run", "no-such-task", ""], "plain,embed"),  # as if it was not there
        (["zoo", "no-such-command", ""], "plain,finetune"),
        (["zoo", "run", "embed", "x", "--revision", "x", "--revision", ""], None),
        (["zoo", "pretrain", ""], "plain,bert"),
        (["zoo", "corpus", "build", ""], "file,"),
    ],
)
def test_a_completion_exits_with_0_in_silence(words: list[str], expected: str | None) -> None:
    done = zoo(
        _ZOO_COMPLETE="bash_complete",
        COMP_WORDS="\n".join(words),
        COMP_CWORD=str(len(words) - 1),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [] if expected is None else expected in done.stdout.split()


def completions(*words: str) -> set[str]:
    """Return what completes the last word."""
    done = zoo(
        _ZOO_COMPLETE="bash_complete",
        COMP_WORDS="\n".join(words),
        COMP_CWORD=str(len(words) - 1),
    )
    assert (done.returncode, done.stderr) == (0, "")
    return {line.partition(",")[2] for line in done.stdout.splitlines() if line}


@pytest.mark.by_default(
    "zoo eval m --task -present0",
    "zoo eval elmo --task -present3",
    "zoo export bert-base-uncased --head ma-present5",
    "zoo finetune m --task glue/-present7",
    "zoo pretrain bert --size -present8",
    "zoo pretrain bert --objective masked-lm+-present10",
    "zoo examples --objective -present12",
    "zoo export m --to gguf --dtype -present15",
    "zoo finetune m --report-to -present20",
    "zoo convert m --model-type dist-present21",
    "zoo distill --recipe mini-present22",
    "zoo pretrain bert --set optimizer.l-present25",
    "zoo finetune m --set lr_scheduler.name=co-present29",
    "zoo pretrain bert --set objective_args.mask_-present34",
)
@pytest.mark.parametrize(
    ("words", "present", "absent"),
    [
        ("zoo eval m --task ", {"perplexity", "regression"}, {"glue/cola"}),
        ("zoo finetune gpt --task ", {"causal-lm", "text-classification"}, {"seq2seq", "prompt"}),
        ("zoo finetune t5-small --task ", {"seq2seq", "causal-lm"}, {"multiple-choice"}),
        ("zoo eval elmo --task ", {"perplexity", "ner"}, {"question-answering"}),
        ("zoo convert bart-base --head ", {"seq2seq-lm", "none"}, {"masked-lm"}),
        ("zoo export bert-base-uncased --head ma", {"masked-lm"}, {"causal-lm"}),
        ("zoo finetune bert --adapter lo", {"lora"}, {"prefix"}),
        ("zoo finetune m --task glue/", {"glue/cola"}, {"regression"}),
        ("zoo pretrain bert --size ", {"tiny", "base"}, {"xxlarge"}),
        ("zoo pretrain deberta --size x", {"xlarge"}, {"base"}),
        ("zoo pretrain bert --objective masked-lm+", {"masked-lm+next-sentence"}, {"causal-lm"}),
        (
            "zoo pretrain t5 --objective ",
            {"span-corruption", "bert-style"},
            {"text-infilling", "masked-lm"},
        ),
        ("zoo examples --objective ", {"text-infilling", "bert-style", "masked-lm"}, set()),
        ("zoo convert m --dtype ", {"bfloat16", "float64"}, {"int8", "fp16"}),
        ("zoo export m --dtype ", {"int4", "float16"}, {"bfloat16", "q8_0"}),
        ("zoo export m --to gguf --dtype ", {"q8_0", "mxfp4", "int8"}, {"float64"}),
        ("zoo run embed m --dtype ", {"float32", "bfloat16", "int8", "int4"}, {"q8_0"}),
        ("zoo eval m --backend cpu --dtype ", {"float64", "int8"}, {"int4"}),
        ("zoo bench m --backend gguf --dtype q", {"q8_0"}, {"int8"}),
        ("zoo run embed m --device c", {"cpu", "cuda"}, set()),
        ("zoo finetune m --report-to ", {"tensorboard", "wandb", "mlflow"}, {"lora"}),
        ("zoo convert m --model-type dist", {"distilbert"}, {"bert"}),
        ("zoo distill --recipe mini", {"minilm", "minilmv2"}, {"patient"}),
        ("zoo finetune bert --preset s", {"stable"}, {"paper"}),
        ("zoo corpus build x --family ro", {"roberta"}, {"bert"}),
        (
            "zoo pretrain bert --set optimizer.l",
            {"optimizer.learning_rate="},
            {"optimizer.name=", "learning_rate="},
        ),
        ("zoo pretrain bert --set config.dr", {"config.dropout="}, {"config.num_layers="}),
        ("zoo finetune m --set num_train", {"num_train_epochs="}, set()),
        (
            "zoo pretrain bert --set optimizer.name=",
            {"optimizer.name=adamw", "optimizer.name=lamb"},
            {"optimizer.name="},
        ),
        ("zoo finetune m --set lr_scheduler.name=co", {"lr_scheduler.name=cosine"}, set()),
        ("zoo finetune m --set compile=", {"compile=true", "compile=false"}, set()),
        ("zoo pretrain bert --set precision=b", {"precision=bfloat16"}, {"precision=auto"}),
        ("zoo pretrain t5 --set size=", {"size=3b"}, {"size=mini"}),
        ("zoo pretrain bert --set objective=", {"objective=masked-lm"}, {"objective=causal-lm"}),
        (
            "zoo pretrain bert --set objective_args.mask_",
            {"objective_args.mask_prob=", "objective_args.mask_strategy="},
            {"objective_args.mask_prob", "objective_args.num_sampled="},
        ),
        (
            "zoo pretrain roberta --objective causal-lm --set objective_args.",
            set(),
            {"objective_args.mask_prob="},
        ),
        (
            "zoo pretrain t5 --set objective=bert-style --set objective_args.",
            {"objective_args.noise_density="},
            {"objective_args.mask_prob="},
        ),
        (
            "zoo pretrain bert --set objective_args.mask_schedule=",
            {"objective_args.mask_schedule=static", "objective_args.mask_schedule=dynamic"},
            set(),
        ),
        ("zoo pretrain bert --set objective_ar", {"objective_args="}, set()),
        (
            "zoo finetune m --task sentence-embedding --set task_args.",
            {"task_args.loss=", "task_args.pooling="},
            {"task_args.doc_stride="},
        ),
        (
            "zoo finetune m --set task=ordinal-regression --set task_args.doc",
            {"task_args.doc_stride="},
            {"task_args.loss="},
        ),
        (
            "zoo pretrain bert --set seq_len_warmup.objective_args.mask_p",
            {"seq_len_warmup.objective_args.mask_prob="},
            set(),
        ),
        ("zoo pretrain bert --set config.pooler=", {"config.pooler=true"}, set()),
        ("zoo pretrain bert --set config.num_layers=", set(), {"config.num_layers=true"}),
        ("zoo distill --set distillation.align=", {"distillation.align=text"}, set()),
        ("zoo distill --set distillation.te", {"distillation.teachers="}, set()),
    ],
)
def test_names_are_completed(words: str, present: set[str], absent: set[str]) -> None:
    found = completions(*words.split(" "))
    assert sorted(present - found) == [] and sorted(absent & found) == []


@pytest.mark.by_default(
    "zoo run embed m --input {} --text ", "zoo finetune m --train {} --negative "
)
@pytest.mark.parametrize(
    "words",
    [
        "zoo run embed m --input {} --text ",
        "zoo run embed m --text rev --input {} --pair ",
        "zoo finetune m --train {} --label ",
        "zoo finetune m --train name={} --text ",
        "zoo finetune m --train {} --negative ",
        "zoo eval m --eval {} --pair ",
        "zoo export m --eval {} --text ",
    ],
)
def test_columns_of_a_table_are_completed(words: str, tmp_path: Path) -> None:
    path = tmp_path / "reviews.csv"
    path.write_text("id,review,stars\n1,fine,5\n")
    found = completions(*words.format(path).split(" "))
    assert found == {"id", "review", "stars"}
    assert completions(*[*words.format(path).split(" ")[:-1], "st"]) == {"stars"}


def test_values_are_completed_as_bash_splits_them() -> None:
    """Bash takes ``KEY=VALUE`` for three words, and replaces the last one only."""
    words = ["zoo", "pretrain", "bert", "--set", "optimizer.name", "="]
    assert {"adamw", "lamb"} <= completions(*words)
    assert completions(*words, "stable") == {"stable-adamw"}
    assert completions(*words, "adamw", "--set", "precision", "=", "fl") == {"float32"}
    assert completions("zoo", "pretrain", "bert", "--size", "=", "min") == {"mini"}
    assert "causal-lm" not in completions(*words, "adamw", "--objective", "")


def test_prompts_of_a_converted_model_are_completed(tmp_path: Path) -> None:
    pooling = Pooling(prompts={"query": "Query: ", "passage": "Passage: "})
    checkpoint = make_checkpoint(tmp_path / "model", num_layers=1)
    model = msgspec.structs.replace(checkpoint.model, pooling=pooling)
    (checkpoint.path / CONFIG).write_bytes(encode_json(model))
    write_manifest(checkpoint.path)
    for options in ("run embed {} --prompt ", "eval {} --task retrieval --corpus-prompt "):
        words = options.format(tmp_path / "model").split(" ")
        assert completions("zoo", *words) == {"query", "passage"}


def test_splits_of_a_beir_folder_are_completed(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    for name in ("dev.tsv", "test.tsv", "notes.txt"):
        (tmp_path / "qrels" / name).touch()
    words = f"zoo eval m --task retrieval --eval {tmp_path} --split ".split(" ")
    assert completions(*words) == {"dev", "test"}


@pytest.mark.by_default("bert", "modernbert", "deberta", "gpt", "t5", "elmo")
@pytest.mark.parametrize("family", list(all_families()))
def test_objectives_of_a_family_are_completed_without_torch(family: str) -> None:
    done = cold.zoo_again(
        _ZOO_COMPLETE="bash_complete",
        COMP_WORDS=f"zoo\npretrain\n{family}\n--objective\n",
        COMP_CWORD="4",
    )
    config = next(iter(all_families()[family].sizes().values()))
    names = [*OBJECTIVES, *all_families()[family].objectives]
    expected = {n for n in names if supports_objective(all_families()[family], config, n)}
    assert {line.partition(",")[2] for line in done.stdout.splitlines() if line} == expected
    assert "torch" not in done.modules


def test_completion_does_not_read_standard_input() -> None:
    assert completions("zoo", "eval", "m", "--eval", "-", "--text", "") == set()


def test_an_error_of_a_completion_completes_nothing() -> None:
    # no shell sends this
    done = zoo(_ZOO_COMPLETE="bash_complete", COMP_WORDS="zoo\ninfo\nb", COMP_CWORD="x")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
    assert zoo(_ZOO_COMPLETE="tcsh_complete").returncode == 1


def test_parameters_that_name_models_or_paths_complete_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("REF", "FAMILY", "FILE", "PATH", "DIR", "RUN", "CONFIG.yaml")
    silent, count = [], 0
    for name, command in commands():
        for parameter in command.params:
            named = (parameter.metavar or "").strip(".[]").replace("NAME=]", "").split("|")
            if set(named) & set(words):
                count += 1
                context = click.Context(command)
                if not parameter.shell_complete(context, ""):
                    silent.append(f"{name} {parameter.opts[0]}")
    assert silent == [] and count > 40
