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

VOCABULARY = 1000  # tokens of the models of quick checks


@dataclass(frozen=True)
class Check:
    """How a check is run: the method of ``FamilyChecks`` with its name after ``check_``."""

    test: str = ""  # name of the pytest test after ``test_``; by default the check's
    # it trains, exports or compares with the reference library, on a model of full size; ``zoo
    # plugins check`` runs it with ``--full``
    slow: bool = False
    # a ``UsageError`` means that the family has no such head, or the library no such class
    optional: bool = False
    compares: bool = False  # it is a test of ``ReferenceTests``, not of ``FamilyTests``
    elsewhere: str = ""  # why ``zoo plugins check`` does not run it with the others


CHECKS: Mapping[str, Check] = {
    "imports": Check(elsewhere="it runs once for the whole plugin"),
    "declarations": Check(),
    "config_round_trip": Check(),
    "invalid_sizes": Check(),
    "rules_cover_parameters": Check(),
    "published_tensors": Check(slow=True, optional=True),
    "constants": Check(),
    "rules_read_tensors_once": Check(),
    "exported_names_are_read": Check(),
    "tensor_round_trip": Check(),
    "state_dict_round_trip": Check(),
    "golden_file": Check(elsewhere="it compares with files, which the plugin's own tests have"),
    "output_shapes": Check(),
    "cached_decoding": Check(),
    "generation": Check(),
    "padding": Check(test="padding_changes_nothing"),
    "packed_rows": Check(),
    "longest_input": Check(),
    "default_inputs": Check(),
    "row_of_padding": Check(),
    "dropout": Check(),
    "dropout_rates": Check(slow=True, optional=True),
    "decoder_start": Check(slow=True),
    "unequal_sizes": Check(slow=True),
    "bfloat16": Check(),
    "gradients": Check(test="gradients_reach_every_parameter"),
    "loss_decreases": Check(slow=True),
    "label_leaks": Check(slow=True),
    "export": Check(slow=True),
    "fine_tuning": Check(slow=True, optional=True),
    "resume": Check(slow=True, optional=True),
    "initialization": Check(),
    "reference_outputs": Check(
        "outputs_equal_the_reference", slow=True, optional=True, compares=True
    ),
    "reference_initialization": Check(
        "initialization_equals_the_reference", slow=True, optional=True, compares=True
    ),
    "reference_tokenizer": Check(
        "tokenizer_equals_the_reference", slow=True, optional=True, compares=True
    ),
    "reference_defaults": Check("reference_defaults", slow=True, optional=True, compares=True),
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
    try:
        heads, tiny = list(family.heads()), family.sizes()["tiny"]
    except Exception as error:
        yield Finding(describe(f"heads and sizes of {family.name}", error))
        return
    builds = [finding for head in heads for finding in _build(family, tiny, head)]
    if builds:
        yield from builds
        return
    for slow in (False, True) if full else (False,):
        checks = _checks(family, tiny if slow else _smaller(tiny))
        for name, check in sorted(CHECKS.items()):
            if check.slow == slow and not check.elsewhere:
                for arguments in _calls(getattr(checks, f"check_{name}"), heads):
                    label = f"{name.replace('_', ' ')} of {family.name}"
                    kinds = (kind for kind in ("head", "task") if kind in arguments)
                    label += "".join(f" with {kind} {arguments[kind]}" for kind in kinds)
                    yield from attempt(label, partial(run_check, checks, name, arguments))
    if full:
        reason = CHECKS["golden_file"].elsewhere
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


def check_labels(objective: str) -> Iterator[Finding]:
    """Yield what the check of labels finds for an objective that any family may learn."""
    from zoo.conformance.objective_checks import check_objective

    with scratch_directory(is_only_folder=False) as home, _home(str(home)):
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
