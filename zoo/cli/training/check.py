"""``zoo check``: check that training is exact with given settings."""

import click

from zoo.cli import LazyGroup

HERE = "zoo.cli.training"


@click.group(
    cls=LazyGroup,
    table={
        "resume": (f"{HERE}.check_resume", "Check that a killed run resumes bit for bit."),
        "accumulation": (
            f"{HERE}.check_accumulation",
            "Check that small batches equal a large one.",
        ),
    },
)
def command() -> None:
    """Check that training resumes and accumulates gradients exactly."""
