"""Rules about names, imports and tests, checked on the source."""

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import zoo.io.limits
from zoo.plugins.entry_points import DISTRIBUTION, installed_entry_points

ROOT = Path(__file__).parents[1]
PLUGINS = sorted(path for path in (ROOT / "plugins").iterdir() if path.name.startswith("zoo_"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
CORE = sorted([*(ROOT / "zoo").rglob("*.py"), *(ROOT / "converters").rglob("*.py")])


@cache
def text_of(path: Path) -> str:
    return path.read_text("utf-8")


def own_families() -> list[str]:
    (own,) = [points for points in installed_entry_points() if points.distribution == DISTRIBUTION]
    return [name for name in own.of() if name not in ("converters", "loggers")]


def imported(path: Path) -> set[str]:
    tree = ast.parse(text_of(path))
    names = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    froms = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name.split(".")[0] for name in names | froms}


def test_the_core_names_no_family() -> None:
    planned = ["bert", "roberta", "albert", "distilbert", "electra", "deberta", "gpt", "t5", "elmo"]
    words = "|".join({*planned, *own_families()})
    named = re.compile(rf"(?i)(?<![a-z])(?:{words})(?![a-z])")
    # file names, keys and values of other libraries may contain family names
    models = r'WORDPIECE = "bert"|BYTE_LEVEL = "gpt2"|UNIGRAM = "t5"'  # of tokenizers, in GGUF
    tokenizers = rf'{models}|"gpt-2", "roberta-bpe", "modern-bert", "phi-2", "jina-es", "jina-de"'
    layers = r'lstm_layers|"LSTM": "a recurrent network'  # A kind of layer has a family's name.
    names = rf"sentence_bert_config\.json|warmup_bert|llama\.cpp|llama3|orjson\.OPT_|{tokenizers}"
    foreign = re.compile(f"{names}|{layers}")
    found = {
        str(path): sorted(set(named.findall(foreign.sub("", text_of(path)))))
        for path in CORE
        if path.parent.name != "gguf"  # The room of llama.cpp, a runtime with a family's name.
    }
    assert len(found) > 500 and {path: names for path, names in found.items() if names} == {}


# file -> limits that it compares itself: where nothing is refused, where the ratio of two sizes is,
# in loops over each token or number, and where the numbers are options and inputs of the user
COMPARED_LIMITS = {
    "converters/zoo_converters/gguf.py": ("GGUF_HEADER_BYTES",),
    "zoo/checkpoint/generation_config.py": ("BEAMS", "BEAM_TOKENS", "GENERATION_IDS", "NEW_TOKENS"),
    "zoo/data/readers/delimited.py": ("ROW_BYTES",),
    "zoo/data/readers/documents.py": ("DOCUMENT_CHARACTERS",),
    "zoo/data/readers/text_io.py": ("EXPANSION", "LINE_BYTES", "ZSTD_WINDOW"),
    "zoo/data/streams/tar.py": ("TAR_HEADER_BYTES",),
    "zoo/data/tokenizer.py": ("NEW_VOCABULARY",),
    "zoo/exporting/quantization/quantize.py": ("ONNX_FOLDED_BYTES",),
    "zoo/hub/client.py": ("HUB_MESSAGE_BYTES",),
    "zoo/inference/__init__.py": ("THREADS",),
    "zoo/inference/processing/inputs.py": ("INPUT_LINE_BYTES",),
    "zoo/inference/processing/records.py": ("TEXT_CHARACTERS",),
    "zoo/inference/threads.py": ("THREADS",),
    "zoo/io/json.py": ("INTEGER_DIGITS", "JSON_DEPTH"),
    "zoo/io/tensors/safetensors.py": ("NAME_LENGTH",),
    "zoo/tasks/likelihood/perplexity.py": ("TEXT_CHARACTERS",),
    "zoo/tasks/prompt/template.py": ("CONFIG_LABELS",),
    "zoo/tasks/reranker/train.py": ("CONFIG_LABELS",),
    "zoo/tasks/seq2seq/train.py": ("ROW_TOKENS",),
    "zoo/training/config/sources.py": ("RUN_NUMBER",),
    "zoo/tokenizers/sentencepiece/proto.py": ("PIECE_LENGTH",),
    "zoo/tokenizers/untrusted/definition.py": ("TOKEN_LENGTH",),
    "zoo/tokenizers/untrusted/patterns.py": ("PATTERN_REPEAT", "PATTERN_WAYS"),
}


def test_sizes_in_files_are_compared_in_one_place() -> None:
    """A reader that compares a limit itself forgets types, negative numbers or the file's size."""
    limits = {name for name in vars(zoo.io.limits) if name.startswith("MAX_")}
    compared = dict[str, tuple[str, ...]]()
    for path in [*CORE, *(ROOT / "plugins").rglob("*.py")]:
        if "MAX_" not in text_of(path):  # parsing takes longer
            continue
        names = set[str]()
        for node in ast.walk(ast.parse(text_of(path))):
            for part in ast.walk(node) if isinstance(node, ast.Compare) else ():
                name = getattr(part, "id", getattr(part, "attr", None))
                if name in limits:
                    names.add(name.removeprefix("MAX_"))
        if names:
            compared[path.relative_to(ROOT).as_posix()] = tuple(sorted(names))
    assert compared == COMPARED_LIMITS, "call zoo.io.sizes.check_size"


def test_the_contracts_of_imports_are_for_all_plugins() -> None:
    """``make lint`` checks the contracts."""
    plugins = {path.name for path in PLUGINS}
    assert plugins > {"zoo_bert", "zoo_t5"}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    assert set(settings["root_packages"]) == {"zoo", "zoo_converters", *plugins}
    layers, circles, families, siblings, converters, core = settings["contracts"]
    assert circles["ancestors"] == ["zoo", "zoo.**"]
    assert set(families["source_modules"]) == plugins and set(siblings["modules"]) == plugins
    assert set(core["forbidden_modules"]) == {"zoo_converters", *plugins}
    packages = {f"zoo.{name}" for entry in layers["layers"] for name in re.findall(r"\w+", entry)}
    assert {*families["forbidden_modules"], *converters["forbidden_modules"]} < {
        "zoo_converters",
        *packages,
    }


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda p: p.name)
def test_every_family_has_the_same_files(plugin: Path) -> None:
    names = {path.name for path in plugin.glob("*.py")}
    assert names >= {"__init__.py", "config.py", "model.py", "weights.py"}, plugin


def test_the_test_oracle_is_not_imported_at_run_time() -> None:
    paths = [*CORE, *(p for d in PLUGINS for p in d.rglob("*.py"))]
    naming = [path for path in paths if "transformers" in text_of(path)]
    assert len(naming) > 20
    assert [str(path) for path in naming if "transformers" in imported(path)] == []


def called(node: ast.expr) -> str:
    """Return the name of the function that an expression, perhaps negated, calls."""
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def nameless_assertions(nodes: list[ast.AST]) -> list[str]:
    """Return the assertions of a file about ``all(...)`` or ``any(...)``."""
    tests = [node.test for node in nodes if isinstance(node, ast.Assert)]
    terms = [term for t in tests for term in (t.values if isinstance(t, ast.BoolOp) else [t])]
    return [ast.unparse(t) for t in terms if called(t) in ("all", "any")]


def test_assertions_about_collections_name_the_element() -> None:
    """``assert [x for x in xs if not good(x)] == []`` shows x, ``assert all(...)`` does not."""
    assert len(TESTS) > 400
    assert parsed_tests().nameless == {}


Function = tuple[str, str]  # a module of the tests, and the name of a function or method
Functions = dict[Function, tuple[bool, set[Function]]]
OUTSIDE = {"raises", "warns", "fail"}  # of pytest; those of numpy and torch begin with "assert"


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def imported_names(nodes: list[ast.AST]) -> dict[str, Function]:
    """Return name -> module and name there, of what a module imports by name."""
    return {
        alias.asname or alias.name: (statement.module or "", alias.name)
        for statement in nodes
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }


def calls(module: str, imports: dict[str, Function], parts: list[ast.AST]) -> Iterator[Function]:
    """Yield the functions that code calls; the module is empty for those of objects."""
    for call in parts:
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            yield imports.get(call.func.id, (module, call.func.id))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            yield "", call.func.attr


@dataclass
class ParsedTests:
    """What the rules read in the tests, which are parsed once.

    Attributes:
        functions: of each function whether it asserts itself, and what it calls.
        nameless: file -> its assertions that do not name an element.
    """

    functions: Functions = field(default_factory=dict)
    nameless: dict[str, list[str]] = field(default_factory=dict)


@cache
def parsed_tests() -> ParsedTests:
    result = ParsedTests()
    for path in TESTS:
        module = module_name(path)
        nodes = list(ast.walk(ast.parse(text_of(path))))
        if nameless := nameless_assertions(nodes):
            result.nameless[str(path)] = nameless
        imports = imported_names(nodes)
        for node in nodes:
            if isinstance(node, ast.FunctionDef):
                parts = list(ast.walk(node))
                asserts = any(isinstance(part, ast.Assert) for part in parts)
                result.functions[module, node.name] = (asserts, set(calls(module, imports, parts)))
    return result


def functions() -> Functions:
    return parsed_tests().functions


def unambiguous(helpers: set[Function]) -> set[str]:
    """Return the names that belong to these functions alone: a method is called by its name."""
    return {name for _, name in helpers} - {name for _, name in functions().keys() - helpers}


@cache
def asserting() -> set[Function]:
    """Return the functions that assert, themselves or through one that they call."""
    result = {key for key, (asserts, _) in functions().items() if asserts}
    while True:
        helpers = {*result, *(("", name) for name in unambiguous(result))}
        more = {
            key
            for key, (_, called) in functions().items()
            if called & helpers or any(n in OUTSIDE or "assert" in n for _, n in called)
        }
        if more <= result:
            return result
        result |= more


def test_every_test_asserts() -> None:
    tests = {key for key in functions() if key[1].startswith("test_")}
    assert len(tests) > 1000
    assert sorted(tests - asserting()) == []


# a folder of tests -> the source that it mirrors
MIRRORED = {ROOT / "tests" / path.name: path for path in (ROOT / "zoo").iterdir() if path.is_dir()}
MIRRORED |= {ROOT / "tests" / "converters": ROOT / "converters" / "zoo_converters"}
MIRRORED |= {ROOT / "tests" / "families" / p.name.removeprefix("zoo_"): p for p in PLUGINS}


def folders_of_modules(source: Path) -> dict[str, set[Path]]:
    """Return name -> folders, relative to ``source``, of the modules and packages in it."""
    folders: dict[str, set[Path]] = {}
    for path in source.rglob("*.py"):
        module = path.parent if path.name == "__init__.py" else path
        if module != source:
            folders.setdefault(module.stem, set()).add(module.parent.relative_to(source))
    return folders


def misplaced(tests: Path) -> Iterator[Path]:
    """Yield the test files that are named after modules, and lie in the folder of none of them."""
    folders = folders_of_modules(MIRRORED[tests])
    for path in sorted(tests.rglob("test_*.py")):
        room = next(parent for parent in path.parents if parent in MIRRORED)
        expected = folders.get(path.stem.removeprefix("test_"))
        if room == tests and expected and path.parent.relative_to(tests) not in expected:
            yield path


@pytest.mark.parametrize("tests", MIRRORED, ids=lambda path: str(path.relative_to(ROOT)))
def test_tests_lie_where_their_module_does(tests: Path) -> None:
    assert [str(path.relative_to(ROOT)) for path in misplaced(tests)] == []


def imported_modules(path: Path) -> set[str]:
    """Return the full names that a module imports from zoo, also in functions and for types."""
    nodes = [
        n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.ImportFrom)
    ]
    return {
        name
        for node in nodes
        for a in node.names
        for name in (node.module, f"{node.module}.{a.name}")
        if name
    }


@pytest.mark.parametrize(
    "room", ["api", "distillation", "evaluation", "finetuning", "inference", "tasks"]
)
def test_modules_of_a_room_import_in_one_direction(room: str) -> None:
    paths = sorted((ROOT / "zoo" / room).rglob("*.py"))
    names = {
        ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p
        for p in paths
    }
    left = {name: imported_modules(path) & names.keys() - {name} for name, path in names.items()}
    while free := [name for name, needed in left.items() if not needed & left.keys()]:
        left = {name: needed for name, needed in left.items() if name not in free}
    assert sorted(left) == []


def test_nan_is_not_close_to_nan() -> None:
    """tests/conftest.py changes the default, which would let two broken results pass."""
    with pytest.raises(AssertionError):
        np.testing.assert_allclose([np.nan], [np.nan])
