"""Generation by CTranslate2's own search, whose settings have other names."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar
from warnings import warn

from zoo.errors import UsageError
from zoo.inference.session import BackendWarning
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor

    from zoo.checkpoint.generation_config import GenerationConfig
    from zoo.inference.generation.processors import Processor

# Settings that its search does not have, or not with the same result, and their neutral values.
REFUSED_SETTINGS: Mapping[str, Any] = {
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "sequence_bias": None,
    "begin_suppress_tokens": None,
    "exponential_decay_length_penalty": None,
}
ALMOST_0 = 1e-9  # A length penalty of 0 makes it end a search earlier.
REMEDY = "leave it out, or use --backend cpu with the model that it was exported from"


@dataclass(frozen=True)
class GenerationRow:
    """A row to generate for, as token ids."""

    source: list[int]  # the source of an encoder-decoder, or the prompt of a decoder
    prefix: list[int]  # first tokens of the target; empty for a decoder


@dataclass(frozen=True)
class LengthLimits:
    """Limits on the number of new tokens of a row."""

    max_new_tokens: int
    min_new_tokens: int


class CTranslate2Search(ABC):
    """The search of CTranslate2: a ``zoo.inference.generation.decoder.SequenceGenerator``."""

    counts_prompt: ClassVar[bool]  # whether rules on repetitions read the prompt as well

    def __init__(self, model: Any, vocabulary: "TextVocabulary") -> None:
        self._model = model
        self._vocabulary = vocabulary

    @abstractmethod
    def rows(
        self, inputs: "Mapping[str, Tensor]", settings: "GenerationConfig"
    ) -> list[GenerationRow]:
        """Return the rows of a batch, without padding."""

    @abstractmethod
    def run(
        self, rows: Sequence[GenerationRow], length: LengthLimits, arguments: Mapping[str, Any]
    ) -> list[list[tuple[list[int], float]]]:
        """Return the best sequences of each row, and their scores if the arguments ask for them."""

    @abstractmethod
    def steps(
        self, row: GenerationRow, length: LengthLimits, arguments: Mapping[str, Any]
    ) -> Iterator[int]:
        """Yield the tokens of a row as they are found, by greedy search."""

    def generate_sequences(
        self,
        inputs: "Mapping[str, Tensor]",
        settings: "GenerationConfig",
        limits: Sequence[int],
        eos_token_ids: Sequence[int],
        logits_processor: "Sequence[Processor]" = (),
    ) -> list[list[int]]:
        """Return the new tokens of each row; see ``SequenceGenerator``."""
        arguments = self._arguments(settings, eos_token_ids, logits_processor)
        rows = self.rows(inputs, settings)
        groups: dict[tuple[LengthLimits, int], list[int]] = {}
        for place, (row, limit) in enumerate(zip(rows, limits, strict=True)):
            length = self._length(row, limit, settings, eos_token_ids)
            # Beams of prompts of several lengths cannot end at once.
            prompt_length = 0
            if self.counts_prompt and settings.num_beams > 1:
                prompt_length = len(row.source)
            groups.setdefault((length, prompt_length), []).append(place)
        sequences: dict[int, list[list[int]]] = {}
        for (length, _), places in groups.items():
            group = [rows[place] for place in places]
            best = self._best(group, length, settings, arguments)
            sequences.update(zip(places, best, strict=True))
        results: list[list[int]] = []
        for place in range(len(rows)):
            results += sequences[place]
        return results

    def stream_tokens(
        self,
        inputs: "Mapping[str, Tensor]",
        settings: "GenerationConfig",
        limits: Sequence[int],
        eos_token_ids: Sequence[int],
        logits_processor: "Sequence[Processor]" = (),
    ) -> Iterator[int]:
        """Yield the new tokens of a single row; see ``SequenceGenerator``."""
        arguments = self._arguments(settings, eos_token_ids, logits_processor)
        (row,) = self.rows(inputs, settings)
        (limit,) = limits
        length = self._length(row, limit, settings, eos_token_ids)
        last_token = forced_last_token(settings)
        ended = False
        if length.max_new_tokens > 0:
            for token in self.steps(row, length, arguments):
                ended = token in eos_token_ids
                yield token
        if last_token is not None and not ended:
            yield last_token

    def _best(
        self,
        rows: Sequence[GenerationRow],
        length: LengthLimits,
        settings: "GenerationConfig",
        arguments: Mapping[str, Any],
    ) -> list[list[list[int]]]:
        """Return the best sequences of each row, as many as the settings ask for."""
        count = settings.num_return_sequences
        last_token = forced_last_token(settings)
        if length.max_new_tokens < 1:  # the only token is forced
            assert last_token is not None, "there is room for a token"
            return [[[last_token]] + [[]] * (count - 1) for _ in rows]
        beam_arguments: dict[str, Any] = {}
        if settings.num_beams > 1:
            # A beam search that is cut scores its sequences with the forced token.
            num_hypotheses = count if last_token is None else settings.num_beams
            beam_arguments = {
                "num_hypotheses": num_hypotheses,
                "return_scores": num_hypotheses > 1,
            }
            if settings.early_stopping is not True:
                # All sequences up to the longest are searched.
                beam_arguments["patience"] = float(length.max_new_tokens + 1)
        ends = arguments["end_token"]
        results = []
        for hypotheses in self.run(rows, length, {**arguments, **beam_arguments}):
            if last_token is not None:
                penalty = settings.length_penalty
                hypotheses = [
                    _with_last_token(tokens, score, last_token, ends, penalty)
                    for tokens, score in hypotheses
                ]
                hypotheses.sort(key=lambda hypothesis: -hypothesis[1])  # stable
            sequences = [tokens for tokens, _ in hypotheses[:count]]
            results.append(sequences + [[]] * (count - len(sequences)))
        return results

    def _length(
        self, row: GenerationRow, limit: int, settings: "GenerationConfig", ends: Sequence[int]
    ) -> LengthLimits:
        """Return the limits for a row; a forced last token is not searched for."""
        max_new_tokens = limit if forced_last_token(settings) is None else limit - 1
        if not ends:
            return LengthLimits(max_new_tokens, 0)
        is_prompt = self.counts_prompt and not row.prefix
        previous_tokens = len(row.source) if is_prompt else 1
        min_new_tokens = settings.min_new_tokens
        if not min_new_tokens:
            min_new_tokens = max(0, settings.min_length - previous_tokens)
        return LengthLimits(max_new_tokens, min(max_new_tokens, min_new_tokens))

    def _arguments(
        self, settings: "GenerationConfig", ends: Sequence[int], custom: "Sequence[Processor]"
    ) -> dict[str, Any]:
        """Return arguments of CTranslate2, without limits on the length.

        Raises:
            UsageError: CTranslate2 does not have a setting.
        """
        beams = settings.num_beams
        if settings.samples:
            raise UsageError("CTranslate2 samples with other random numbers", REMEDY)
        if custom:
            raise UsageError("CTranslate2 takes no logits processors", REMEDY)
        for name, neutral in REFUSED_SETTINGS.items():
            value = getattr(settings, name)
            if value not in (neutral, ()):
                raise UsageError(f"CTranslate2 does not generate with {name} {value}", REMEDY)
        if self.counts_prompt and settings.no_repeat_ngram_size:
            raise UsageError(
                "CTranslate2 does not count the n-grams of a prompt, as no_repeat_ngram_size does",
                REMEDY,
            )
        if beams > 1 and len(ends) > 1:
            raise UsageError(
                "CTranslate2 searches with beams for one end-of-sequence token", REMEDY
            )
        forced_last_token(settings)
        single = [(end,) for end in ends]
        words = [list(word) for word in settings.bad_words_ids or () if tuple(word) not in single]
        words += [[token] for token in settings.suppress_tokens or ()]
        if self.counts_prompt and [word for word in words if len(word) > 1]:
            raise UsageError(
                "CTranslate2 does not read the prompt for the words of bad_words_ids", REMEDY
            )
        if beams > 1:
            _warn_of_beams(settings, rules=bool(words))
        length_penalty = 1.0
        if beams > 1:
            length_penalty = settings.length_penalty or ALMOST_0
        return {
            "beam_size": beams,
            "length_penalty": length_penalty,
            "no_repeat_ngram_size": settings.no_repeat_ngram_size,
            "suppress_sequences": [self._vocabulary.words(word) for word in words],
            "end_token": list(ends),
        }


def _warn_of_beams(settings: "GenerationConfig", *, rules: bool) -> None:
    """Warn where the runtime's search differs from the settings."""
    differences = []
    if settings.early_stopping is False and settings.length_penalty > 0:
        differences.append('it ends as with early_stopping "never"')
    lengths = settings.min_length or settings.min_new_tokens
    rules = rules or bool(lengths or settings.no_repeat_ngram_size)
    if rules and not settings.renormalize_logits:
        differences.append("it has renormalize_logits, since tokens are excluded")
    if settings.forced_bos_token_id is not None and not lengths:
        differences.append("no text ends after forced_bos_token_id")
    if differences:
        warn(
            f"beam search in CTranslate2 may find other texts: {'; '.join(differences)}",
            BackendWarning,
            stacklevel=6,
        )


def forced_last_token(settings: "GenerationConfig") -> int | None:
    """Return the token that the last possible one has to be; ``None`` for any."""
    from zoo.checkpoint.generation_config import token_ids

    tokens = token_ids(settings.forced_eos_token_id)
    if len(tokens) > 1:
        raise UsageError("CTranslate2 takes one forced_eos_token_id", "give one")
    return tokens[0] if tokens else None


def _with_last_token(
    tokens: list[int], score: float, last: int, ends: Sequence[int], penalty: float
) -> tuple[list[int], float]:
    """Return a sequence that ends in a forced token, which is certain, and its score."""
    if tokens and tokens[-1] in ends:
        return tokens, score
    shorter = len(tokens) ** penalty
    longer = (len(tokens) + 1) ** penalty
    return [*tokens, last], score * shorter / longer


def unpadded(inputs: "Mapping[str, Tensor]") -> list[list[int]]:
    """Return the tokens of each row, padded on either side."""
    ids = inputs["input_ids"]
    mask = inputs.get("attention_mask")
    if mask is None:
        return [list(map(int, row)) for row in ids]
    return [row[row_mask.bool()].tolist() for row, row_mask in zip(ids, mask, strict=True)]


class TextVocabulary:
    """The tokens of a model, which CTranslate2 takes and returns as text."""

    def __init__(self, tokens: Sequence[str], config: Mapping[str, Any]) -> None:
        self._tokens = list(tokens)
        self._ids = {token: number for number, token in enumerate(tokens)}
        self.start: str | None = config.get("decoder_start_token")
        self._bos = config.get("bos_token")
        self._eos = config.get("eos_token")

    def words(self, ids: Sequence[int]) -> list[str]:
        """Return the text of tokens."""
        return [self._tokens[number] for number in ids]

    def ids(self, words: Sequence[str]) -> list[int]:
        """Return the ids of tokens."""
        return [self._ids[word] for word in words]

    def source(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens of a source; CTranslate2 runs none with special tokens only."""
        words = self.words(ids)
        content = len(words)
        if words[:1] == [self._bos] or (content == 1 and words == [self._eos]):
            content -= 1
        if len(words) > 1:
            if words[-1] == self._eos:
                content -= 1
            elif words[-2] == self._eos:  # a language is last
                content -= 2
        if content == 0:
            raise UsageError(
                "a source has no tokens but special ones, and CTranslate2 does not run it",
                "leave the text out, or use --backend cpu with the model that was exported",
            )
        return words

    def target(self, ids: Sequence[int]) -> list[str]:
        """Return the first tokens of a target, without the one that the model begins with."""
        words = self.words(ids)
        if self.start is None:
            return words
        if words[0] != self.start:
            raise UsageError(
                f"a target begins with {words[0]!r}, and the model for CTranslate2 with "
                f"{self.start!r}",
                REMEDY,
            )
        return words[1:]


class TranslatorSearch(CTranslate2Search):
    """CTranslate2Search for the target of a source."""

    counts_prompt: ClassVar[bool] = False

    def __init__(self, model: Any, vocabulary: TextVocabulary, start: int) -> None:
        super().__init__(model, vocabulary)
        self._start = start

    @override
    def rows(
        self, inputs: "Mapping[str, Tensor]", settings: "GenerationConfig"
    ) -> list[GenerationRow]:
        sources = unpadded(inputs)
        starts = inputs.get("decoder_input_ids")
        first_token = settings.forced_bos_token_id
        rows = []
        for place, source in enumerate(sources):
            prefix = [self._start] if starts is None else starts[place].tolist()
            if first_token is not None and len(prefix) == 1:
                prefix.append(first_token)
            rows.append(GenerationRow(source, prefix))
        return rows

    @override
    def run(
        self, rows: Sequence[GenerationRow], length: LengthLimits, arguments: Mapping[str, Any]
    ) -> list[list[tuple[list[int], float]]]:
        results = self._model.translate_batch(
            [self._vocabulary.source(row.source) for row in rows],
            [self._vocabulary.target(row.prefix) for row in rows],
            return_end_token=True,
            **self._limits(length),
            **arguments,
        )
        hypotheses = []
        for result in results:
            scores = result.scores or [0.0]
            sequences = [self._vocabulary.ids(tokens) for tokens in result.hypotheses]
            hypotheses.append(list(zip(sequences, scores, strict=True)))
        return hypotheses

    @override
    def steps(
        self, row: GenerationRow, length: LengthLimits, arguments: Mapping[str, Any]
    ) -> Iterator[int]:
        source = self._vocabulary.source(row.source)
        prefix = self._vocabulary.target(row.prefix)
        for step in self._model.generate_tokens(
            source, prefix, **self._limits(length), **_step_arguments(arguments)
        ):
            yield step.token_id

    def _limits(self, length: LengthLimits) -> dict[str, int]:
        return {
            "max_decoding_length": length.max_new_tokens,
            "min_decoding_length": length.min_new_tokens,
            "max_input_length": 0,
        }


class GeneratorSearch(CTranslate2Search):
    """CTranslate2Search for the continuation of a prompt."""

    counts_prompt: ClassVar[bool] = True

    @override
    def rows(
        self, inputs: "Mapping[str, Tensor]", settings: "GenerationConfig"
    ) -> list[GenerationRow]:
        rows = [GenerationRow(ids, []) for ids in unpadded(inputs)]
        has_short_prompt = any(len(row.source) == 1 for row in rows)
        if settings.forced_bos_token_id is not None and has_short_prompt:
            raise UsageError("CTranslate2 does not force the token after a prompt of one", REMEDY)
        return rows

    @override
    def run(
        self, rows: Sequence[GenerationRow], length: LengthLimits, arguments: Mapping[str, Any]
    ) -> list[list[tuple[list[int], float]]]:
        results = self._model.generate_batch(
            [self._vocabulary.words(row.source) for row in rows],
            max_length=length.max_new_tokens,
            min_length=length.min_new_tokens,
            include_prompt_in_result=False,
            return_end_token=True,
            **arguments,
        )
        hypotheses = []
        for result in results:
            scores = result.scores or [0.0]
            hypotheses.append(list(zip(result.sequences_ids, scores, strict=True)))
        return hypotheses

    @override
    def steps(
        self, row: GenerationRow, length: LengthLimits, arguments: Mapping[str, Any]
    ) -> Iterator[int]:
        for step in self._model.generate_tokens(
            self._vocabulary.words(row.source),
            max_length=length.max_new_tokens,
            min_length=length.min_new_tokens,
            **_step_arguments(arguments),
        ):
            yield step.token_id


def _step_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a search token by token takes."""
    beam_arguments = ("beam_size", "length_penalty")
    return {name: value for name, value in arguments.items() if name not in beam_arguments}
