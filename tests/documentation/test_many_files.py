"""The job of docs/guides/many-files.md follows the schema of Kubernetes, and fits the command."""

import re
from typing import Any

import click
import kubernetes_validate
import yaml

from tests.interfaces import ROOT
from zoo.cli import cli
from zoo.data.many_files.shard import parse_shard

PAGE = ROOT / "docs" / "guides" / "many-files.md"


def job() -> Any:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    return yaml.safe_load(block)


def test_the_job_follows_the_schema() -> None:
    assert kubernetes_validate.validate(job(), "1.34", strict=True) == "1.34"


def test_the_shards_are_those_of_the_job() -> None:
    spec = job()["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    words: list[str] = container["command"][1:] + container["args"]
    assert container["command"][0] == "zoo" and words[0] == "run"
    group = cli.get_command(click.Context(cli), "run")
    assert isinstance(group, click.Group)
    context = click.Context(group)
    command = group.get_command(context, words[1])
    assert command is not None
    options = command.make_context(words[1], words[2:]).params
    assert options["resume"] and spec["completionMode"] == "Indexed"
    shards = []
    for index in range(spec["completions"]):
        environment = {"JOB_COMPLETION_INDEX": str(index)}
        shards.append(parse_shard(options["shard"], environment))
    assert [str(shard) for shard in shards] == ["1/4", "2/4", "3/4", "4/4"]
