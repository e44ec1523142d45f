"""Command-line interface: a table of commands, each imported when it is used."""

import gc
import importlib
import os
import sys
from typing import NoReturn

import click

from zoo.errors import did_you_mean
from zoo.io.signals import exit_on_signals, interrupt_on_termination
from zoo.overrides import override
from zoo.plugins.entry_point_objects import find_object, import_instance, is_named, usable
from zoo.version import __version__

# heading in help -> command -> (module that defines it as ``command``, one-line help)
GROUPS = {
    "Models": {
        "families": ("zoo.cli.models.families", "List the model families and what each can do."),
        "models": ("zoo.cli.models.models", "List the checkpoints of the registry and the store."),
        "info": ("zoo.cli.models.info", "Describe a model without loading it."),
        "fetch": ("zoo.cli.models.fetch", "Download a checkpoint without converting it."),
        "convert": ("zoo.cli.models.convert", "Convert a checkpoint; every tensor is mapped."),
        "retokenize": ("zoo.cli.models.retokenize", "Give a model the vocabulary of a tokenizer."),
        "verify": ("zoo.cli.models.verify", "Verify a model, an export, a corpus or a run."),
        "export": ("zoo.cli.models.export", "Export a model to a runtime, compared with torch."),
        "adapter": ("zoo.cli.models.adapter", "Describe, merge and extract adapters."),
        "push": ("zoo.cli.models.push", "Upload a model to the Hub; lists the files first."),
    },
    "Training": {
        "pretrain": ("zoo.cli.training.pretrain", "Pretrain a model on raw text."),
        "finetune": ("zoo.cli.training.finetune", "Fine-tune a model on labelled data."),
        "distill": ("zoo.cli.training.distill", "Distil a smaller model from a larger one."),
        "mine-negatives": (
            "zoo.cli.training.mine_negatives",
            "Find hard negatives for pairs of texts.",
        ),
        "corpus": ("zoo.cli.training.corpus", "Build tokenized corpora from text."),
        "examples": ("zoo.cli.training.examples", "Print the examples that an objective makes."),
        "compare": ("zoo.cli.training.compare", "Compare training runs, over their seeds."),
        "loss-surface": (
            "zoo.cli.training.loss_surface",
            "Draw the loss between initial and final weights.",
        ),
        "check": ("zoo.cli.training.check", "Check that resuming and accumulation are exact."),
    },
    "Inference": {
        "run": ("zoo.cli.inference.run", "Run a task: embed, fill-mask, classify, generate, ..."),
        "eval": ("zoo.cli.inference.eval", "Evaluate a model on data of your own."),
        "look": ("zoo.cli.inference.look", "Draw attention, predictions and layers of a model."),
        "probe": ("zoo.cli.inference.probe", "Measure what each frozen layer knows about a task."),
        "tokenize": ("zoo.cli.inference.tokenize", "Show how models cut a text into tokens."),
        "serve": ("zoo.cli.inference.serve", "Serve models over HTTP."),
        "bench": ("zoo.cli.inference.bench", "Measure speed and memory on several backends."),
    },
    "Installation": {
        "plugins": ("zoo.cli.installation.plugins", "List, install, check and write plugins."),
        "doctor": ("zoo.cli.installation.doctor", "Check the installation."),
        "completion": ("zoo.cli.installation.completion", "Print a shell's completion script."),
    },
}
COMMANDS = {name: row for group in GROUPS.values() for name, row in group.items()}

EXAMPLES = """\b
Examples:
  zoo convert all-minilm-l6-v2               download, convert into the store
  zoo convert ./checkpoint -o ./model        convert a directory
  zoo run embed all-minilm-l6-v2 "a text"    sentence vectors as JSON lines
  zoo export all-minilm-l6-v2 -o out         ONNX, compared with torch

\b
A model is given as a path, a name in the store, a name of the registry, a
family, or a Hub repository (organisation/name).

\b
Exit codes: 0 done, 1 a bug, 2 wrong usage, 3 verification failed,
4 source not available, 5 a plugin is broken, 130 interrupted (Ctrl-C, or a
signal that ends a session: SIGTERM, SIGHUP, SIGQUIT)."""


def refuse_repeated_options(
    ctx: click.Context, name: str, command: click.Command, args: list[str]
) -> None:
    """Refuse arguments that repeat an option of one value, also of a command below.

    click silently takes the last value.
    """
    # This parser neither calls back nor raises errors, which click does afterwards.
    settings = {**command.context_settings, "resilient_parsing": True}
    context = click.Context(command, parent=ctx, info_name=name, **settings)
    _, remaining_args, parameters = command.make_parser(context).parse_args(list(args))
    for option in dict.fromkeys(parameters):
        if not isinstance(option, click.Option) or option.multiple or option.count:
            continue
        if parameters.count(option) > 1 and (not option.is_flag or option.secondary_opts):
            names = " or ".join([max(option.opts, key=len), *option.secondary_opts])
            raise click.UsageError(f"{names} is given twice; give it once", context)
    if isinstance(command, click.Group) and remaining_args:
        child_name, child, child_args = command.resolve_command(context, remaining_args)
        if child is not None:
            refuse_repeated_options(context, child_name or child_args[0], child, child_args)


class LazyGroup(click.Group):
    """Click group that imports the module of a command when the command is used."""

    def __init__(self, *args: object, table: dict[str, tuple[str, str]], **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.table = table  # command -> (module, or ``module:name``; its help)

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.table:
            return None
        module, _, attribute = self.table[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute or "command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command with a name; the error for an unknown name suggests similar ones."""
        name = args[0]
        if name not in self.table and not name.startswith("-") and not ctx.resilient_parsing:
            message = f"no command is called {name!r}"
            hint = self.suggest(name) or did_you_mean(name, self.list_commands(ctx))
            if hint:
                message += f"; {hint}"
            raise click.UsageError(message, ctx)
        return super().resolve_command(ctx, args)

    def suggest(self, name: str) -> str:
        """Return what does the work that a name stands for; empty for none."""
        return ""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.table.items()])


class Program(LazyGroup):
    """The group of all commands, including plugins' commands, which entry points name."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.table, *usable("commands", self.table)]

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.table:
            return super().get_command(ctx, cmd_name)
        if not is_named("commands", cmd_name):
            return None
        return import_instance(find_object("commands", cmd_name, self.table), click.Command)

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        command = None
        if name not in self.table and is_named("commands", name):
            command = self.get_command(ctx, name)
            command_args = args[1:]
        else:
            _, command, command_args = super().resolve_command(ctx, args)
        if command is not None and not ctx.resilient_parsing:
            if not isinstance(command, click.Group):
                from zoo.cli.file_lists import repeat_file_options

                command_args = repeat_file_options(command, command_args)
            refuse_repeated_options(ctx, name, command, command_args)
        return name, command, command_args

    @override
    def suggest(self, name: str) -> str:
        from zoo.cli.suggestions import suggest_command
        from zoo.plugins.tasks import commands

        if name in commands():
            return f"did you mean zoo run {name}?"
        return suggest_command(name)

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.table))  # All groups have the same width.
        for heading, group in GROUPS.items():
            with formatter.section(heading):
                rows = [(name.ljust(width), text) for name, (_, text) in group.items()]
                formatter.write_dl(rows)
        if commands := usable("commands", self.table):
            with formatter.section("Commands of plugins"):
                formatter.write_dl([(name, f"See {c.origin}.") for name, c in commands.items()])


@click.command(
    cls=Program,
    table=COMMANDS,
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(__version__, prog_name="zoo")
def cli() -> None:
    """A model zoo and converter for pretrained language models."""


def main(args: list[str] | None = None) -> NoReturn:
    """Run a command and exit with its exit code."""
    arguments = sys.argv[1:] if args is None else args
    try:
        from zoo.cli import failure, output

        try:
            output.prepare()
            interrupt_on_termination()
            if instruction := os.environ.get("_ZOO_COMPLETE"):  # a shell completes a command line
                from zoo.cli.installation.completion import complete

                code = complete(cli, instruction)
            else:
                # `cli.main` would print an empty line on Ctrl-C, also to a file.
                with output.flushed(), cli.make_context("zoo", list(arguments)) as context:
                    result = cli.invoke(context)
                code = result if isinstance(result, int) else 0
        except BaseException as error:  # panics of Rust code and some errors of plugins
            code = failure.report(error, arguments)
        exit_on_signals(code)
    except KeyboardInterrupt as error:  # a signal before the command began, or after its end
        from zoo.cli import failure

        code = failure.report(error, arguments)
        exit_on_signals(code)
    gc.freeze()  # no garbage collection of all objects of torch at exit
    sys.exit(code)
