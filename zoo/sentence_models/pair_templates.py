"""Texts of pairs that a chat template makes, as a reranker with a language model reads them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError, VerificationError
from zoo.sentence_models.cross_encoder_files import LogitScore, PairSettings

if TYPE_CHECKING:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    from zoo.tokenizers.info import TokenizerInfo
    from zoo.tokenizers.tokenizer import TextTokenizer

ROLES = ("query", "document")  # roles of the messages of a pair
TOKENS = ("bos", "eos")  # special tokens that a template may read, as ``bos_token``
VARIABLES = ("messages", "add_generation_prompt", "tools", "documents", "raise_exception")
# Two pairs whose token ids only have the end of the template in common, see ``ending``.
FILLERS = ("0", "1 2 3 4")


class PairTemplate:
    """The chat template of a reranker.

    The environment is as transformers has it (``utils/chat_template_utils.py``), without its
    functions of time and its JSON: a template that needs them is refused.

    Args:
        source: the template, in Jinja.
        score: how the reranker reads a pair.
        special: role -> special token of the tokenizer.
        origin: what to name in errors.

    Raises:
        VerificationError: the template cannot be reproduced, or does not show both texts.
    """

    def __init__(
        self, source: Any, score: LogitScore, special: Mapping[str, str], origin: str
    ) -> None:
        from jinja2 import TemplateError, meta

        if not isinstance(source, str):
            raise VerificationError(
                f"{origin}: the reranker has no chat template, or several",
                "give one, in chat_template.jinja",
            )
        self.score = score
        self.origin = origin
        self.variables: dict[str, Any] = {}
        for role in TOKENS:
            if role in special:
                self.variables[f"{role}_token"] = special[role]
        environment = _environment()
        try:
            names = meta.find_undeclared_variables(environment.parse(source))
            self._template = environment.from_string(source)
        except (TemplateError, RecursionError) as error:
            raise self._refusal(str(error)) from error
        unknown = names - {*VARIABLES, *self.variables, *environment.globals}
        if unknown:
            raise self._refusal(f"it reads {', '.join(sorted(unknown))}")
        texts = {self._render_for_check(*pair) for pair in (("0", "0"), ("1", "0"), ("0", "1"))}
        if len(texts) < 3:
            raise self._refusal("it does not show the messages of the roles query and document")

    def render(self, query: str, document: str, prompt: str = "") -> str:
        """Return the text of a pair."""
        from jinja2 import TemplateError

        messages = [self._message(*item) for item in zip(ROLES, (query, document), strict=True)]
        if prompt:
            messages.insert(0, self._message("system", prompt))
        try:
            return self._template.render(
                messages=messages,
                tools=None,
                documents=None,
                add_generation_prompt=self.score.add_generation_prompt,
                **self.variables,
            )
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise UsageError(
                f"the chat template of {self.origin} fails for a pair: {str(error)[:200]}",
                "check the template",
            ) from error

    def ending(self, tokenizer: "TextTokenizer", prompt: str = "") -> list[int]:
        """Return the token ids after the texts, which a pair that is cut keeps.

        As in sentence-transformers (``_chat_template_suffix_ids`` of its ``Transformer``), they
        are the tokens that the texts of two pairs have in common at their ends.
        """
        texts = [self.render(filler, filler, prompt) for filler in FILLERS]
        first, second = (plain_ids(tokenizer, text) for text in texts)
        count = 0
        for token, other in zip(reversed(first), reversed(second), strict=False):
            if token != other:
                break
            count += 1
        if count == min(len(first), len(second)):
            return []
        return first[len(first) - count :]

    def _message(self, role: str, text: str) -> dict[str, Any]:
        if self.score.message_format == "flat":
            return {"role": role, "content": text}
        return {"role": role, "content": [{"type": "text", "text": text}]}

    def _render_for_check(self, query: str, document: str) -> str:
        try:
            return self.render(query, document)
        except UsageError as error:
            raise self._refusal(error.what) from error

    def _refusal(self, reason: str) -> VerificationError:
        reason = " ".join(reason.split())
        return VerificationError(
            f"{self.origin}: the chat template of a reranker is not implemented: {reason[:200]}",
            "give a template that reads messages only",
        )


def check_pairs(
    pairs: PairSettings | None, tokenizer: "TokenizerInfo | None", vocab_size: int, origin: str
) -> None:
    """Check that a reranker has the tokens that it reads, and a template that is implemented."""
    if pairs is None or pairs.logit_score is None:
        return
    score = pairs.logit_score
    for token in (score.true_token_id, score.false_token_id):
        if token is not None and not 0 <= token < vocab_size:
            raise VerificationError(
                f"{origin}: LogitScore reads the logit of token {token}, and the model has "
                f"{vocab_size} tokens",
                "correct its config.json",
            )
    if score.message_format is not None and tokenizer is not None:
        source = tokenizer.extra_config.get("chat_template")
        PairTemplate(source, score, tokenizer.special, origin)


def plain_ids(tokenizer: "TextTokenizer", text: str) -> list[int]:
    """Return the token ids of a text, without those that the tokenizer adds to it."""
    (encoded,) = tokenizer.encode([text], max_tokens=None, offsets=False)
    return [token for token, added in zip(encoded.ids, encoded.special, strict=True) if not added]


def _environment() -> "ImmutableSandboxedEnvironment":
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = raise_exception
    # The library has others of these names, or none.
    del environment.filters["tojson"]
    del environment.globals["dict"]
    del environment.globals["lipsum"]
    return environment
