"""The task generate: continuations of prompts."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.inference.generation.config import GenerationConfig
from zoo.inference.processing.batching import Batch
from zoo.inference.processing.records import TextExample
from zoo.inference.tasks.base import BatchTask, EncodedExample

if TYPE_CHECKING:
    from torch import Tensor

    from zoo.tokenizers import Encoded
    from zoo.tokenizers.tokenizer import Text

OPTIONS = tuple(GenerationConfig.__dataclass_fields__)


class Generate(BatchTask):
    """Continuations of prompts.

    Results have the keys ``generated``, the continuation without the prompt, and ``stopped``:
    ``end`` after an end-of-sequence token, ``length`` after ``max_new_tokens``.

    Args:
        *args: see ``Task``.
        max_tokens: see ``Task``.
        **options: fields of ``GenerationConfig``, and options of ``Task``.

    Attributes:
        side: side of the padding: left for decoders, right for encoders.
        settings: settings of generation.
    """

    name: ClassVar[str] = "generate"
    output_keys: ClassVar[tuple[str, ...]] = ("generated", "stopped")
    side: ClassVar[str] = "left"
    window = 256
    max_batch_tokens = 4096  # prompts and new tokens of all beams; bounds the key-value cache

    def __init__(self, *args: Any, max_tokens: int | None = None, **options: Any) -> None:
        self.settings = GenerationConfig(**{k: options.pop(k) for k in OPTIONS if k in options})
        super().__init__(*args, max_tokens=max_tokens, **options)
        self.cuts = max_tokens is not None
        self.decoder = self.session.decoder()
        self.end = self.tokenizer.role_id("eos")

    def limits(self) -> list[int]:
        """Return the limits on the number of prompt tokens, less the new tokens of decoders."""
        if self.side != "left":
            return super().limits()
        limits = [limit - self.settings.max_new_tokens for limit in super().limits()]
        if limits and min(limits) < 1:
            raise UsageError(
                f"{self.settings.max_new_tokens} new tokens leave no room for a prompt",
                f"the model takes {min(super().limits())} in all",
            )
        return limits

    def encode(self, texts: "Sequence[Text]") -> "list[Encoded]":
        """Tokenize prompts, of decoders without the special tokens at the end of a text."""
        if self.side != "left":
            return super().encode(texts)
        return self.tokenizer.encode_prompts(texts, max_tokens=self.max_tokens)

    def check(self, item: EncodedExample) -> None:
        """Raise an error for a prompt that is too long, since truncation would cut its end."""
        if item.encoded.truncated and not self.cuts:
            raise UsageError(
                f"{item.record.location} has {item.encoded.n + item.encoded.truncated} tokens, and "
                f"the model takes {self.max_tokens}, so that {self.settings.max_new_tokens} new "
                "ones fit",
                "shorten it, lower --max-new-tokens, or cut its end with --max-tokens",
            )
        self._prompt(item)

    def cost(self, item: EncodedExample) -> int:
        """See ``Task``."""
        return (len(item.encoded.ids) + self.settings.max_new_tokens) * self.settings.num_beams

    def compute(self, items: list[EncodedExample], batch: Batch) -> list[dict[str, Any]]:
        """See ``Task``."""
        from zoo.inference.generation.generate import generate

        prompts = [self._prompt(item) for item in items]
        continuations = generate(
            self.decoder,
            self._inputs(prompts),
            self.settings,
            eos_token_ids=self._eos_token_ids,
            row_ids=[item.row_id for item in items],
        )
        return [self._result(*pair) for pair in zip(prompts, continuations, strict=True)]

    def stream_text(self, record: TextExample, row_id: int = 0) -> Iterator[str]:
        """Generate a continuation of one text and yield its text token by token.

        Args:
            record: the text.
            row_id: index of the prompt among all inputs, which seeds its sampling.

        Raises:
            UsageError: ``num_beams`` is over 1; or see ``run``.
        """
        if self.settings.num_beams > 1:
            raise UsageError("beam search finds a text at its end", "stream without beams")
        from zoo.inference.generation.generate import stream
        from zoo.inference.generation.streaming import stream_text

        self.admit(record)
        (encoded,) = self.encode([self.prepare(record.text)])
        item = EncodedExample(record, encoded, row_id)
        self.check(item)
        prompt = self._prompt(item)
        tokens = stream(
            self.decoder,
            self._inputs([prompt]),
            self.settings,
            eos_token_ids=self._eos_token_ids,
            row_id=row_id,
        )
        new_tokens = (token for token in tokens if token != self.end)
        with self.name_model_in_errors():
            yield from stream_text(new_tokens, self.tokenizer.decode, self._before(prompt))

    @property
    def _eos_token_ids(self) -> tuple[int, ...]:
        return () if self.end is None else (self.end,)

    def _inputs(self, prompts: Sequence[Sequence[int]]) -> "dict[str, Tensor]":
        from zoo.inference.generation.decoder import pad

        # ONNX Runtime copies its inputs from the CPU to its device
        device = "cpu" if self.session.backend == "onnx" else self.session.device
        return pad(prompts, side=self.side, pad_id=self.tokenizer.pad_id, device=device)

    def _prompt(self, item: EncodedExample) -> list[int]:
        """Return the tokens of a prompt; for an empty one, the beginning-of-sequence token."""
        if item.encoded.ids:
            return item.encoded.ids
        start = self.tokenizer.role_id("bos")
        if start is None:
            raise UsageError(
                f"{item.record.location} is empty", "give the model a word to start from"
            )
        return [start]

    def _before(self, prompt: list[int]) -> list[int]:
        """Return the tokens before the new ones, on which the decoding of text depends."""
        return prompt if self.side == "left" else []

    def _result(self, prompt: list[int], new_tokens: list[int]) -> dict[str, Any]:
        ended = bool(new_tokens) and new_tokens[-1] == self.end
        tokens, before = new_tokens[:-1] if ended else new_tokens, self._before(prompt)
        prefix = len(self.tokenizer.decode(before)) if before else 0
        text = self.tokenizer.decode([*before, *tokens])[prefix:]
        return {"generated": text, "stopped": "end" if ended else "length"}
