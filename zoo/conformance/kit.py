"""The conformance checks of a family without pytest, for ``zoo plugins check``.

Each check is called for every head, and what it finds is one line.
"""

import contextlib
import inspect
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from zoo.errors import UsageError, ZooError

if TYPE_CHECKING:
    from zoo.conformance.family_checks import FamilyChecks
    from zoo.families.base import Family
    from zoo.families.config import Config

ELSEWHERE = ("check_imports", "check_golden_file")  # of a plugin, and of files in its tests
SLOW = (
    "check_loss_decreases",
    "check_fine_tuning",
    "check_resume",
    "check_export",
    "check_published_tensors",
    "check_reference_defaults",
    "check_reference_outputs",
    "check_reference_initialization",
    "check_dropout_rates",
    "check_decoder_start",
    "check_unequal_sizes",
    "check_reference_tokenizer",
    "check_label_leaks",
)  # these need the reference library, or training
OPTIONAL = (
    "check_fine_tuning",
    "check_resume",
    "check_published_tensors",
    "check_reference_defaults",
    "check_reference_outputs",
    "check_reference_initialization",
    "check_dropout_rates",
    "check_reference_tokenizer",
)  # a ``UsageError`` of these means that the family has no such head, or the library no such class
VOCABULARY = 1000  # tokens of the models of the other checks


class Finding(msgspec.Struct, frozen=True):
    """Problem of a family, or a check that does not apply to it.

    Attributes:
        text: the check, what it ran on, and the problem or why it does not apply.
        skipped: the check does not apply, and nothing was checked.
    """

    text: str
    skipped: bool = False


def check_family(family: "Family", *, full: bool) -> Iterator[Finding]:
    """Yield what the checks of a family find.

    Args:
        family: the family.
        full: run those that need the reference library or training, too.
    """
    try:
        heads, tiny = list(family.heads()), family.sizes()["tiny"]
    except Exception as error:
        yield Finding(describe(f"heads and sizes of {family.name}", error))
        return
    builds = [finding for head in heads for finding in _build(family, tiny, head)]
    if builds:
        yield from builds
        return
    yield from _run_checks(_checks(family, _smaller(tiny)), heads, lambda name: name not in SLOW)
    if full:
        yield from _run_checks(_checks(family, tiny), heads, lambda name: name in SLOW)
        reason = "it compares with files, which the plugin's own tests have"
        yield Finding(f"golden file of {family.name}: {reason}", skipped=True)


def _build(family: "Family", config: "Config", head: str) -> Iterator[Finding]:
    """Yield the problems of building the rules and the model, which has no weights."""
    from zoo.nn.layers.skip_init import init_empty_weights

    label = f"{family.name} with head {head}"
    yield from attempt(f"weights of {label}", lambda: family.weights(config, head).entries())
    with init_empty_weights():
        yield from attempt(f"model of {label}", lambda: family.model(config, head))


def _checks(provided: "Family", configuration: "Config") -> "FamilyChecks":
    """Return the checks of a family, on models of a configuration."""
    from zoo.conformance.family_checks import FamilyChecks

    class Checks(FamilyChecks):
        family = provided

        @property
        def config(self) -> Any:
            return configuration

    return Checks()


def _run_checks(
    checks: "FamilyChecks", heads: Sequence[str], wanted: Callable[[str], bool]
) -> Iterator[Finding]:
    for name in sorted(name for name in dir(checks) if name.startswith("check_")):
        if name not in ELSEWHERE and wanted(name):
            for arguments in _calls(getattr(checks, name), heads):
                yield from _run_check(checks, name, arguments)


def _calls(check: Callable[..., None], heads: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the arguments of the calls of a check: every head and task, and the size ``tiny``."""
    from zoo.conformance.smoke_train import SMOKE_TASKS

    parameters = inspect.signature(check).parameters
    fixed: dict[str, Any] = {"size": "tiny", "changes": {}, "lengths": None}
    values = {name: value for name, value in fixed.items() if name in parameters}
    for name, choices in (("head", heads), ("task", tuple(SMOKE_TASKS))):
        if name in parameters:
            yield from ({**values, name: choice} for choice in choices)
            return
    yield values


def _run_check(checks: "FamilyChecks", name: str, arguments: dict[str, Any]) -> Iterator[Finding]:
    check = getattr(checks, name)
    label = f"{name.removeprefix('check_').replace('_', ' ')} of {checks.family.name}"
    for kind in ("head", "task"):
        if kind in arguments:
            label += f" with {kind} {arguments[kind]}"
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as home:
        files = {"directory": Path(folder, "run") if name in SLOW else Path(folder)}
        needed = inspect.signature(check).parameters.keys() & files.keys()
        call = {**arguments, **{name: files[name] for name in needed}}
        with _home(home):
            yield from attempt(label, lambda: check(**call), may_not_apply=name in OPTIONAL)


def check_labels(objective: str) -> Iterator[Finding]:
    """Yield what the check of labels finds for an objective that any family may learn."""
    from zoo.conformance.objective_checks import check_objective

    with tempfile.TemporaryDirectory() as home, _home(home):
        yield from attempt(f"label leaks of {objective}", lambda: check_objective(objective))


@contextlib.contextmanager
def _home(path: str) -> Iterator[None]:
    """Set ``$ZOO_HOME``, where runs keep tokenized texts, within the block."""
    before = os.environ.get("ZOO_HOME")
    os.environ["ZOO_HOME"] = path
    try:
        yield
    finally:
        del os.environ["ZOO_HOME"]
        os.environ.update({} if before is None else {"ZOO_HOME": before})


def _smaller(config: "Config") -> "Config":
    """Return a configuration whose checks are quick, with dropout for the check of it."""
    values = msgspec.structs.asdict(config)
    ids = [v for name, v in values.items() if name.endswith("_id") and isinstance(v, int)]
    changes = {
        "vocab_size": min(values.get("vocab_size", 0), max(VOCABULARY, *ids, 0) + 1),
        "dropout": values.get("dropout") or 0.1,
    }
    return msgspec.structs.replace(config, **{n: v for n, v in changes.items() if n in values})


def attempt(label: str, call: Any, *, may_not_apply: bool = False) -> Iterator[Finding]:
    """Call a function, and yield its exception as a finding.

    Args:
        label: what is called, for the text.
        call: the function.
        may_not_apply: a ``UsageError`` means that there is nothing to check.
    """
    try:
        call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a third party's module can raise anything
        skipped = isinstance(error, UsageError) and (may_not_apply or _does_not_apply(error))
        yield Finding(describe(label, error), skipped)


def _does_not_apply(error: UsageError) -> bool:
    from zoo.conformance.tiny_model import NotApplicable  # imports torch

    return isinstance(error, NotApplicable)


def describe(label: str, error: BaseException) -> str:
    """Return a line with an exception, and where it was raised unless a check raised it."""
    message = " ".join(str(error).split()).encode(errors="backslashreplace").decode()
    if isinstance(error, ZooError):  # raised by a check
        return f"{label}: {message}"
    place = next(reversed(traceback.extract_tb(error.__traceback__)), None)
    location = f" ({os.path.basename(place.filename)}, line {place.lineno})" if place else ""
    if isinstance(error, SyntaxError):  # its message has the location
        location = ""
    return f"{label}: {type(error).__name__}: {message}{location}"
