"""Choosing the head: the one whose rules account for every tensor of the file."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from zoo.convert.open import OpenCheckpoint
from zoo.errors import UsageError, did_you_mean
from zoo.families.config import Config
from zoo.weights import MappingReport, Rule, TensorMapping, WeightMap, check_counts, match_tensors


@dataclass(frozen=True)
class ConversionPlan:
    """A head, and the account of the file's tensors against it.

    Attributes:
        head: its name.
        opened: the file, its tensors under the names that the account uses.
        config: the configuration, with optional parts set to what the file holds.
        account: the account.
        entries: our name -> the family's rule for it, for every tensor to write.
    """

    head: str
    opened: OpenCheckpoint
    config: Config
    account: MappingReport
    entries: dict[str, TensorMapping]


def plan_conversion(
    opened: OpenCheckpoint, wanted: str | None, *, init: bool = False
) -> ConversionPlan:
    """Choose the head and close the account.

    Without a wish, the head is the one whose account is closed; where several are, the class
    name in the Hub's configuration decides. With a wish, tensors of other heads are left out
    with that reason, and nothing else is.

    Raises:
        UsageError: the family has no such head, or several fit and nothing decides.
        VerificationError: no account is closed; the message lists what is left over.
    """
    heads = opened.family.heads()
    weights = opened.family.weights(opened.config, next(iter(heads)))
    check_counts(weights, opened.reader.tensors, str(opened.source.directory))
    if wanted is not None and wanted not in heads:
        raise UsageError(
            f"{opened.family.name} has no head {wanted!r}",
            did_you_mean(wanted, list(heads)) or f"it has {', '.join(heads)}",
        )
    if wanted is not None:
        plan = _plan(opened, wanted, ignored=_other_heads(opened, wanted), init=init)
        plan.account.raise_if_incomplete(_where(opened, wanted), _lacking(plan, wanted))
        return plan
    return _named(opened) or _best(opened, [_plan(opened, head) for head in _candidates(opened)])


def _named(opened: OpenCheckpoint) -> ConversionPlan | None:
    """Return the plan for the head of the class name, if that is one and its account is closed.

    It would be chosen whatever else fits, so the other heads need not be tried.
    """
    named = [head for head in _candidates(opened) if _names(opened, head)]
    plan = _plan(opened, named[0]) if len(named) == 1 else None
    return plan if plan and plan.account.closed else None


def _candidates(opened: OpenCheckpoint) -> list[str]:
    return [opened.checkpoint.head_name] if opened.checkpoint else list(opened.family.heads())


def _best(opened: OpenCheckpoint, plans: list[ConversionPlan]) -> ConversionPlan:
    closed = [plan for plan in plans if plan.account.closed]
    named = [plan for plan in plans if _names(opened, plan.head)]
    if len(named) == 1:
        # a file of two networks is read per head: another head would take the other network
        ignored = named[0].opened.ignored.keys()
        closed = [plan for plan in closed if plan.opened.ignored.keys() == ignored]
    if len(closed) == 1:
        return closed[0]
    named = [plan for plan in closed or plans if _names(opened, plan.head)]
    if len(named) == 1 and closed:
        return named[0]
    if closed:
        raise UsageError(
            f"{opened.source.directory}: the tensors fit {' and '.join(p.head for p in closed)}",
            "say which with --head",
        )
    fewest = min(named or plans, key=lambda plan: plan.account.open_items)
    fewest.account.raise_if_incomplete(_where(opened, fewest.head))
    return fewest


def _names(opened: OpenCheckpoint, head: str) -> bool:
    return any(a in opened.family.heads()[head].architectures for a in opened.architectures)


def _plan(
    opened: OpenCheckpoint, head: str, *, ignored: dict[str, str] | None = None, init: bool = False
) -> ConversionPlan:
    opened = opened.for_head(head)
    weights = opened.family.weights(opened.config, head)
    known = identity_map(weights, opened.checkpoint.weights) if opened.checkpoint else weights
    fresh = _may_be_fresh(opened, weights) if init else ()
    account = match_tensors(
        known,
        opened.reader.tensors,
        ignored={**opened.ignored, **(ignored or {})},
        init=fresh,
        declared_optional=opened.declared_optional,
    )
    flags = dict.fromkeys(account.absent, False) | dict.fromkeys(account.present, True)
    config = msgspec.structs.replace(opened.config, **flags)
    entries = {entry.target: entry for entry in opened.family.weights(config, head).entries()}
    return ConversionPlan(head, opened, config, account, entries)


def _may_be_fresh(opened: OpenCheckpoint, weights: WeightMap) -> set[str]:
    """Name what a new head may start from random weights: all but the bare trunk."""
    trunk = opened.family.weights(opened.config, "none").entries()
    required = {entry.target for entry in trunk if not entry.optional}
    return {entry.target for entry in weights.entries()} - required


def identity_map(weights: WeightMap, stored: WeightMap | None = None) -> WeightMap:
    """Return the map of a checkpoint in our own layout: every name stands for itself.

    Args:
        weights: the map for a head.
        stored: that of the head which the checkpoint has. Where heads give one name to what is
            not the same on the Hub, the tensor that is there is not the one that is looked for.
    """
    meant = {entry.target: entry.sources for entry in stored.entries()} if stored else {}
    rules = []
    for entry in weights.entries():
        same = meant.get(entry.target, entry.sources) == entry.sources
        source = entry.target if same else f"{entry.target} ({' '.join(entry.sources)})"
        rules.append(Rule(source, entry.target, entry.shape, optional=entry.optional))
    return replace(weights, rules=rules, drops=(), ties=(), legacy={}, prefix="", counts={})


def _other_heads(opened: OpenCheckpoint, wanted: str) -> dict[str, str]:
    """Name the tensors that only other heads have."""
    leave: dict[str, str] = {}
    for head in opened.family.heads():
        if head == wanted:
            continue
        weights = opened.family.weights(opened.config, head)
        if opened.checkpoint:
            weights = identity_map(weights)
        names = [s for e in weights.entries() for s in e.sources]
        for name in (*names, *weights.aliases(), *weights.dropped()):
            leave.setdefault(name, f"belongs to the head {head}; {wanted} was asked for")
    return leave


def _where(opened: OpenCheckpoint, head: str) -> str:
    return f"{opened.source.directory} as {opened.family.name} with head {head}"


def _lacking(plan: ConversionPlan, wanted: str) -> str:
    only_head = plan.account.missing and not (
        plan.account.unexpected or plan.account.shape_mismatches
    )
    return f"--init-head starts {wanted} from random weights" if only_head else ""


def with_labels(config: Config, labels: Sequence[str] | None) -> Config:
    """Return the configuration with the labels of a new head.

    Raises:
        UsageError: a label is empty, or given twice.
    """
    if labels is None:
        return config
    if not all(labels) or len(set(labels)) != len(labels):
        raise UsageError(
            f"a label is empty or given twice: {', '.join(labels)}", "give each output a name"
        )
    return msgspec.structs.replace(config, labels=tuple(labels))


def require_label_outputs(plan: ConversionPlan) -> None:
    """Check that a head has outputs that labels name.

    Raises:
        UsageError: it has none.
    """
    outputs = plan.opened.family.heads()[plan.head].outputs
    if not any("labels" in axes.split() for axes in outputs.values()):
        raise UsageError(
            f"the head {plan.head} has no outputs that labels name",
            "say which classifier they are for, as in --head sequence-classification --init-head",
        )
