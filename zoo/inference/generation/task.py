"""Base class of tasks that generate text."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from zoo.errors import NonFiniteError, UsageError
from zoo.inference.generation.config import GenerationConfig, generation_config, token_ids
from zoo.inference.processing.batching import EncodedBatch
from zoo.inference.processing.records import TextExample
from zoo.inference.task import BatchTask, EncodedExample
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor

    from zoo.checkpoint import Checkpoint
    from zoo.inference import Need, Session
    from zoo.inference.generation.processors import Processor
    from zoo.tokenizers import Encoded, TextTokenizer
    from zoo.tokenizers.tokenizer import Text


UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # decoded from incomplete UTF-8


def stream_text(
    tokens: Iterable[int], decode: Callable[[Sequence[int]], str], before: Sequence[int] = ()
) -> Iterator[str]:
    """Yield the text that each token adds.

    A token may be part of a character, or change the spelling of the text before it; text that
    may still change is held back.
    """
    prefix = list(before)
    length = len(decode(prefix)) if prefix else 0
    text = ""
    for token in tokens:
        prefix.append(token)
        text = decode(prefix)
        if len(text) > length and not text.endswith(UNFINISHED):
            yield text[length:]
            length = len(text)
    if len(text) > length:
        yield text[length:]


OPTIONS = tuple(GenerationConfig.__dataclass_fields__)


# Key of values for the number of generated tokens, which results leave out.
NEW_TOKENS = "new_tokens"


class GenerationEnd(NamedTuple):
    """The end of a text that is generated piece by piece.

    Attributes:
        stopped: why it ends, as ``stopped`` of a result.
        new_tokens: number of generated tokens, with the one that ends it.
    """

    stopped: Literal["end", "length"]
    new_tokens: int


class GenerationTask(BatchTask):
    """A task that generates text: continuations of prompts, or targets of sources.

    Results have the keys ``generated``, the continuation without the prompt, and ``stopped``:
    ``end`` after an end-of-sequence token, ``length`` after ``max_new_tokens``. With
    ``num_return_sequences`` over 1 also ``sequences``, a list of objects with these keys; the first
    is also the result.
    """

    output_keys: ClassVar[tuple[str, ...]] = ("generated", "stopped")
    side: ClassVar[str]  # side of the padding: left for decoders, right for encoders
    chunk_size = 256
    max_batch_tokens = 4096  # prompts and new tokens of all beams; bounds the key-value cache

    @classmethod
    @override
    def needs(cls, checkpoint: "Checkpoint", options: Mapping[str, Any]) -> "tuple[Need, ...]":
        return ("generation",)

    @classmethod
    @override
    def from_command(
        cls, records: Iterator[TextExample], options: dict[str, Any]
    ) -> tuple[Iterator[TextExample], dict[str, Any]]:
        """Options precede the settings of a file."""
        from zoo.checkpoint.generation_config import call_settings
        from zoo.io.json import read_json_object

        file = options.pop("generation_config")
        if file is not None:
            settings = call_settings(read_json_object(Path(file)), Path(file))
            for name, value in options.items():
                if value is not None:
                    settings[name] = value
            return records, settings
        return records, options

    def __init__(
        self,
        checkpoint: "Checkpoint",
        session: "Session",
        tokenizer: "TextTokenizer | None" = None,
        *,
        max_tokens: int | None = None,
        logits_processor: "Sequence[Processor]" = (),
        **options: Any,
    ) -> None:
        # The settings that the caller changes.
        self.overrides = {name: options.pop(name) for name in OPTIONS if name in options}
        self.settings = generation_config(checkpoint.model.generation, self.overrides)
        super().__init__(checkpoint, session, tokenizer, max_tokens=max_tokens, **options)
        self.cuts = max_tokens is not None
        self._require_vocabulary()
        self.decoder = self.session.generator()
        rules = checkpoint.family.logits_processors(checkpoint.config, checkpoint.head_name)
        self.logits_processor: tuple[Processor, ...] = (*rules, *logits_processor)

    @property
    def vocab_size(self) -> int:
        """Number of tokens of the model."""
        config: Any = self.checkpoint.config
        return int(config.vocab_size)

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """End-of-sequence tokens: of the settings, or else the tokenizer's."""
        # Ids beyond the vocabulary come from defaults of the model's class on the Hub.
        settings_ids = token_ids(self.settings.eos_token_id)
        valid_ids = tuple(token for token in settings_ids if token < self.vocab_size)
        return valid_ids or token_ids(self.tokenizer.role_id("eos"))

    def _require_vocabulary(self) -> None:
        """Check that the model has the tokens that the settings force, start with or favour."""
        size = self.vocab_size
        settings = self.settings
        ids: dict[str, list[int]] = {}
        for name in ("forced_bos_token_id", "forced_eos_token_id", "decoder_start_token_id"):
            ids[name] = list(token_ids(getattr(settings, name)))
        ids["bad_words_ids"] = []
        for tokens in settings.bad_words_ids or ():
            ids["bad_words_ids"] += tokens
        ids["sequence_bias"] = []
        for tokens, _ in settings.sequence_bias or ():
            ids["sequence_bias"] += tokens
        for name, setting_ids in ids.items():
            for token in setting_ids:
                if token >= size:
                    raise UsageError(
                        f"{name} has the token id {token}, and the model has {size} tokens",
                        "give ids of its vocabulary",
                    )

    @override
    def limits(self) -> list[int]:
        """Return the limits on the number of prompt tokens, less the new tokens of decoders."""
        if self.side != "left":
            return super().limits()
        limits = super().limits()
        settings = self.settings
        if settings.max_new_tokens is None and settings.max_length is not None:
            all_limits = [*limits, settings.max_length]
            return [min(limit, settings.max_length) - 1 for limit in all_limits]
        prompt_limits = [limit - settings.longest for limit in limits]
        if prompt_limits and min(prompt_limits) < 1:
            raise UsageError(
                f"{settings.longest} new tokens leave no room for a prompt",
                f"the model takes {min(limits)} in all",
            )
        return prompt_limits

    @override
    def encode(self, texts: "Sequence[Text]") -> "list[Encoded]":
        """Tokenize prompts, of decoders without the special tokens at the end of a text."""
        if self.side != "left":
            return super().encode(texts)
        return self.tokenizer.encode_prompts(texts, max_tokens=self.max_tokens)

    @override
    def check(self, item: EncodedExample) -> None:
        """Raise an error for a prompt that is too long, since truncation would cut its end."""
        if item.encoded.truncated and not self.cuts:
            room = f"{self.settings.longest} new ones"
            if self.settings.max_new_tokens is None and self.settings.max_length is not None:
                room = f"new ones up to max_length {self.settings.max_length}"
            raise UsageError(
                f"{item.record.location} has {item.encoded.n + item.encoded.truncated} tokens, and "
                f"the model takes {self.max_tokens}, so that {room} fit",
                "shorten it, lower --max-new-tokens, or cut its end with --max-seq-len",
            )
        self._prompt(item)

    @override
    def cost(self, item: EncodedExample) -> int:
        copies = max(self.settings.num_beams, self.settings.num_return_sequences)
        return (len(item.encoded.ids) + self.settings.longest) * copies

    @override
    def compute(self, items: list[EncodedExample], batch: EncodedBatch) -> list[dict[str, Any]]:
        from zoo.inference.generation.generate import generate

        prompts = [self._prompt(item) for item in items]
        continuations = generate(
            self.decoder,
            self._inputs(prompts),
            self.settings,
            eos_token_ids=self.eos_token_ids,
            row_ids=[item.row_id for item in items],
            logits_processor=self.logits_processor,
        )
        count = self.settings.num_return_sequences
        results = []
        for number, prompt in enumerate(prompts):
            prompt_continuations = continuations[number * count : (number + 1) * count]
            sequences = [self._result(prompt, tokens) for tokens in prompt_continuations]
            result = dict(sequences[0])
            result[NEW_TOKENS] = sum(len(tokens) for tokens in prompt_continuations)
            if count > 1:
                result["sequences"] = sequences
            results.append(result)
        return results

    @override
    def join_result(
        self, item: EncodedExample, added: dict[str, Any], *, arrays: bool = False
    ) -> dict[str, Any]:
        shown = {key: value for key, value in added.items() if key != NEW_TOKENS}
        return super().join_result(item, shown, arrays=arrays)

    def stream_text(
        self, record: TextExample, row_id: int = 0
    ) -> Generator[str, None, "GenerationEnd"]:
        """Generate a continuation of one text and yield its text token by token.

        Returns:
            how it ends.
        """
        if self.settings.num_beams > 1:
            raise UsageError("beam search finds a text at its end", "stream without beams")
        from zoo.inference.generation.generate import stream

        self.validate(record)
        (encoded,) = self.encode([self.prepare(record.text)])
        item = EncodedExample(record, encoded, row_id)
        self.check(item)
        prompt = self._prompt(item)
        tokens = stream(
            self.decoder,
            self._inputs([prompt]),
            self.settings,
            eos_token_ids=self.eos_token_ids,
            row_id=row_id,
            logits_processor=self.logits_processor,
        )
        ends = self.eos_token_ids
        stopped: Literal["end", "length"] = "length"
        count = 0

        def new_tokens() -> Iterator[int]:
            nonlocal stopped, count
            for token in tokens:
                count += 1
                if token in ends:
                    stopped = "end"
                else:
                    yield token

        decode = self.tokenizer.targets.decode
        try:
            yield from stream_text(new_tokens(), decode, self._preceding(prompt))
        except NonFiniteError as error:
            raise self.with_model_name(error) from error
        return GenerationEnd(stopped, count)

    def _inputs(self, prompts: Sequence[Sequence[int]]) -> "dict[str, Tensor]":
        from zoo.inference.generation.decoder import pad

        # ONNX Runtime copies its inputs from the CPU to its device.
        device = "cpu" if self.session.backend == "onnx" else self.session.device
        inputs = pad(prompts, side=self.side, pad_id=self.tokenizer.pad_id, device=device)
        return inputs | self._starts(len(prompts), device)

    def _starts(self, count: int, device: str) -> "dict[str, Tensor]":
        """Return the first tokens of the decoder of an encoder-decoder."""
        return {}

    def _prompt(self, item: EncodedExample) -> list[int]:
        """Return the tokens of a prompt; for an empty one, the beginning-of-sequence token."""
        if item.encoded.ids:
            return item.encoded.ids
        start = self.settings.bos_token_id
        if start is None or start >= self.vocab_size:
            start = self.tokenizer.role_id("bos")
        if start is None:
            raise UsageError(
                f"{item.record.location} is empty", "give the model a word to start from"
            )
        return [start]

    def _preceding(self, prompt: list[int]) -> list[int]:
        """Return the tokens before the new ones, on which the decoding of text depends."""
        return prompt if self.side == "left" else []

    def _result(self, prompt: list[int], new_tokens: list[int]) -> dict[str, Any]:
        stopped = "length"
        if new_tokens and new_tokens[-1] in self.eos_token_ids:
            new_tokens = new_tokens[:-1]
            stopped = "end"
        preceding = self._preceding(prompt)
        decode = self.tokenizer.targets.decode
        prefix_length = len(decode(preceding)) if preceding else 0
        text = decode([*preceding, *new_tokens])
        return {"generated": text[prefix_length:], "stopped": stopped}
