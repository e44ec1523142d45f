"""The command ``zoo serve``."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli import output
from zoo.cli.options import backend_options, common_options, count_option, hub_options
from zoo.cli.parameter_types import NAMED_REFERENCE, PATH, IntegerRange, LocalPath
from zoo.errors import UsageError

if TYPE_CHECKING:
    from zoo.serving.models import ModelSettings

KEY_VARIABLE = "ZOO_API_KEY"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
MEGABYTE = 1 << 20


@click.command(
    epilog="""\b
Examples:
  zoo serve all-minilm-l6-v2
  zoo serve minilm=./export reranker=./cross-encoder --port 8000
  zoo serve ./model --adapter legal=./adapter    requests name model:legal
  zoo serve ./model --host 0.0.0.0 --api-key-file key.txt --workers 2

\b
Requests:
  curl http://127.0.0.1:8080/v1/embeddings \\
      -H 'Content-Type: application/json' -d '{"input": "a text"}'

OpenAI's /v1/embeddings, /v1/completions and /v1/models; /embed, /embed_all, /embed_sparse, /rerank,
/predict, /tokenize and /info of text-embeddings-inference; /v2/rerank of Cohere; /run/TASK for each
task of zoo run. /docs describes them all."""
)
@click.argument("refs", nargs=-1, required=True, metavar="[NAME=]REF...", type=NAMED_REFERENCE)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option(
    "--port",
    type=IntegerRange(0, 65535),
    default=8080,
    show_default=True,
    metavar="N",
    help="Port to listen at; 0 for any that is free.",
)
@click.option(
    "--api-key",
    "api_keys",
    multiple=True,
    metavar="KEY",
    help=f"Key that requests need; may be repeated.  [default: the variable {KEY_VARIABLE}]",
)
@click.option(
    "--api-key-file",
    type=LocalPath("file"),
    metavar="FILE",
    help="File with a key in each line; other users do not see it in the list of processes.",
)
@click.option(
    "--no-auth", is_flag=True, help="Need no key, although other machines reach the address."
)
@click.option(
    "--adapter",
    multiple=True,
    type=PATH,
    metavar="[MODEL:]NAME=DIR",
    help="Adapter that requests name as MODEL:NAME; may be repeated.",
)
@click.option(
    "--workers",
    type=IntegerRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of processes; they share the memory of weights that are mapped from a file.",
)
@click.option(
    "--reuse-port", is_flag=True, help="Share the port with other servers of the same user."
)
@click.option(
    "--truncate/--no-truncate",
    default=False,
    show_default=True,
    help="Cut texts that are too long, unless a request says otherwise.",
)
@count_option("--max-seq-len", "Largest number of tokens of a text.")
@count_option(
    "--max-batch-tokens", "Tokens that are computed between two turns of a client.", default=2048
)
@count_option("--max-texts", "Largest number of texts of a request.", default=2048)
@count_option("--max-body-mb", "Largest size of a request.", default=2)
@count_option(
    "--max-waiting-mb", "Largest size of all requests that wait, with their results.", default=512
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Smallest level of the log, which is JSON lines on standard error.",
)
@backend_options
@hub_options
@common_options
def command(
    refs: tuple[str, ...],
    host: str,
    port: int,
    api_keys: tuple[str, ...],
    api_key_file: Path | None,
    no_auth: bool,
    adapter: tuple[str, ...],
    workers: int,
    reuse_port: bool,
    truncate: bool,
    max_seq_len: int | None,
    max_batch_tokens: int,
    max_texts: int,
    max_body_mb: int,
    max_waiting_mb: int,
    log_level: str,
    lock: Path | None,
    as_json: bool,
    **load_options: Any,
) -> None:
    """Serve models over HTTP.

    By default only this machine reaches the server. Texts of requests that arrive at the same time
    are computed together.
    """
    keys = _api_keys(api_keys, api_key_file)
    is_local = host in LOOPBACK
    if keys and no_auth:
        raise UsageError("--no-auth and an API key exclude each other", "give one")
    if not is_local and not keys and not no_auth:
        raise UsageError(
            f"other machines reach {host}, and requests need no key",
            "give --api-key or --api-key-file, or --no-auth if a proxy checks requests",
        )
    models = _named_models(refs, adapter)
    _require_packages()
    from zoo.serving.server import Address, listen

    server_socket = listen(Address(host, port, reuse_port))
    _resolve_models(models, load_options, lock)
    from zoo.serving.app import ServerSettings
    from zoo.serving.exchange import Limits
    from zoo.serving.server import serve

    settings = ServerSettings(
        models=models,
        load_options=load_options,
        max_seq_len=max_seq_len,
        api_keys=keys,
        is_local=is_local and not keys and not no_auth,
        limits=Limits(
            max_batch_tokens=max_batch_tokens,
            max_texts=max_texts,
            max_body_bytes=max_body_mb * MEGABYTE,
            max_waiting_bytes=max_waiting_mb * MEGABYTE,
            truncate=truncate,
        ),
    )
    shown_host = f"[{host}]" if ":" in host else host
    url = f"http://{shown_host}:{server_socket.getsockname()[1]}"
    names = [model.name for model in models]

    def announce() -> None:
        output.result(
            {"url": url, "models": names}, [f"serving {', '.join(names)} at {url}"], as_json=as_json
        )

    serve(settings, server_socket, workers=workers, log_level=log_level, on_start=announce)


def _api_keys(api_keys: tuple[str, ...], file: Path | None) -> list[str]:
    """Return the API keys of options, of a file and of the environment."""
    keys = list(api_keys)
    if file is not None:
        from zoo.io.files import read_regular

        lines = read_regular(file, "file of API keys", MEGABYTE).decode("utf-8", "replace")
        keys += lines.split()
        if not keys:
            raise UsageError(f"{file} holds no key", "write one in a line")
    if not keys and os.environ.get(KEY_VARIABLE):
        keys.append(os.environ[KEY_VARIABLE])
    for key in keys:
        if not key or not key.isascii() or any(character.isspace() for character in key):
            raise UsageError("an API key is ASCII without spaces", "give another key")
    return keys


def _named_models(refs: tuple[str, ...], adapters: tuple[str, ...]) -> "list[ModelSettings]":
    """Return the models with their names in requests, and each with its adapters."""
    from zoo.serving.models import ModelSettings

    models: dict[str, ModelSettings] = {}
    for text in refs:
        name, ref = NAMED_REFERENCE.split(text)
        _add(models, ModelSettings(name or _name_of(ref), ref))
    for text in adapters:
        place, separator, folder = text.partition("=")
        if not separator or not place or not folder:
            raise UsageError(f"--adapter {text}: the name is missing", "give NAME=DIR")
        model_name, _, name = place.rpartition(":")
        base = models.get(model_name or next(iter(models)))
        if base is None or base.adapter is not None:
            names = ", ".join(models)
            raise UsageError(
                f"--adapter {text}: no model is called {model_name}", f"there is {names}"
            )
        _add(models, ModelSettings(f"{base.name}:{name}", base.ref, folder))
    return list(models.values())


def _add(models: "dict[str, ModelSettings]", model: "ModelSettings") -> None:
    if model.name in models:
        raise UsageError(f"two models are called {model.name}", "name one: NAME=REF")
    models[model.name] = model


def _name_of(ref: str) -> str:
    """Return the name of a model in requests: the last part of its reference."""
    return os.path.basename(os.path.abspath(ref)) if os.path.exists(ref) else ref


def _require_packages() -> None:
    try:
        import orjson  # noqa: F401
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"zoo serve needs the package {error.name}",
            "pip install starlette uvicorn httptools orjson prometheus-client",
        ) from error


def _resolve_models(
    models: "list[ModelSettings]", load_options: dict[str, Any], lock: Path | None
) -> None:
    """Download and convert models where needed, before processes are started."""
    from zoo.conversion.cache import resolve_adapted

    for model in models:
        adapters = [] if model.adapter is None else [model.adapter]
        resolve_adapted(
            model.ref,
            adapters,
            revision=load_options["revision"],
            offline=load_options["offline"],
            lock=lock,
        )
