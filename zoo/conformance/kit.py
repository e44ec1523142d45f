"""The conformance checks of a family: the table of them, and runs without pytest."""

import contextlib
import inspect
import os
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from zoo.errors import UsageError, ZooError
from zoo.io.scratch import scratch_directory
from zoo.overrides import override

if TYPE_CHECKING:
    from zoo.conformance.family_checks import FamilyChecks
    from zoo.families.base import Family
    from zoo.families.config import Config


@dataclass(frozen=True)
class CheckMethod:
    """How a check is run: the method of ``FamilyChecks`` with its name after ``check_``."""

    test: str = ""  # name of the pytest test after ``test_``; by default the check's
    # it trains, exports or compares with the reference library; ``zoo plugins check`` runs it with
    # ``--full``
    slow: bool = False
    trains: bool = False  # it trains a model of full size
    # a ``UsageError`` means that the family has no such head, or the library no such class
    optional: bool = False
    compares: bool = False  # it is a test of ``ReferenceTests``, not of ``FamilyTests``
    elsewhere: str = ""  # why ``zoo plugins check`` does not run it with the others


CHECKS: Mapping[str, CheckMethod] = {
    "imports": CheckMethod(elsewhere="it runs once for the whole plugin"),
    "declarations": CheckMethod(),
    "config_round_trip": CheckMethod(),
    "invalid_sizes": CheckMethod(),
    "rules_cover_parameters": CheckMethod(),
    "published_tensors": CheckMethod(slow=True, optional=True),
    "constants": CheckMethod(),
    "rules_read_tensors_once": CheckMethod(),
    "ties": CheckMethod(),
    "exported_names_are_read": CheckMethod(),
    "tensor_round_trip": CheckMethod(),
    "state_dict_round_trip": CheckMethod(),
    "golden_file": CheckMethod(
        elsewhere="it compares with files, which the plugin's own tests have"
    ),
    "output_shapes": CheckMethod(),
    "cached_decoding": CheckMethod(),
    "generation": CheckMethod(),
    "padding": CheckMethod(test="padding_changes_nothing"),
    "packed_rows": CheckMethod(),
    "longest_input": CheckMethod(),
    "default_inputs": CheckMethod(),
    "row_of_padding": CheckMethod(),
    "dropout": CheckMethod(),
    "dropout_rates": CheckMethod(slow=True, optional=True),
    "decoder_start": CheckMethod(slow=True),
    "unequal_sizes": CheckMethod(slow=True),
    "bfloat16": CheckMethod(),
    "gradients": CheckMethod(test="gradients_reach_every_parameter"),
    "loss_decreases": CheckMethod(slow=True, trains=True),
    "objectives": CheckMethod(test="objectives_train", slow=True, trains=True),
    "label_leaks": CheckMethod(slow=True, trains=True),
    "export": CheckMethod(slow=True, trains=True),
    "fine_tuning": CheckMethod(slow=True, trains=True, optional=True),
    "resume": CheckMethod(slow=True, trains=True, optional=True),
    "initialization": CheckMethod(),
    "reference_outputs": CheckMethod(
        "outputs_equal_the_reference", slow=True, optional=True, compares=True
    ),
    "reference_keys": CheckMethod(
        "keys_change_the_outputs", slow=True, optional=True, compares=True
    ),
    "reference_ties": CheckMethod(
        "ties_equal_the_reference", slow=True, optional=True, compares=True
    ),
    "reference_initialization": CheckMethod(
        "initialization_equals_the_reference", slow=True, optional=True, compares=True
    ),
    "reference_tokenizer": CheckMethod(
        "tokenizer_equals_the_reference", slow=True, optional=True, compares=True
    ),
    "reference_defaults": CheckMethod(
        "reference_defaults", slow=True, optional=True, compares=True
    ),
}


def run_check(checks: "FamilyChecks", name: str, arguments: Mapping[str, Any]) -> None:
    """Run a check with new directories for its files and for ``$ZOO_HOME``."""
    from zoo.conformance.tiny_model import NotApplicable

    check = getattr(checks, f"check_{name}")
    with scratch_directory(is_only_folder=False) as folder, _home(str(folder / "home")):
        files = {"directory": folder / "run"}
        needed = inspect.signature(check).parameters.keys() & files.keys()
        try:
            check(**arguments, **{argument: files[argument] for argument in needed})
        except UsageError as error:
            if not CHECKS[name].optional:
                raise
            raise NotApplicable(error.what, error.hint) from error


class Finding(msgspec.Struct, frozen=True):
    """Problem of a family, or a check that does not apply to it."""

    text: str  # the check, what it ran on, and the problem or why it does not apply
    skipped: bool = False  # the check does not apply, and nothing was checked


def check_family(family: "Family", *, full: bool) -> Iterator[Finding]:
    """Yield what the checks of a family find."""
    from zoo.conformance.tiny_model import smaller

    try:
        heads = list(family.heads())
        tiny = family.sizes()["tiny"]
    except Exception as error:
        yield Finding(describe(f"heads and sizes of {family.name}", error))
        return
    builds = [finding for head in heads for finding in _build(family, tiny, head)]
    if builds:
        yield from builds
        return
    for slow in (False, True) if full else (False,):
        for name, check in sorted(CHECKS.items()):
            if check.slow == slow and not check.elsewhere:
                checks = _checks(family, tiny if check.trains else smaller(tiny))
                yield from _run_calls(checks, name, heads)
    if full:
        reason = CHECKS["golden_file"].elsewhere
        yield Finding(f"golden file of {family.name}: {reason}", skipped=True)


def _run_calls(checks: "FamilyChecks", name: str, heads: Sequence[str]) -> Iterator[Finding]:
    """Yield what a check finds, for all heads and tasks, and for other configurations."""
    from zoo.conformance.variations import describe_changes, field_changes

    method = getattr(checks, f"check_{name}")
    takes_changes = "changes" in inspect.signature(method).parameters
    variations = field_changes(checks.family, checks.config) if takes_changes else []
    for arguments in _calls(method, heads):
        label = f"{name.replace('_', ' ')} of {checks.family.name}"
        for parameter in ("head", "task"):
            if parameter in arguments:
                label += f" with {parameter} {arguments[parameter]}"
        findings = list(attempt(label, partial(run_check, checks, name, arguments)))
        yield from findings
        if findings:
            continue  # the other configurations would have the same problem
        for changes in list(variations):
            if not _reaches_head(checks, arguments["head"], changes):
                continue
            call = partial(run_check, checks, name, {**arguments, "changes": changes})
            findings = list(attempt(f"{label} and {describe_changes(changes)}", call))
            yield from findings
            if findings:
                variations.remove(changes)  # one head that shows a problem is enough


def _reaches_head(checks: "FamilyChecks", head: str, changes: Mapping[str, Any]) -> bool:
    """Return whether a changed configuration may change a model that the reference has."""
    if "labels" in changes and not checks.family.heads()[head].has_labels:
        return False
    changed_config = msgspec.structs.replace(checks.config, **changes)
    return checks.family.has_reference(changed_config, head)


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
        @override
        def config(self) -> Any:
            return configuration

    return Checks()


def _calls(check: Any, heads: Sequence[str]) -> Iterator[dict[str, Any]]:
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


def check_objective_of_plugin(objective: str) -> Iterator[Finding]:
    """Yield what is found for an objective that any family may learn: its labels and a run."""
    from zoo.conformance.objective_checks import check_objective, train_objective

    with scratch_directory(is_only_folder=False) as home, _home(str(home)):
        yield from attempt(f"label leaks of {objective}", lambda: check_objective(objective))
        folder = home / "run"
        label = f"training steps of {objective}"
        yield from attempt(label, lambda: train_objective(objective, folder))


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


def attempt(label: str, call: Any) -> Iterator[Finding]:
    """Call a function, and yield its exception as a finding: skipped if it does not apply."""
    try:
        call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a third party's module can raise anything
        from zoo.conformance.tiny_model import NotApplicable  # imports torch

        yield Finding(describe(label, error), isinstance(error, NotApplicable))


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
