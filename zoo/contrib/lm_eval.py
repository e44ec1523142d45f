"""Models of zoo in lm-evaluation-harness, under the name ``zoo``.

On the command line, with the options of ``lm_eval``::

    python -m zoo.contrib.lm_eval --model zoo --model_args pretrained=REF --tasks NAME

In Python, ``register()`` adds the name, or ``harness_model(zoo.load(REF))`` gives the model for
``lm_eval.simple_evaluate``. Requests are batched by length, so that ``batch_size`` is ignored.
"""

import json
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError
from zoo.io.json import dump_json
from zoo.overrides import override
from zoo.tasks.causal_lm.predict import Generate
from zoo.tokenizers import Encoded

if TYPE_CHECKING:
    from zoo.api import Model
    from zoo.tokenizers.tokenizer import Text

NAME = "zoo"
MAX_NEW_TOKENS = 256  # as in the harness
TOKEN_LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
Request = tuple[str, dict[str, Any]]


class Tail(Encoded):
    """The last tokens of a text."""

    def __init__(self, encoded: Encoded, count: int | None) -> None:
        self.ids = encoded.ids if count is None else encoded.ids[-count:]
        self.truncated = 0


class TailPrompts(Generate):
    """Continuations of prompts, which are cut at their beginning."""

    @override
    def encode(self, texts: "Sequence[Text]") -> list[Encoded]:
        encoded = self.tokenizer.encode(texts, max_tokens=None)
        return [Tail(text, self.max_tokens) for text in encoded]


class HarnessMethods:
    """Methods of ``lm_eval.api.model.LM``: results of requests with ``args``, in their order."""

    def __init__(
        self,
        pretrained: "str | Model",
        *,
        batch_size: Any = None,
        max_batch_size: Any = None,
        max_gen_toks: int = MAX_NEW_TOKENS,
        **options: Any,
    ) -> None:
        super().__init__()
        from zoo.api import load

        self.model = load(pretrained, **options) if isinstance(pretrained, str) else pretrained
        self.max_gen_toks = max_gen_toks
        checkpoint = self.model.checkpoint
        if Generate.name not in checkpoint.head.tasks:
            raise UsageError(
                f"{checkpoint.name} is not a causal model, which lm-evaluation-harness needs"
            )

    def loglikelihood(self, requests: Sequence[Any], **_: Any) -> list[tuple[float, bool]]:
        """Return the log-likelihood of each continuation, and whether it is the greedy one."""
        results = self.model.score([(request.args[0], request.args[1]) for request in requests])
        return [(result["log_prob"], result["greedy"]) for result in results]

    def loglikelihood_rolling(self, requests: Sequence[Any], **_: Any) -> list[float]:
        """Return the log-likelihood of each text, in windows of the model's length."""
        results = self.model.score([request.args[0] for request in requests])
        return [result["log_prob"] for result in results]

    def generate_until(self, requests: Sequence[Any], **_: Any) -> list[str]:
        """Return the continuation of each context, up to the first of its stop sequences."""
        from zoo.inference.processing.records import as_records

        model = self.model
        results = [""] * len(requests)
        groups: dict[str, list[int]] = {}  # settings of generation as JSON -> numbers of requests
        for number, request in enumerate(requests):
            key = dump_json(generation_settings(request.args[1]), sort_keys=True)
            groups.setdefault(key, []).append(number)
        for settings, numbers in groups.items():
            chosen = json.loads(settings)
            stops = chosen.pop("until")
            chosen = {"max_new_tokens": self.max_gen_toks, **chosen}
            task = TailPrompts(model.checkpoint, model.session, tokenizer=model.tokenizer, **chosen)
            generated = task.run(as_records([requests[number].args[0] for number in numbers]))
            for number, result in zip(numbers, generated, strict=True):
                results[number] = cut(result["generated"], stops)
        return results

    @property
    def tokenizer_name(self) -> str:
        """Name of the model, by which the harness caches requests."""
        return self.model.checkpoint.path.name


def cut(text: str, stops: Sequence[str]) -> str:
    """Return a text up to the first of some stop sequences; empty ones do not count."""
    return min((text.split(stop)[0] for stop in stops if stop), key=len, default=text)


def generation_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Return stop sequences and fields of ``GenerationConfig`` from the harness's options."""
    # As in the harness, a request samples if ``do_sample`` is true, or absent and ``temperature``
    # is over 0
    remaining = {name: value for name, value in options.items() if value is not None}
    until = remaining.pop("until", [])
    settings: dict[str, Any] = {"until": [until] if isinstance(until, str) else list(until)}
    limits = [remaining.pop(name) for name in TOKEN_LIMITS if name in remaining]
    if limits:
        settings["max_new_tokens"] = int(limits[0])
    temperature = float(remaining.pop("temperature", 0.0))
    settings["do_sample"] = bool(remaining.pop("do_sample", temperature > 0)) and temperature > 0
    if settings["do_sample"]:
        settings["temperature"] = temperature
        settings |= {name: remaining.pop(name) for name in ("top_k", "top_p") if name in remaining}
    for name in ("top_k", "top_p"):
        remaining.pop(name, None)
    settings |= {n: remaining.pop(n) for n in ("num_beams", "length_penalty") if n in remaining}
    if remaining:
        raise UsageError(f"the option {next(iter(remaining))} of generate_until is not supported")
    return settings


@cache
def harness_class() -> type[HarnessMethods]:
    """Return the class of models for lm-evaluation-harness."""
    try:
        from lm_eval.api.model import LM
    except ImportError as error:
        raise UsageError(
            f"lm-evaluation-harness cannot be loaded: {error}", "pip install lm-eval"
        ) from error

    class ZooLM(HarnessMethods, LM):  # type: ignore[misc]
        """A model of zoo in the harness."""

    return ZooLM


def harness_model(model: "str | Model", **options: Any) -> HarnessMethods:
    """Return a model for ``lm_eval.simple_evaluate``; see ``HarnessMethods``."""
    return harness_class()(model, **options)


@cache
def register() -> None:
    """Add the name ``zoo`` to the models of lm-evaluation-harness; a second call does nothing.

    Raises:
        UsageError: lm-evaluation-harness is not installed.
    """
    harness_type = harness_class()
    from lm_eval.api.registry import register_model

    register_model(NAME)(harness_type)


if __name__ == "__main__":
    # the module that the harness sees, rather than __main__
    from zoo.contrib import lm_eval as module

    module.register()
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
