"""generate: how a model would go on."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.generation.settings import Settings
from zoo.tasks.base import Item, Task
from zoo.tasks.batching import Batch
from zoo.tasks.records import Record

if TYPE_CHECKING:
    from torch import Tensor

OPTIONS = tuple(Settings.__dataclass_fields__)


class Generate(Task):
    """What follows a text, in the model's opinion.

    A result adds ``generated``, the continuation without the text itself, and ``stopped``:
    ``end`` where the model ended the text, ``length`` where ``max_new_tokens`` did.

    Args:
        *args: see ``Task``.
        **options: those of ``zoo.generation.settings.Settings``, and see ``Task``.

    Attributes:
        side: where prompts are padded: on the left if the model goes on with them, on the right
            if it reads them with an encoder.
        settings: how to generate.
    """

    name: ClassVar[str] = "generate"
    adds: ClassVar[tuple[str, ...]] = ("generated", "stopped")
    side: ClassVar[str] = "left"
    window = 256
    token_budget = 4096  # of prompts, continuations and beams: it bounds the caches

    def __init__(self, *args: Any, max_tokens: int | None = None, **options: Any) -> None:
        self.settings = Settings(**{k: options.pop(k) for k in OPTIONS if k in options})
        super().__init__(*args, max_tokens=max_tokens, **options)
        self.cuts = max_tokens is not None
        self.decoder = self.session.decoder()
        self.end = self.tokenizer.role_id("eos")

    def limits(self) -> list[int]:
        """See ``Task``: a continuation takes places, too."""
        if self.side != "left":
            return super().limits()
        found = [limit - self.settings.max_new_tokens for limit in super().limits()]
        if found and min(found) < 1:
            raise UsageError(
                f"{self.settings.max_new_tokens} new tokens leave no room for a text",
                f"the model takes {min(super().limits())} in all",
            )
        return found

    def check(self, item: Item) -> None:
        """See ``Task``: the end of a text is what is continued, and is not cut unasked."""
        if item.encoded.truncated and not self.cuts:
            raise UsageError(
                f"{item.record.where} has {item.encoded.n + item.encoded.truncated} tokens, and "
                f"the model takes {self.max_tokens}, so that {self.settings.max_new_tokens} new "
                "ones fit",
                "shorten it, lower --max-new-tokens, or cut its end with --max-tokens",
            )
        self._prompt(item)

    def cost(self, item: Item) -> int:
        """See ``Task``."""
        return (len(item.encoded.ids) + self.settings.max_new_tokens) * self.settings.beams

    def compute(self, items: list[Item], batch: Batch) -> list[dict[str, Any]]:
        """See ``Task``."""
        from zoo.generation.search import generate

        prompts = [self._prompt(item) for item in items]
        found = generate(
            self.decoder,
            self._inputs(prompts),
            self.settings,
            ends=self._ends,
            places=[item.place for item in items],
        )
        return [self._result(*pair) for pair in zip(prompts, found, strict=True)]

    def tell(self, record: Record, place: int = 0) -> Iterator[str]:
        """Continue one text, and return each piece of the continuation as soon as it is there.

        Args:
            record: the text.
            place: of the text among all inputs, which the draws of sampling depend on.

        Raises:
            UsageError: beams are asked for, whose best is known at the end alone; or see ``run``.
        """
        if self.settings.beams > 1:
            raise UsageError("beam search finds a text at its end", "stream without beams")
        from zoo.generation.search import stream
        from zoo.generation.text import pieces

        self._admit(record)
        encoded = self.tokenizer.encode([self.prepare(record.text)], max_tokens=self.max_tokens)
        item = Item(record, encoded[0], place)
        self.check(item)
        prompt = self._prompt(item)
        tokens = stream(
            self.decoder, self._inputs([prompt]), self.settings, ends=self._ends, place=place
        )
        spoken = (token for token in tokens if token != self.end)
        with self.naming_the_model():
            yield from pieces(spoken, self.tokenizer.decode, self._before(prompt))

    @property
    def _ends(self) -> tuple[int, ...]:
        return () if self.end is None else (self.end,)

    def _inputs(self, prompts: Sequence[Sequence[int]]) -> "dict[str, Tensor]":
        from zoo.generation.decoder import pad

        # what ONNX Runtime computes on a device, it is given from here
        device = "cpu" if self.session.backend == "onnx" else self.session.device
        return pad(prompts, side=self.side, pad_id=self.tokenizer.pad_id, device=device)

    def _prompt(self, item: Item) -> list[int]:
        """Return a text's tokens; an empty text starts from the token that begins texts."""
        if item.encoded.ids:
            return item.encoded.ids
        start = self.tokenizer.role_id("bos")
        if start is None:
            raise UsageError(f"{item.record.where} is empty", "give the model a word to start from")
        return [start]

    def _before(self, prompt: list[int]) -> list[int]:
        """Return the tokens that a continuation follows, and which its spelling depends on."""
        return prompt if self.side == "left" else []

    def _result(self, prompt: list[int], found: list[int]) -> dict[str, Any]:
        ended = bool(found) and found[-1] == self.end
        spoken, before = found[:-1] if ended else found, self._before(prompt)
        told = len(self.tokenizer.decode(before)) if before else 0
        text = self.tokenizer.decode([*before, *spoken])[told:]
        return {"generated": text, "stopped": "end" if ended else "length"}
