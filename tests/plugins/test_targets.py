"""An export target with options of its own, in a plugin of one file and an entry point."""

import json
from pathlib import Path

import pytest

from tests import warm
from tests.inference.making import make_checkpoint

# Weights in a file that may be cut into parts, run by torch.
SOURCE = """
import io
from pathlib import Path
from typing import Annotated, Literal

import torch
from msgspec import Meta

from zoo.exporting.targets.base import ExportTarget, Precision, TargetOptions
from zoo.exporting.targets.session import TargetSession
from zoo.inference.load_model import load_model


class PartsOptions(TargetOptions, frozen=True, kw_only=True):
    parts: Annotated[int, Meta(ge=1, le=8, description="Number of files.")] = 2
    ending: Annotated[Literal["bin", "raw"], Meta(description="Ending of the files.")] = "bin"
    note: Annotated[Path | None, Meta(description="File to copy.")] = None
    dim: Annotated[str, Meta(max_length=3, description="Not that of graphs.")] = "all"


class Parts(ExportTarget):
    name = "weight-parts"
    title = "parts"
    precisions = {"float32": Precision(1e-6, "the same kernels")}
    options_type = PartsOptions

    def refusal(self, family, config, head, pooling=None):
        return None

    def write(self, checkpoint, directory, precision):
        stream = io.BytesIO()
        torch.save(load_model(checkpoint, torch.float32).state_dict(), stream)
        content = stream.getvalue()
        size = -(-len(content) // self.options.parts)
        (directory / self.folder).mkdir()
        for part in range(self.options.parts):
            path = directory / self.folder / f"{part}.{self.options.ending}"
            path.write_bytes(content[part * size : (part + 1) * size])
        if self.options.note is not None:
            (directory / self.folder / "note").write_bytes(self.options.note.read_bytes())

    def open(self, checkpoint, directory, precision, threads=None):
        paths = sorted(path for path in (directory / self.folder).iterdir() if path.suffix)
        content = b"".join(path.read_bytes() for path in paths)
        return PartsSession(checkpoint, content)


class PartsSession(TargetSession):
    def __init__(self, checkpoint, content):
        super().__init__(checkpoint, "weight-parts", "float32")
        self.model = checkpoint.family.model(checkpoint.config, checkpoint.head_name).eval()
        self.model.load_state_dict(torch.load(io.BytesIO(content), weights_only=True))

    def compute(self, arrays, names):
        with torch.inference_mode():
            outputs = self.model(**{name: torch.from_numpy(a) for name, a in arrays.items()})
        return {name: outputs[name].numpy() for name in names}
"""


def lay_out(folder: Path, source: str) -> None:
    """Write the distribution ``zoo-parts``, whose one file has a target."""
    info = folder / "zoo_parts-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zoo-parts\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[zoo.api1]\nparts = zoo_parts\n\n[zoo.api1.targets]\nweight-parts = zoo_parts:Parts\n"
    )
    (folder / "zoo_parts.py").write_text(source)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("targets")
    lay_out(folder, SOURCE)
    make_checkpoint(folder / "small", num_layers=1)
    return folder


def zoo(site: Path, *arguments: object, **environment: str) -> tuple[int, str, str]:
    """Return exit code, output and messages."""
    home = {"PYTHONPATH": str(site), "ZOO_HOME": str(site / "home")}
    done = warm.zoo(*arguments, cwd=site, **home, **environment)
    return done.returncode, done.stdout, done.stderr


def export(site: Path, *options: object) -> tuple[int, str, str]:
    return zoo(site, "export", "small", "--to", "weight-parts", *options)


def test_options_reach_the_files(site: Path, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("a note")
    options = ("--parts", 3, "--ending", "raw", "--note", tmp_path / "note.txt", "--json")
    code, text, messages = export(site, *options, "-o", "three")
    assert code == 0, messages
    report = json.loads(text)
    assert report["validated"] and report["max_rel"] < 1e-6
    files = [f"weight-parts/{name}" for name in ("0.raw", "1.raw", "2.raw", "note")]
    assert report["files"] == files
    assert (site / "three/weight-parts/note").read_text() == "a note"
    # Without options, as for a backend, the defaults hold.
    code, _, messages = zoo(
        site, "bench", "small", "--backend", "weight-parts", "--iterations", 1, "--no-startup"
    )
    assert code == 0, messages
    names = [path.name for path in (site / "home/exports/weight-parts").glob("*/weight-parts/*")]
    assert sorted(names) == ["0.bin", "1.bin"]


def test_options_are_in_the_help_of_the_target(site: Path) -> None:
    code, text, _ = zoo(site, "export", "--to", "weight-parts", "--help")
    words = " ".join(text.split())
    assert code == 0
    assert "--parts N Number of files. [default: 2] [1<=x<=8]" in words
    assert "--ending [bin|raw] Ending of the files. [default: bin]" in words
    assert "--note FILE File to copy." in words
    # An option of that name of a built-in target gives way.
    assert "Not that of graphs. [default: all]" in words and "principal components" not in words
    own_options, _, common_options = text.partition("\nOptions:\n")
    assert "Options of --to weight-parts:" in own_options and "--parts" in own_options
    assert "--parts" not in common_options and "--dtype" in common_options
    common_help = zoo(site, "export", "--help")[1]
    assert "Number of files" not in common_help
    assert "With --help, shows its options." in " ".join(common_help.split())


def test_options_are_completed(site: Path) -> None:
    words = ["zoo", "export", "small", "--to", "weight-parts"]
    for typed, completions in {"--par": ["--parts"], "--ending ": ["bin", "raw"]}.items():
        line = [*words, *typed.split(" ")]
        environment = {
            "_ZOO_COMPLETE": "bash_complete",
            "COMP_WORDS": "\n".join(line),
            "COMP_CWORD": str(len(line) - 1),
        }
        code, text, _ = zoo(site, **environment)
        assert (code, text.splitlines()) == (0, [f"plain,{word}" for word in completions])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--parts", 9), "Invalid value for '--parts': 9 is not in the range 1<=x<=8"),
        (("--parts", "two"), "Invalid value for '--parts': 'two' is not a valid integer"),
        (("--ending", "zip"), "Invalid value for '--ending': 'zip' is not one of 'bin', 'raw'"),
        (("--dim", "four"), "--dim: Expected `str` of length <= 3; see `zoo export --to"),
        (("--part", 2), "no option is called --part; did you mean --parts"),
        (("--prats", 2), "no option is called --prats; did you mean --parts"),
        (
            ("--pooled",),
            "--pooled is not an option of --to weight-parts; leave it out; it is an option of --to "
            "onnx",
        ),
        (("--int8",), "--int8 is not an option of --to weight-parts; --dtype takes float32"),
    ],
)
def test_wrong_options_are_one_line(
    site: Path, options: tuple[object, ...], message: str, tmp_path: Path
) -> None:
    code, text, messages = export(site, *options, "-o", tmp_path / "out")
    assert (code, text) == (2, "")
    assert message in messages
    assert len([line for line in messages.splitlines() if "error" in line.lower()]) == 1
    assert not (tmp_path / "out").exists()


def test_an_option_without_its_target_names_the_target(site: Path) -> None:
    for target in ((), ("--to", "static")):
        code, text, messages = zoo(site, "export", "small", *target, "--parts", 2)
        assert (code, text) == (2, "")
        assert messages == "error: --parts is an option of --to weight-parts; add it\n"


@pytest.mark.parametrize(
    ("replaced", "text", "message"),
    [
        ("] = 2", "]", "export target weight-parts: its option parts has no default"),
        ("    parts:", "    force:", "--force is an option of all targets"),
        ("Path | None", "list[int] | None", "--note is not a text, number, choice, file or flag"),
        ("= PartsOptions", "= dict", "its options_type is not a subclass of TargetOptions"),
    ],
)
def test_wrong_declarations_are_named(
    replaced: str, text: str, message: str, tmp_path: Path
) -> None:
    lay_out(tmp_path, SOURCE.replace(replaced, text, 1))
    make_checkpoint(tmp_path / "small", num_layers=1)
    code, _, messages = export(tmp_path)
    (line,) = messages.splitlines()
    assert code == 5 and message in line and "zoo-parts 1.0" in line
