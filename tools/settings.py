"""Write docs/settings.md: all settings of training, fine-tuning, distillation and export.

``python -m tools.settings`` writes the page, and ``--check`` compares it. Types and defaults are
those of the declarations; meanings are the comments of fields, or the section Attributes of a
docstring.
"""

import ast
import dataclasses
import inspect
import re
import sys
import textwrap
import types
import typing
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click
import msgspec

from zoo.cli.models.export import command as export_command
from zoo.data.readers.documents import ReaderConfig
from zoo.distillation.losses import DISTILLATION_LOSSES
from zoo.errors import UsageError
from zoo.exporting.targets import BUILT_IN
from zoo.families.distillation import DistillationRecipe, Replacement, Targets
from zoo.families.recipe import LRSchedulerConfig, OptimizerConfig, SeqLenWarmup
from zoo.finetuning.embeddings.losses import EMBEDDING_LOSSES
from zoo.objectives import OBJECTIVES, objective_type
from zoo.objectives.options import Options
from zoo.plugins import all_families
from zoo.plugins.tasks import load_part, public_tasks
from zoo.training.config.distill import DistillationConfig, DistillTextConfig
from zoo.training.config.finetune import FineTuneConfig, TableConfig
from zoo.training.config.schema import (
    DataConfig,
    FSDPConfig,
    InitConfig,
    StreamConfig,
    TrainConfig,
)
from zoo.training.config.sources import CurriculumStage, SourceConfig

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
INTRODUCTION = """\
# Settings

All settings of training, fine-tuning, distillation and export. A YAML file sets them, and
`--set NAME=VALUE` one of them, with dots for nested ones; `RUN/config.yaml` has those of a run.

```console
$ zoo pretrain bert --set optimizer.learning_rate=5e-4 --set objective_args.mask_prob=0.3
```

A family's recipe or preset replaces many of these defaults. `python -m tools.settings` writes this
page from the declarations.
"""
Struct = type[msgspec.Struct]
KINDS = {str: "text", int: "integer", float: "number", bool: "true or false", type(None): "null"}


class Row(NamedTuple):
    """A setting: its name, type, default and meaning."""

    name: str
    kind: str
    default: str
    meaning: str


def meanings(struct: Struct) -> dict[str, str]:
    """Return what the fields of a struct mean, from docstrings and comments."""
    found: dict[str, str] = {}
    for cls in reversed(struct.__mro__):
        if issubclass(cls, msgspec.Struct) and cls is not msgspec.Struct:
            found |= _documented(cls) | _commented(cls)
    return found


def _documented(cls: type) -> dict[str, str]:
    """Return the entries of the section Attributes of a docstring."""
    text = inspect.cleandoc(cls.__doc__ or "").partition("\nAttributes:\n")[2]
    section = textwrap.dedent(re.split(r"\n(?=\S)", text)[0])
    entries = re.split(r"^(\w+): ", section, flags=re.MULTILINE)[1:]
    return {name: _line(text) for name, text in zip(entries[::2], entries[1::2], strict=True)}


def _commented(cls: type) -> dict[str, str]:
    """Return the comments of fields: next to them, or in the lines above."""
    lines = textwrap.dedent(inspect.getsource(cls)).splitlines()
    (tree,) = ast.parse("\n".join(lines)).body
    found = {}
    for node in getattr(tree, "body", ()):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        last = lines[(node.end_lineno or node.lineno) - 1][node.end_col_offset or 0 :]
        comments = [last.partition("# ")[2]]
        above = node.lineno - 2
        while lines[above].strip().startswith("# "):
            comments.insert(0, lines[above].strip()[2:])
            above -= 1
        if text := _line(" ".join(comments)):
            found[node.target.id] = text
    return found


def _line(text: str) -> str:
    text = " ".join(text.split()).replace("``", "`").replace("`None`", "`null`")
    return text.replace("|", "\\|").removesuffix(".")


def kind(hint: Any) -> str:
    """Return a type as people read it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        values = [argument for argument in arguments if argument is not msgspec.UnsetType]
        return " or ".join(kind(value) for value in values)
    if origin is tuple:
        inner = [argument for argument in arguments if argument is not ...]
        return f"list of {kind(inner[0])}" if ... in arguments else f"lists of {len(inner)}"
    if origin in (dict, Mapping) or (isinstance(hint, type) and issubclass(hint, msgspec.Struct)):
        return "table"
    return KINDS.get(hint, "any")


def default(field: msgspec.structs.FieldInfo) -> str:
    """Return the default of a field; empty for a table of settings."""
    if field.required:
        return "required"
    if field.default_factory is not msgspec.NODEFAULT or field.default is msgspec.UNSET:
        return ""
    value = msgspec.to_builtins(field.default)
    if isinstance(value, dict):
        return ""
    return f"`{msgspec.json.encode(value).decode()}`"


def rows(struct: Struct, prefix: str = "", without: Struct | None = None) -> Iterator[Row]:
    """Yield the settings of a struct, without those that are the same in another one."""
    hints = typing.get_type_hints(struct)
    known = {} if without is None else {f.name: f for f in msgspec.structs.fields(without)}
    # what has no comment means the same as in these
    meant = meanings(TrainConfig) | meanings(DistillationRecipe) | meanings(struct)
    for field in msgspec.structs.fields(struct):
        if field.name not in known or default(field) != default(known[field.name]):
            meaning = meant[field.name]
            yield Row(prefix + field.name, kind(hints[field.name]), default(field), meaning)


def tables() -> Iterator[tuple[str, list[Row]]]:
    """Yield headings and tables."""
    yield "## Pretraining", list(rows(TrainConfig))
    yield "### data", list(rows(DataConfig, "data."))
    yield "### data.sources", list(rows(SourceConfig, "data.sources.NAME."))
    yield "### data.curriculum", list(rows(CurriculumStage, "data.curriculum[]."))
    yield "### data.reader", list(rows(ReaderConfig, "data.reader."))
    yield "### data.stream", list(rows(StreamConfig, "data.stream."))
    yield "### init_from", list(rows(InitConfig, "init_from."))
    yield "### optimizer", list(rows(OptimizerConfig, "optimizer."))
    yield "### lr_scheduler", list(rows(LRSchedulerConfig, "lr_scheduler."))
    yield "### fsdp_config", list(rows(FSDPConfig, "fsdp_config."))
    yield "### seq_len_warmup", list(rows(SeqLenWarmup, "seq_len_warmup."))
    yield from option_tables("objective_args", objectives())
    yield "## Fine-tuning", list(rows(FineTuneConfig))
    yield "### data of fine-tuning", list(rows(TableConfig, "data."))
    yield from option_tables("task_args", tasks())
    yield "### task_args of losses of embeddings", list(embedding_loss_rows())
    yield "## Distillation", list(rows(DistillationConfig, "distillation."))
    yield "### distillation.terms", list(distillation_loss_rows())
    yield "### distillation.replacement", list(rows(Replacement, "distillation.replacement."))
    yield "### Distillation on text", list(rows(DistillTextConfig, without=TrainConfig))
    yield "### Targets that a teacher generates", list(rows(Targets, "targets."))
    yield "## Export", list(export_rows())


def option_tables(
    setting: str, named: Mapping[str, type[Options]]
) -> Iterator[tuple[str, list[Row]]]:
    """Yield the options of objectives or tasks; what one inherits from another is said once."""
    by_type = {options: names for names, options in named.items()}
    for options, names in by_type.items():
        base = next((cls for cls in options.__mro__[1:] if cls in by_type), None)
        also = "" if base is None else f"\n\nIn addition to the options of {by_type[base]}."
        yield f"### {setting} of {names}{also}", list(rows(options, f"{setting}.", base))


def embedding_loss_rows() -> Iterator[Row]:
    """Yield the settings of losses of embeddings, each with the losses that read it."""
    losses: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    hints: dict[str, Any] = {}
    for name in EMBEDDING_LOSSES.built_in:
        loss = EMBEDDING_LOSSES.find(name)
        comments = _commented(loss)
        hints |= typing.get_type_hints(loss)
        for field in dataclasses.fields(loss):
            value = msgspec.json.encode(field.default).decode()
            losses[field.name, value, comments[field.name]].append(f"`{name}`")
    for (setting, value, meaning), names in losses.items():
        text = f"{meaning}; of {', '.join(names)}"
        yield Row(f"task_args.{setting}", kind(hints[setting]), f"`{value}`", text)


def distillation_loss_rows() -> Iterator[Row]:
    """Yield what a term of a distillation has, each setting with the losses that read it."""
    prefix = "distillation.terms.NAME."
    summaries: list[str] = []
    readers: dict[Row, list[str]] = defaultdict(list)
    for name in DISTILLATION_LOSSES.names():
        loss = DISTILLATION_LOSSES.find(name)
        summaries.append(f"`{name}` ({loss.summary})")
        for row in rows(loss.settings_type, prefix):
            readers[row].append(f"`{name}`")
    yield Row(f"{prefix}kind", "text", "required", f"name of the loss: {', '.join(summaries)}")
    weight = "weight in the total loss; 0 to leave the term out"
    yield Row(f"{prefix}weight", "number", "`1.0`", weight)
    for row, names in readers.items():
        yield row._replace(meaning=f"{row.meaning}; of {', '.join(names)}")


def objectives() -> dict[str, type[Options]]:
    """Return the options of objectives, by the names of those that share them."""
    names: dict[type[Options], list[str]] = defaultdict(list)
    families = all_families().values()
    for name in dict.fromkeys([*OBJECTIVES, *(name for f in families for name in f.objectives)]):
        for family in families:
            shape = next(iter(family.sizes().values()))
            try:
                options = objective_type(family, shape, name).options_type
            except UsageError:  # this family cannot learn it
                continue
            names[options].append(name)
            break
    return _by_names(names)


def tasks() -> dict[str, type[Options]]:
    """Return the options of tasks, by the names of those that share them."""
    names: dict[type[Options], list[str]] = defaultdict(list)
    for spec in public_tasks("train"):
        names[load_part(spec, "train").options_type].append(spec.name)
    return _by_names(names)


def _by_names(names: Mapping[type[Options], list[str]]) -> dict[str, type[Options]]:
    return {
        ", ".join(shared): options for options, shared in names.items() if options.__struct_fields__
    }


def export_rows() -> Iterator[Row]:
    """Yield the options of `zoo export`."""
    for option in export_command.params:
        if isinstance(option, click.Option) and not option.hidden:
            names = ", ".join((*option.opts, *option.secondary_opts))
            text = (option.help or "").replace("{targets}", f"{', '.join(BUILT_IN)}, or a plugin's")
            yield Row(names, "", "", _line(text))


def page() -> str:
    """Return the text of the page."""
    parts = [INTRODUCTION]
    for heading, found in tables():
        parts.append(f"{heading}\n")
        if found[0].kind:
            lines = ["| setting | type | default | meaning |", "| --- | --- | --- | --- |"]
            lines += [f"| `{r.name}` | {r.kind} | {r.default} | {r.meaning} |" for r in found]
        else:
            lines = ["| option | meaning |", "| --- | --- |"]
            lines += [f"| `{row.name}` | {row.meaning} |" for row in found]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def main() -> None:
    """Write or check the page."""
    if "--check" in sys.argv[1:]:
        if PAGE.read_text("utf-8") != page():
            sys.exit(f"{PAGE} is out of date: run `python -m tools.settings`")
        return
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
