"""``zoo corpus clean``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli.options import (
    common_options,
    count_option,
    force_option,
    output_option,
    shared_option,
)
from zoo.cli.output import line, result, table
from zoo.cli.parameter_types import InputFile
from zoo.cli.training.options import (
    assigned_settings,
    document_separator_option,
    text_key_option,
)

if TYPE_CHECKING:
    from zoo.cleaning.executors import Executor
    from zoo.cleaning.records import CleaningRecord
    from zoo.cleaning.rules.base import CleaningRule

DEDUPLICATIONS = ("lines", "spans", "substrings", "documents")
EXECUTORS = ("local", "ray", "slurm")


@click.command(
    epilog="""\b
Examples:
  zoo corpus clean crawl/ -o clean --rule c4 --deduplicate lines
  zoo corpus clean 'crawl/*.jsonl.gz' -o prose --rule gopher-repetition \\
      --rule gopher-quality --rule c4 --set c4.terminal_punctuation=false \\
      --rule fineweb-quality --deduplicate documents
  zoo corpus clean crawl/ -o english --rule language \\
      --set language.model=lid.176.bin --set language.languages=[en]
  zoo corpus build clean/ -o web --tokenizer all-minilm-l6-v2

Each file is a task, so that many files of similar size keep all cores busy. A PATH
may be a URL, such as s3://bucket/crawl/, and - is standard input."""
)
@click.argument("paths", metavar="PATH...", type=InputFile(), nargs=-1)
@output_option("Directory to write.")
@click.option(
    "--rule",
    "rules",
    metavar="NAME",
    multiple=True,
    help="Rule to apply; may be repeated, in order. --list-rules lists them.",
)
@click.option(
    "--deduplicate",
    "deduplications",
    type=click.Choice(DEDUPLICATIONS),
    multiple=True,
    help="What to remove where it occurs again; may be repeated, in order.",
)
@click.option(
    "--language",
    metavar="CODE",
    default="en",
    show_default=True,
    help="Language whose words and sentences are counted.",
)
@document_separator_option
@text_key_option
@shared_option("assignments", "Set RULE.KEY, a setting of a rule.", multiple=True)
@click.option(
    "--executor",
    type=click.Choice(EXECUTORS),
    default="local",
    show_default=True,
    help="What runs the tasks.",
)
@click.option(
    "--executor-arg",
    "executor_args",
    metavar="KEY=VALUE",
    multiple=True,
    help="Argument of datatrove's executor for Ray or Slurm, such as partition=NAME.",
)
@count_option("--workers", "Number of processes.  [default: all cores]")
@click.option("--resume", is_flag=True, help="Go on with an interrupted cleaning.")
@click.option("--list-rules", is_flag=True, help="List the rules with their settings.")
@force_option
@common_options
def command(
    paths: tuple[str, ...],
    output: Path | None,
    list_rules: bool,
    force: bool,
    resume: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Drop texts and lines that are no prose, and what occurs more than once.

    The texts of all files are written as compressed JSON lines, with the file and the number that
    each has, and cleaning.json, which counts what each rule dropped, with examples. `zoo corpus
    build` keeps these counts in the corpus.
    """
    if list_rules:
        _list_rules(as_json)
        return
    if not paths or output is None:
        raise click.UsageError("give files and -o DIR", click.get_current_context())
    if not options["rules"] and not options["deduplications"]:
        raise click.UsageError(
            "nothing is to be dropped; give --rule or --deduplicate", click.get_current_context()
        )
    rules = _make_rules(options["rules"], options["assignments"])
    executor = _make_executor(options)
    from zoo.cleaning.clean import CleaningSpec, clean
    from zoo.data.readers.documents import ReaderConfig

    reader = ReaderConfig(
        document_separator=options["document_separator"], text_field=options["text"]
    )
    spec = CleaningSpec(
        paths=paths,
        rules=rules,
        deduplications=options["deduplications"],
        reader=reader,
        language=options["language"],
    )
    record = clean(spec, output, executor=executor, force=force, resume=resume)
    _show(record, output, as_json=as_json)


def _make_rules(names: Sequence[str], assignments: Sequence[str]) -> "list[CleaningRule]":
    """Return the rules with their settings."""
    import msgspec

    from zoo.cleaning.rules import CLEANING_RULES
    from zoo.errors import UsageError, did_you_mean

    classes = {name: CLEANING_RULES.find(name) for name in names}
    settings = assigned_settings(assignments)
    for name, values in settings.items():
        if name not in classes:
            hint = did_you_mean(name, list(names)) or f"rules are {', '.join(names) or 'not given'}"
            raise UsageError(f"--set {name}: there is no such --rule", hint)
        if not isinstance(values, dict):
            raise UsageError(f"--set {name}: it names a rule and no setting", "RULE.KEY=VALUE")
        _check_settings(classes[name], values)
    rules = []
    for name, rule_class in classes.items():
        try:
            rules.append(rule_class.from_settings(settings.get(name, {})))
        except (msgspec.ValidationError, ValueError) as error:
            raise UsageError(
                f"the rule {name}: {error}", f"--set {name}.KEY=VALUE sets it"
            ) from error
    return rules


def _check_settings(rule_class: "type[CleaningRule]", values: Mapping[str, Any]) -> None:
    from zoo.errors import UsageError, did_you_mean

    names = rule_class.setting_names()
    for setting in values:
        if setting not in names:
            hint = did_you_mean(setting, list(names)) or f"it has {', '.join(names) or 'none'}"
            raise UsageError(f"the rule {rule_class.name} has no setting {setting!r}", hint)


def _make_executor(options: Mapping[str, Any]) -> "Executor":
    from zoo.errors import UsageError
    from zoo.io.cores import usable_cores
    from zoo.io.lazy_import import import_problem

    problem = import_problem("datatrove") or import_problem("spacy")
    if problem is not None:
        raise UsageError(f"cleaning needs datatrove: {problem}", "pip install datatrove spacy")
    from zoo.cleaning.executors import LocalExecutor, RayExecutor

    name = options["executor"]
    arguments = assigned_settings(options["executor_args"])
    workers = options["workers"] or usable_cores()
    if name == "local":
        if arguments:
            raise UsageError("--executor-arg is for ray and slurm", "leave it out")
        return LocalExecutor(workers)
    if name == "ray":
        return RayExecutor(workers, arguments)
    from zoo.cleaning.slurm import SlurmExecutor

    return SlurmExecutor(arguments)


def _list_rules(as_json: bool) -> None:
    from zoo.cleaning.rules import CLEANING_RULES

    rows = []
    value = []
    for name in CLEANING_RULES.names():
        rule_class = CLEANING_RULES.find(name)
        settings = list(rule_class.setting_names())
        rows.append((name, rule_class.summary, ", ".join(settings)))
        value.append({"name": name, "summary": rule_class.summary, "settings": settings})
    result({"rules": value}, table(rows, ("rule", "drops", "settings")), as_json=as_json)


def _show(record: "CleaningRecord", output: Path, *, as_json: bool) -> None:
    """Print what was dropped."""
    import msgspec

    value = {
        "path": str(output),
        "rules": [msgspec.to_builtins(report) for report in record.rules],
        "stages": [msgspec.to_builtins(stage) for stage in record.stages],
    }
    if as_json:
        result(value, (), as_json=True)
        return
    rows = []
    for report in record.rules:
        for reason, count in report.dropped.items():
            rows.append((report.rule, reason, f"{count:,} texts"))
        for reason, count in report.lines.items():
            rows.append((report.rule, reason, f"{count:,} lines"))
    for text in table(rows, ("rule", "reason", "dropped")) if rows else ():
        line(text)
    stages = [(stage.name, f"{stage.texts:,}", f"{stage.characters:,}") for stage in record.stages]
    for text in table(stages, ("left after", "texts", "characters")):
        line(text)
    line(f"wrote {output}")
