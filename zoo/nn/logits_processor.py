"""The interface of rules that change the scores of the next token."""

from abc import ABC, abstractmethod

from torch import Tensor


class LogitsProcessor(ABC):
    """A rule of generation: it changes the scores from which the next token is chosen.

    Called like transformers' class of this name, so that its processors work here.
    Pass it as ``logits_processor=[...]`` to ``zoo.load(...).generate``, or return it from
    ``Family.logits_processors``. It runs after the rules of ``GenerationConfig`` and before
    temperature, top-k and the other settings of sampling.

    A processor may be called several times per step, for rows of different lengths, and rows that
    have ended are left out. Therefore its result should depend on its arguments only.

    Example:
        ...     def __call__(self, input_ids, scores):
    """

    @abstractmethod
    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the scores of the next token.

        Args:
            input_ids: (rows, tokens), int64: the tokens so far, without padding: prompt and new
                tokens, or in an encoder-decoder the tokens of the decoder.
            scores: (rows, vocabulary), float: logits, or in a beam search log-probabilities. Not to
                be changed in place.

        Returns:
            (rows, vocabulary), of the same dtype; ``-inf`` excludes a token.
        """
