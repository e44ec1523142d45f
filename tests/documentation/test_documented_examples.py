"""Every example of the README, the guides and some other pages runs and prints what it shows.

Commands run in one working directory, with a published BERT, texts, and a Hub on loopback that has
small models under the names of the examples. A command runs after those that write its inputs.
Programs of the README and of docs/api.md need no other command: each runs in an empty directory.
"""

import json
import re
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.hub.hub_server import Hub
from tests.plugins.laying import lay_out
from tests.tokenizers.directories import real
from tests.tokenizers.trained import END, byte_level
from zoo.hub.registry import builtin

ROOT = Path(__file__).parents[2]
ELSEWHERE = ("languages.md",)  # Its models and texts are not here; its commands are parsed.
GUIDES = sorted(
    str(path.relative_to(ROOT))
    for path in ROOT.glob("docs/guides/*.md")
    if path.name not in ELSEWHERE
)
PAGES = (
    *("README.md", "docs/getting-started.md", "docs/api.md", "docs/pretraining.md"),
    *("docs/sentence-models.md", *GUIDES),
)
DATABASES = "docs/guides/vector-databases.md"  # its programs need databases
FUNCTIONS = "docs/notebooks.md"  # its first program trains for its default number of epochs
PASTED = ("README.md", "docs/api.md")  # pages whose programs run as they are, in any directory
FLOAT = re.compile(r"-?\d+\.\d+(?:e[-+]\d+)?|\d+e[-+]\d+|\d+\.(?=[ \]])")
LARGEST = re.compile(r"(?<=largest magnitude, in )\w+")  # differs the most by a rounding error
SHORT = ("--max-steps", "3", "--global-batch-tokens", "1024", "--device", "cpu")
"""Options that make a documented run of minutes one of seconds."""
CHECKED = ("--objective", "masked-lm", "--train", "book.txt", "--eval", "book.txt")
# the first two install; `torchrun` is in tests/training, and layouts of ColBERT in tests/tokenizers
NOT_RUN = (
    *("make", "pip", "torchrun"),
    # of models and data that are not here
    *("zoo convert colbertv2.0", "zoo run rerank colbert"),
    *("zoo run search e5-small-v2", "zoo eval e5-small-v2", "zoo run rerank qwen3-reranker"),
    *(
        "zoo convert bge-m3",
        "zoo run embed bge-m3",
        "zoo run search bge-m3",
        "zoo run rerank bge-m3",
    ),
    *(
        "zoo run classify my-classifier",
        "zoo finetune ms-marco-minilm-l6-v2",
        "zoo finetune longformer-base-4096",
        "zoo convert ./llama",
    ),
    "zoo corpus clean crawl/ -o clean-by-slurm",
    "export ",
)
REVIEWS = [
    f'"{text}, say {number} of us.",{label}'
    for number in range(30)
    for text, label in (("A quiet, clever film", "positive"), ("Dull and long", "negative"))
]
PAIRS = [f"Who wrote book {number}?,A friend number {number} of mine." for number in range(60)]
# A cat sat: numbers, words, lemmas, parts of speech, heads and relations of CoNLL-U.
SENTENCE = """1\tA\ta\tDET\t_\t_\t2\tdet\t_\t_
2\tcat\tcat\tNOUN\t_\t_\t3\tnsubj\t_\t_
3\tsat\tsit\tVERB\t_\t_\t0\troot\t_\t_

"""
NOUNS = ("cat", "dog", "bird", "horse", "child", "king", "teacher", "friend", "guest")
TINY: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 30522,
}


def shortened(words: list[str]) -> list[str]:
    """Return a command of training that takes seconds: few steps, small batches."""
    if words[1] == "check":
        kills = ("--kills", "1") if words[2] == "resume" else ()
        return [*words, *CHECKED, *SHORT[:4], *kills]
    if words[1] not in ("pretrain", "distill") or "--resume" in words:
        return words
    if "--size" in words:  # The default sizes take seconds.
        place = words.index("--size")
        words = [*words[:place], *words[place + 2 :]]
    if "--max-steps" in words:  # 1,000 steps and 1,500 steps differ, still
        place = words.index("--max-steps") + 1
        steps = str(min(3 + int(words[place]) // 500, 9))
        short = [*words[:place], steps, *words[place + 1 :], *SHORT[2:]]
    else:
        short = [*words, *SHORT]
    if "--task" in words:  # labelled data has batches of rows
        place = short.index("--global-batch-tokens")
        del short[place : place + 2]
    return short


def blocks(language: str, pages: Sequence[str] = PAGES) -> list[str]:
    """Return the code blocks of pages in a language."""
    text = "\n".join((ROOT / page).read_text("utf-8") for page in pages)
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def documented() -> dict[str, str]:
    """Return command -> the output that its page shows, empty for none."""
    outputs: dict[str, str] = {}
    for block in blocks("console"):
        for part in re.split(r"(?m)^\$ ", block.replace("\\\n", " "))[1:]:
            command, _, output = part.partition("\n")
            outputs[shlex.join(shlex.split(command, comments=True))] = output
    return outputs


def written(command: str) -> str | None:
    """Return the directory that a command writes, if its name is on the page."""
    words = shlex.split(command)
    if "-o" in words:
        return words[words.index("-o") + 1]
    return f"{words[2]}-onnx" if words[:2] == ["zoo", "export"] else None


COMMANDS = {
    command: output
    for command, output in documented().items()
    if not command.startswith(NOT_RUN)
    and "--epochs" not in command  # Epochs take minutes.
    and "--suite" not in command  # The files of benchmarks are not here.
}
WRITES = [(output, command) for command in COMMANDS if (output := written(command))]
WRITERS = dict(WRITES)  # directory -> the command that writes it
# in commands and programs of over 10 seconds: those that export a graph, or train a model first
LONG = re.compile(
    r"onnx|zoo (pretrain|corpus|bench|export)|runs/|books-bert|int8|push|check|papers|glove"
    r"|zoo run (answer|score|rerank)|--shard|--search"
)
# Programs of pages whose commands come first, which write the models that are loaded.
PYTHON = [
    block
    for block in dict.fromkeys(
        blocks("python", [page for page in PAGES if page not in (*PASTED, DATABASES)])
    )
    if "\nprint(" in block
]
PASTED_PYTHON = [code for page in PASTED for code in blocks("python", [page])]


class Examples:
    """A working directory in which the documented commands run, each once."""

    def __init__(self, folder: Path, hub: str) -> None:
        self.folder, self.outputs = folder, dict[str, str]()
        self.environment = {"HF_ENDPOINT": hub, "HF_HUB_DISABLE_TELEMETRY": "1"}
        self.environment |= {"ZOO_HOME": str(folder / "store"), "HF_HOME": str(folder / "hf")}
        (folder / "all-MiniLM-L6-v2").symlink_to(real())
        sample = ROOT / "zoo" / "data" / "sample"
        for name in ("books", "articles"):
            (folder / name).symlink_to(sample)
        (folder / "book.txt").write_text((sample / "alice.txt").read_text("utf-8")[:5000])
        (folder / "reviews.csv").write_text("\n".join(["text,label", *REVIEWS]))
        (folder / "posts.csv").write_text("\n".join(["text,label", *REVIEWS]))
        (folder / "test.csv").write_text("\n".join(["text,label", *REVIEWS[:10]]))
        (folder / "articles.csv").write_text("title\nA cat.\nA kitten.\n")
        (folder / "news.csv").write_text("headline,body\nCats,A cat slept.\nDogs,A dog ran.\n")
        (folder / "tables").mkdir()
        for name in ("january", "february"):
            (folder / "tables" / f"{name}.csv").write_text(f"title\nA cat.\nIt is {name}.\n")
        for name in ("train", "dev"):
            sentences = [SENTENCE.replace("cat", noun) for noun in NOUNS]
            (folder / f"{name}.conllu").write_text("".join(sentences))
        (folder / "faq.csv").write_text("question,answer\nWho slept?,The cat.\n")
        (folder / "pairs.csv").write_text("\n".join(["question,answer", *PAIRS]))
        papers = [{"text": "The tenant pays for the repair. It rained. " * 30} for _ in range(2)]
        (folder / "papers.jsonl").write_text("\n".join(map(json.dumps, papers)))
        (folder / "passages.txt").write_text("The tenant pays for the repair of the roof.\n")
        (folder / "glove.6B.300d.txt").write_text("cat 0.5 1\nsat -1 0.25\nmat 1 1\n")
        (folder / "sts.csv").write_text("text,text_pair,label\nA cat.,A mat.,3\nIt sat.,A cat.,1\n")
        (folder / "pairs.tsv").write_text("paradigm\tgood\tbad\norder\tI am here.\tam I here.\n")

    def run(self, command: str) -> str:
        """Run a command after those that write its inputs; return what it prints."""
        if command not in self.outputs:
            words = shlex.split(command)
            self.write_inputs(words[1:])
            done = warm.zoo(*shortened(words)[1:], cwd=self.folder, **self.environment)
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            self.outputs[command] = done.stdout
        return self.outputs[command]

    def write_inputs(self, words: list[str]) -> None:
        """Run the commands that write the directories that are named."""
        outputs = [words[k + 1] for k, word in enumerate(words) if word == "-o"]
        for path, command in WRITERS.items():
            named = [word for word in words if word == path or word.startswith(f"{path}/")]
            if named and path not in outputs:
                self.run(command)

    def python(self, code: str) -> str:
        """Run a program after the commands that write the models that it loads."""
        self.write_inputs(re.findall(r'zoo\.load\("(.*?)"', code))
        return self.pasted(code, self.folder)

    def pasted(self, code: str, folder: Path) -> str:
        """Run a program in a directory, and return what it prints."""
        done = warm.python(code, folder, **self.environment)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Examples]:
    with Hub() as server:
        scratch = tmp_path_factory.mktemp("published")
        server.add("openai-community/gpt2", tiny_gpt2(scratch / "gpt2"))
        server.add("google-bert/bert-base-uncased", tiny_bert(scratch / "bert"))
        answers = tiny_bert(scratch / "answers", "BertForQuestionAnswering")
        server.add("sentence-transformers/all-MiniLM-L6-v2", contents(real()))
        server.add("deepset/bert-base-uncased-squad2", answers)
        server.add("FacebookAI/roberta-base", tiny_roberta(scratch / "roberta"))
        longformer = tiny_roberta(scratch / "longformer", "Longformer", attention_window=[8, 8])
        server.add("allenai/longformer-base-4096", longformer)
        yield Examples(tmp_path_factory.mktemp("examples"), server.url)


def tiny_gpt2(path: Path) -> dict[str, bytes]:
    """Return the files of a small GPT-2 with a tokenizer."""
    import transformers

    vocabulary, merges = byte_level((END,))
    kind: Any = transformers.GPT2LMHeadModel
    kind(transformers.GPT2Config(**TINY, vocab_size=1500)).save_pretrained(path)
    (path / "vocab.json").write_text(vocabulary)
    (path / "merges.txt").write_text(merges)
    return contents(path)


def tiny_bert(path: Path, architecture: str = "BertForPreTraining") -> dict[str, bytes]:
    """Return the files of a small BERT with the vocabulary of the published one."""
    import transformers

    kind: Any = getattr(transformers, architecture)
    kind(transformers.BertConfig(**SMALL)).save_pretrained(path)
    (path / "vocab.txt").write_bytes((real() / "vocab.txt").read_bytes())
    return contents(path)


def tiny_roberta(path: Path, family: str = "Roberta", **settings: Any) -> dict[str, bytes]:
    """Return the files of a small model with RoBERTa's tokens and number of positions."""
    import transformers

    vocabulary, merges = byte_level(("<s>", "<pad>", "</s>", "<unk>", "<mask>"))
    config: Any = getattr(transformers, f"{family}Config")
    model: Any = getattr(transformers, f"{family}ForMaskedLM")
    sizes = {**SMALL, "vocab_size": len(json.loads(vocabulary))}
    tokens = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "sep_token_id": 2}
    positions = {"max_position_embeddings": 514, "type_vocab_size": 1}
    model(config(**sizes, **tokens, **positions, **settings)).save_pretrained(path)
    (path / "vocab.json").write_text(vocabulary)
    (path / "merges.txt").write_text(merges)
    return contents(path)


def contents(path: Path) -> dict[str, bytes]:
    files = (file for file in path.rglob("*") if file.is_file())
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}


def assert_same_output(expected: str, printed: str) -> None:
    """Check that texts and whole numbers are equal, and decimals but for their last digits.

    ``...`` stands for any text. Numbers with exponents, which are rounding errors, may differ, and
    so may the name of the output that has the largest.
    """
    texts = [LARGEST.sub("OUTPUT", FLOAT.sub("#", text.strip())) for text in (expected, printed)]
    pattern = re.escape(texts[0]).replace(re.escape("..."), ".*")
    assert re.fullmatch(pattern, texts[1]), f"{expected}\n{printed}"
    pairs = zip(FLOAT.findall(expected), FLOAT.findall(printed), strict=False)
    for shown, number in pairs:
        if "e" not in shown:
            assert float(number) == pytest.approx(float(shown), abs=2e-3)


def test_examples_are_found() -> None:
    assert len(COMMANDS) > 12 and len(PYTHON) == 4 and len(PASTED_PYTHON) == 3
    assert len([output for output in COMMANDS.values() if output]) == 8
    assert {"minilm", "minilm-onnx", "runs/books", "corpus"} <= WRITERS.keys()
    assert len(WRITES) == len(WRITERS), "two commands write one directory"


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=pytest.mark.long if LONG.search(command) else ())
        for command in COMMANDS
    ],
)
def test_a_command_prints_what_its_page_shows(examples: Examples, command: str) -> None:
    printed = examples.run(command)
    if COMMANDS[command]:
        assert_same_output(COMMANDS[command], printed)


@pytest.mark.long
@pytest.mark.parametrize(
    "code",
    [
        pytest.param(code, marks=pytest.mark.long if LONG.search(code) else (), id=f"example-{k}")
        for k, code in enumerate(PYTHON)
    ],
)
def test_a_program_prints_what_its_page_shows(examples: Examples, code: str) -> None:
    assert_same_output(shown_output(code), examples.python(code))


@pytest.mark.by_default("code3")
@pytest.mark.parametrize(
    "code",
    [
        # the import of the database takes seconds
        pytest.param(code, marks=pytest.mark.long if "import lancedb" in code else ())
        for code in blocks("python", [DATABASES])
    ],
)
def test_a_database_searches_the_vectors(examples: Examples, code: str) -> None:
    for module in re.findall(r"(?m)^import (duckdb|faiss|lancedb)$", code):
        pytest.importorskip(module)
    examples.write_inputs(["articles.parquet"])
    assert_same_output(shown_output(code), examples.python(code))


@pytest.mark.long
def test_postgres_searches_the_vectors(examples: Examples) -> None:
    """The package pgserver is a server with pgvector; it is no requirement of the tests."""
    pgserver = pytest.importorskip("pgserver")
    duckdb = pytest.importorskip("duckdb")
    *_, export, search = blocks("sql", [DATABASES])
    examples.write_inputs(["articles.parquet"])
    vector = examples.python(
        "import json, zoo\nprint(json.dumps(zoo.load('all-minilm-l6-v2').encode_query("
        "['kittens'])[0].tolist()))"
    )
    # The server has a user of its own if this one is root, and its sockets have short names.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        table = Path(folder, "vectors.csv")
        export = export.replace("articles.parquet", str(examples.folder / "articles.parquet"))
        duckdb.sql(export.replace("vectors.csv", str(table)))
        search = search.replace("vectors.csv", str(table)).replace("$1", f"'{vector.strip()}'")
        server = pgserver.get_server(Path(folder, "data"), cleanup_mode="delete")
        try:
            printed = server.psql(search)
        finally:
            server.cleanup()
    assert "\n A kitten.\n" in printed, printed


def shown_output(code: str) -> str:
    """Return the output that a program shows in its comments."""
    return "\n".join(re.findall(r"(?m)^# (.*)$", code))


@pytest.mark.by_default("program-1")
@pytest.mark.parametrize(
    "code",
    [
        pytest.param(code, marks=pytest.mark.long if LONG.search(code) else (), id=f"program-{k}")
        for k, code in enumerate(PASTED_PYTHON)
    ],
)
def test_a_program_runs_as_pasted(
    examples: Examples, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an empty directory, with a store that has no model yet."""
    monkeypatch.setitem(examples.environment, "ZOO_HOME", str(tmp_path / "store"))
    folder = tmp_path / "folder"
    folder.mkdir()
    assert_same_output(shown_output(code), examples.pasted(code, folder))
    assert [*folder.iterdir()] == []


@pytest.mark.long
def test_the_functions_of_the_page_make_a_classifier(examples: Examples, tmp_path: Path) -> None:
    """The first program converts, trains, evaluates and exports; its metrics are printed."""
    first, _ = blocks("python", [FUNCTIONS])
    for name in ("train.tsv", "test.tsv"):
        rows = [f"{row.split(',')[0].strip(chr(34))} {k}\t{k % 2}" for k, row in enumerate(REVIEWS)]
        (tmp_path / name).write_text("\n".join(["sentence\tlabel", *rows]))
    parameters, accuracy, difference = examples.pasted(first, tmp_path).split()[-3:]
    assert int(parameters) == 22_713_216
    assert 0 <= float(accuracy) <= 1 and 0 < float(difference) < 1
    assert (tmp_path / "minilm" / "model.safetensors").is_file()


def test_programs_load_names_of_the_registry() -> None:
    names = [name for code in PASTED_PYTHON for name in re.findall(r'zoo\.load\("(.*?)"', code)]
    assert names and {*names} <= builtin().keys()


@pytest.mark.long
def test_the_logger_of_the_page_writes_the_gradient_norm(examples: Examples) -> None:
    (code,) = (block for block in blocks("python") if "def zoo_loggers" in block)
    site = lay_out(examples.folder / "site", {}, code)
    options = ("--report-to", "gradient-norm", "-o", "runs/norms")
    done = warm.zoo(
        *("pretrain", "bert", *options, *SHORT),
        cwd=examples.folder,
        PYTHONPATH=str(site),
        **examples.environment,
    )
    assert done.returncode == 0, done.stderr
    run = examples.folder / "runs" / "norms"
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    norms = [(r["step"], r["gradient_norm"]) for r in records if r.get("split") == "train"]
    lines = (run / "gradient_norm.txt").read_text().splitlines()
    assert norms and lines == [f"{step} {norm}" for step, norm in norms]


@pytest.mark.long
def test_generation_is_the_same_on_both_backends(examples: Examples) -> None:
    (command,) = (command for command in COMMANDS if "generate gpt2-onnx" in command)
    assert examples.run(command) == examples.run(command.replace("gpt2-onnx", "gpt2"))


def test_another_output_is_noticed() -> None:
    shown = "[79 tensors, 1.4e-06, 0.766, ...]"
    assert_same_output(shown, "[79 tensors, 9.9e-07, 0.767, 3]")
    for other in ("[78 tensors, 9.9e-07, 0.767, 3]", "[79 tensors, 9.9e-07, 0.866, 3]"):
        with pytest.raises(AssertionError):
            assert_same_output(shown, other)
