"""Settings of text generation, which ``zoo.checkpoint.generation_config`` declares and reads."""

from zoo.checkpoint.generation_config import (
    GenerationConfig,
    cap_new_tokens,
    generation_config,
    token_ids,
)

__all__ = ["GenerationConfig", "cap_new_tokens", "generation_config", "token_ids"]
