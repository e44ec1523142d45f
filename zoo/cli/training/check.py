"""``zoo check``: measure what is promised about training, with your settings."""

import click

from zoo.cli.training.check_accumulation import command as accumulation
from zoo.cli.training.check_resume import command as resume


@click.group()
def command() -> None:
    """Check that training is exact: a resume, gradients of a batch in parts."""


command.add_command(resume, "resume")
command.add_command(accumulation, "accumulation")
