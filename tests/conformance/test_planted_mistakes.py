"""Mistakes that are planted in a third party's plugin; ``zoo plugins check --full`` names them."""

import importlib
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import transformers
from msgspec.structs import replace
from safetensors.torch import load_file, save_file

from tests.plugins.laying import find_again
from tests.training.runs import DATA
from tests.warm import zoo
from zoo.checkpoint.digests import update_manifest
from zoo.conformance import kit
from zoo.io.digests.files import hash_file

PLUGIN = Path(__file__).parent / "planted" / "zoo_planted"
ENTRY_POINTS = """[zoo.api1]
planted = zoo_planted
[zoo.api1.model_types]
xlm = zoo_planted
flaubert = zoo_planted
"""
# The built-in family has the same model types.
ONLY: dict[str, Any] = {"ZOO_PLUGINS": "planted"}
BROKEN = "plugin planted (from zoo-planted 1.0) is broken"


@dataclass(frozen=True)
class Mistake:
    """A mistake in a file of the plugin.

    Attributes:
        file: name of the file.
        old: a part of it.
        new: what is in its place.
        check: the check that names the mistake.
        names: what its message says.
    """

    file: str
    old: str
    new: str
    check: str
    names: Sequence[str]


def in_model(statement: str) -> tuple[str, str, str]:
    """Return a change of a model after it was built."""
    build = "        return model\n"
    return "model.py", build, f"        {statement}\n{build}"


BLOCKS = "make_blocks(config, block, attention=self.attention)"
ATTENTION = "make_self_attention(self.config)"
OUTPUTS, KEYS = "reference_outputs", "reference_keys"
NO_MASK = (
    "encode = model.encode\n"
    "        model.encode = lambda ids, mask=None, types=None, **o: encode(ids, None, types, **o)"
)
DROPOUT = (
    "model.embeddings.register_forward_hook("
    "lambda module, args, output: nn.functional.dropout(output, 0.1, True))"
)
SHIFT = (
    "model.embeddings.default_positions = lambda ids: model.embeddings.positions("
    "torch.arange(1, ids.shape[1] + 1))"
)
SECOND = "model.pooler.forward = lambda hidden: hidden[:, hidden.shape[1] // 2]"
MISTAKES: dict[str, Mistake] = {
    "epsilon": Mistake(
        "model.py",
        BLOCKS,
        BLOCKS.replace("block,", "block, layer_norm_eps=1e-5,"),
        OUTPUTS,
        ["layers.0.attention_norm", "its epsilon is 1e-05, and 1e-12 in the reference"],
    ),
    "epsilon that is the default": Mistake(
        "model.py",
        BLOCKS,
        BLOCKS.replace("block,", "block, layer_norm_eps=1e-12,"),
        OUTPUTS,
        [
            "and layer_norm_eps 0.1: ",
            "layers.0.attention_norm",
            "its epsilon is 1e-12, and 0.1 in the reference",
        ],
    ),
    "query and key": Mistake(
        "weights.py",
        'for part in "qkv"',
        'for part in "kqv"',
        OUTPUTS,
        ["query and key are exchanged"],
    ),
    "no scale": Mistake(
        "model.py",
        ATTENTION,
        ATTENTION.replace("config)", "config, scale=1.0)"),
        OUTPUTS,
        ["layers.0.attention.out", "scale of the attention scores differs", "sqrt(head size)"],
    ),
    "scale of the whole width": Mistake(
        "model.py",
        ATTENTION,
        ATTENTION.replace("config)", "config, scale=self.width**-0.5)"),
        OUTPUTS,
        ["layers.0.attention.out", "scale of the attention scores differs", "1 / sqrt(heads)"],
    ),
    "positions": Mistake(
        *in_model(SHIFT), OUTPUTS, ["embeddings.positions", "positions count from 1"]
    ),
    "activation": Mistake(
        "model.py",
        BLOCKS,
        BLOCKS.replace("block,", "block, act='gelu_new',"),
        OUTPUTS,
        ["layers.0.ffn.down", "the activation is gelu_new"],
    ),
    "activation that is the default": Mistake(
        "model.py",
        BLOCKS,
        BLOCKS.replace("block,", "block, act='gelu',"),
        OUTPUTS,
        ["and activation 'relu': ", "it computes with gelu_activation True"],
    ),
    "pooled token": Mistake(
        *in_model(f"if head == 'sequence-classification': {SECOND}"),
        OUTPUTS,
        ["logits reads token ", "and token 0 in the reference: is the right token pooled?"],
    ),
    "mask": Mistake(*in_model(NO_MASK), OUTPUTS, ["reads padding: is the attention mask used?"]),
    "order of norms": Mistake(
        "model.py",
        'getattr(config, "pre_norm", False)',
        "True",
        OUTPUTS,
        ["are the norms in the same order?"],
    ),
    "dropout in evaluation": Mistake(
        *in_model(DROPOUT), "dropout", ["changes from run to run: is dropout applied in evalu"]
    ),
    "default of the padding id": Mistake(
        "config.py",
        "pad_token_id: int = 2",
        "pad_token_id: int = 0",
        "reference_defaults",
        ["pad_token_id is 0 by default, and 2 in the reference"],
    ),
    "padding id that is not read": Mistake(
        "config.py",
        '**same_names("pad_token_id"),',
        "",
        KEYS,
        ["pad_token_id 0 in config.json is accepted, and read as 2"],
    ),
    "leak": Mistake(
        "objective.py",
        '        arrays["input_ids"][positions] = self.vocabulary.special_token_id("mask")\n',
        "",
        "label_leaks",
        ["first-tokens: ", "predictions of masked-lm depend on their own labels"],
    ),
    "loss term": Mistake(
        "objective.py",
        "return {MASKED_LM: 1.0}",
        "return {self.name: 1.0}",
        "objectives",
        ["first-tokens has loss_weights for first-tokens, and its loss returns masked-lm"],
    ),
    "a key that is ignored": Mistake(
        "config.py",
        '"causal": (False,),',
        '"causal": (False, True),',
        KEYS,
        ["with causal True in config.json, which is accepted, "],
    ),
}
LOSS_TERM = MISTAKES["loss term"]
FORGOTTEN_TIES = [
    ("model.py", "tied=config.tie_embeddings", "tied=False"),
    ("weights.py", "if config.tie_embeddings:", "if False:"),
]


def plant(folder: Path, changes: Sequence[tuple[str, str, str]]) -> Path:
    """Write the distribution of the plugin with changes; return its directory."""
    shutil.copytree(PLUGIN, folder / "zoo_planted", ignore=shutil.ignore_patterns("__pycache__"))
    for file, old, new in changes:
        path = folder / "zoo_planted" / file
        text = path.read_text("utf-8")
        assert text.count(old) == 1, f"{old} in {file}"
        path.write_text(text.replace(old, new), encoding="utf-8")
    info = folder / "zoo_planted-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zoo-planted\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that imports the first family of the plugin, with mistakes."""

    def family(*changes: tuple[str, str, str]) -> Any:
        monkeypatch.syspath_prepend(plant(tmp_path / "site", changes))
        find_again()
        (first, _) = importlib.import_module("zoo_planted").zoo_families()
        return first

    yield family
    for name in [name for name in sys.modules if name.partition(".")[0] == "zoo_planted"]:
        del sys.modules[name]
    monkeypatch.undo()
    find_again()


def findings(family: Any, monkeypatch: pytest.MonkeyPatch, *names: str) -> Iterator[str]:
    """Yield the problems that some of the checks of ``--full`` find."""
    checks = {name: kit.CHECKS[name] for name in (*names, "golden_file")}
    monkeypatch.setattr(kit, "CHECKS", checks)
    for finding in kit.check_family(family, full=True):
        if not finding.skipped:
            yield finding.text


# The explanations of the first three are tested in test_encoder_decoder_faults.py, and leaks in
# test_objective_checks.py. The others have a cause that another mistake here has as well.
REPEATED = (
    "query and key",
    "positions",
    "order of norms",
    "leak",
    "activation that is the default",
    "scale of the whole width",
)


@pytest.mark.by_default(
    "mask", "epsilon", "a key that is ignored", "padding id that is not read", "loss term"
)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if name in REPEATED else ()) for name in MISTAKES],
)
def test_a_mistake_is_named(name: str, load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake = MISTAKES[name]
    family = load((mistake.file, mistake.old, mistake.new))
    others = []
    for text in findings(family, monkeypatch, mistake.check):  # until it is named
        if all(part in text for part in mistake.names):
            return
        others.append(text)
    pytest.fail(f"only {others}")


@pytest.mark.parametrize("check", ["ties", "reference_ties"])
def test_forgotten_ties_are_named(check: str, load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    family = load(*FORGOTTEN_TIES)
    (problem,) = findings(family, monkeypatch, check)
    assert "head.decoder.weight" in problem and "declare a `TiedAlias`" in problem


# The checks of every family of the project show that they pass a sound one.
@pytest.mark.long
def test_a_sound_plugin_has_no_problems(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    trains = [name for name, check in kit.CHECKS.items() if check.trains]
    names = kit.CHECKS.keys() - {*trains, "dropout_rates", "golden_file"}
    assert list(findings(load(), monkeypatch, *names, "label_leaks", "objectives")) == []


def test_a_reference_that_fails_is_not_run(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    load()
    flaubert = importlib.import_module("zoo_planted").Flaubert()
    heads = {"masked-lm": flaubert.heads()["masked-lm"]}
    monkeypatch.setattr(type(flaubert), "heads", lambda self: heads)
    checks = {name: kit.CHECKS[name] for name in (OUTPUTS, KEYS, "golden_file")}
    monkeypatch.setattr(kit, "CHECKS", checks)
    results = list(kit.check_family(flaubert, full=True))
    assert [finding.text for finding in results if not finding.skipped] == []
    failing = [finding.text for finding in results if "pre_norm True: " in finding.text]
    assert failing and "FlaubertWithLMHeadModel of transformers fails with TypeError" in failing[0]


TWO_TABLES = "tie_word_embeddings is true, and the rules fill embeddings.tokens.weight and"
FEW = ("--max-steps", 1, "--set=eval_sequences=1", "--set=vocab_size=300", "--device", "cpu", "-o")


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        # The conversions below refuse it with the same line.
        pytest.param(FORGOTTEN_TIES, (), TWO_TABLES, marks=pytest.mark.long),
        (
            [(LOSS_TERM.file, LOSS_TERM.old, LOSS_TERM.new)],
            ("--objective", "first-tokens"),
            "has loss_weights for first-tokens, and its loss returns masked-lm",
        ),
    ],
)
def test_pretraining_says_that_the_plugin_is_broken(
    changes: Sequence[tuple[str, str, str]],
    options: Sequence[str],
    message: str,
    tmp_path: Path,
) -> None:
    site = plant(tmp_path / "site", changes)
    run = tmp_path / "run"
    done = zoo("pretrain", "planted", *DATA, *options, *FEW, run, PYTHONPATH=str(site), **ONLY)
    assert done.returncode == 5
    assert message in done.stderr and BROKEN in done.stderr


def save_tiny(prefix: str, folder: Path, **keys: Any) -> None:
    """Save a model of transformers with a tokenizer that the plugin reads."""
    config = getattr(transformers, f"{prefix}Config")(
        emb_dim=32, n_layers=2, n_heads=2, vocab_size=12, max_position_embeddings=40, **keys
    )
    getattr(transformers, f"{prefix}WithLMHeadModel")(config).save_pretrained(folder)
    special = ["<s>", "</s>", "<pad>", "<unk>", "<special0>", "<special1>"]
    (folder / "vocab.txt").write_text("\n".join([*special, *"abcdef"]), encoding="utf-8")


@pytest.mark.by_default("False")
@pytest.mark.parametrize("pre_norm", [False, True])
def test_verify_of_a_model_with_which_the_reference_fails(pre_norm: bool, tmp_path: Path) -> None:
    save_tiny("Flaubert", tmp_path / "hub", pre_norm=pre_norm)
    site = str(plant(tmp_path / "site", ()))
    done = zoo("convert", tmp_path / "hub", "-o", tmp_path / "ours", PYTHONPATH=site, **ONLY)
    assert done.returncode == 0, done.stderr
    done = zoo("verify", tmp_path / "ours", "--json", PYTHONPATH=site, **ONLY)
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == 0, checks
    assert checks["transformers"]["outcome"] == ("not run" if pre_norm else "ok")
    if pre_norm:
        assert "of transformers fails with TypeError" in checks["transformers"]["detail"]


@pytest.fixture(scope="module")
def two_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a version of the plugin in which the ties were forgotten."""
    folder = tmp_path_factory.mktemp("two_tables")
    site = str(plant(folder / "site", ()))
    save_tiny("XLM", folder / "hub", tie_word_embeddings=False)
    model = folder / "model"
    done = zoo("convert", folder / "hub", "-o", model, PYTHONPATH=site, **ONLY)
    assert done.returncode == 0, done.stderr
    config = json.loads((model / "config.json").read_text("utf-8"))
    config["config"]["tie_embeddings"] = True
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")
    digest = hash_file(model / "config.json")
    update_manifest(
        model, lambda manifest: replace(manifest, files={**manifest.files, "config.json": digest})
    )
    return model


@pytest.mark.long
def test_verify_refuses_two_tables_that_are_said_to_be_one(
    two_tables: Path, tmp_path: Path
) -> None:
    site = str(plant(tmp_path / "site", FORGOTTEN_TIES))
    done = zoo("verify", two_tables, PYTHONPATH=site, **ONLY)
    assert done.returncode == 3
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("ties ")]
    assert "failed" in line and TWO_TABLES in line


def test_a_conversion_to_the_hub_refuses_forgotten_ties(two_tables: Path, tmp_path: Path) -> None:
    site = str(plant(tmp_path / "site", FORGOTTEN_TIES))
    written = tmp_path / "written"
    done = zoo("convert", two_tables, "--to", "hub", "-o", written, PYTHONPATH=site, **ONLY)
    assert done.returncode == 5
    assert TWO_TABLES in done.stderr and BROKEN in done.stderr
    assert not written.exists()


@pytest.mark.parametrize("stored", ["once", "twice"])
def test_a_conversion_of_tied_embeddings_refuses_forgotten_ties(
    stored: str, tmp_path: Path
) -> None:
    """transformers writes a tied matrix once; its older versions wrote both names."""
    save_tiny("XLM", tmp_path / "hub")
    weights = tmp_path / "hub" / "model.safetensors"
    tensors = load_file(weights)
    assert "pred_layer.proj.weight" not in tensors
    if stored == "twice":
        tensors["pred_layer.proj.weight"] = tensors["transformer.embeddings.weight"].clone()
        save_file(tensors, weights)
    site = str(plant(tmp_path / "site", FORGOTTEN_TIES))
    written = tmp_path / "written"
    done = zoo("convert", tmp_path / "hub", "-o", written, PYTHONPATH=site, **ONLY)
    if stored == "once":
        assert done.returncode == 3
        assert "missing from the file (pred_layer.proj.weight)" in done.stderr
    else:
        assert done.returncode == 5 and TWO_TABLES in done.stderr
    assert not written.exists()


@pytest.mark.long
@pytest.mark.parametrize("name", [None, *MISTAKES, "ties"])
def test_the_command_names_mistakes(name: str | None, tmp_path: Path) -> None:
    """The whole command, with all checks of the plugin."""
    changes: Sequence[tuple[str, str, str]] = []
    parts: Sequence[str] = []
    if name == "ties":
        changes = FORGOTTEN_TIES
        parts = ["head.decoder.weight", "declare a `TiedAlias`"]
    elif name is not None:
        mistake = MISTAKES[name]
        changes = [(mistake.file, mistake.old, mistake.new)]
        parts = mistake.names
    site = plant(tmp_path / "site", changes)
    done = zoo("plugins", "check", "planted", "--full", "--json", PYTHONPATH=str(site), **ONLY)
    (xlm,) = json.loads(done.stdout)["plugins"]
    problems = xlm.get("problems", [])
    if name is None:
        assert (done.returncode, problems) == (0, [])
    else:
        assert done.returncode == 5
        assert [text for text in problems if all(part in text for part in parts)], problems
