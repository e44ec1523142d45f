"""``zoo check``: check that training is exact with given settings."""

import click

from zoo.cli.training.check_accumulation import command as accumulation
from zoo.cli.training.check_resume import command as resume


@click.group()
def command() -> None:
    """Check that training resumes and accumulates gradients exactly."""


command.add_command(resume, "resume")
command.add_command(accumulation, "accumulation")
