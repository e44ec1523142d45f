"""A server of two processes that cannot be started without a file.

python -m tests.serving.failing_workers FILE
python -m tests.serving.failing_workers FOLDER --slow

With ``--slow``, each process writes a file into a folder, and takes a minute to start.
"""

import functools
import os
import socket
import sys
import tempfile
import time
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from zoo.errors import SourceError, ZooError
from zoo.serving import server
from zoo.serving.logs import log_as_json
from zoo.serving.protocol import CONNECTION


def create(file: Path) -> Starlette:
    """Return an application; called in each process."""
    if not file.exists():
        sys.exit(SourceError.exit_code)
    routes = [Route("/", answer), Route("/pid", answer_pid), Route("/nodelay", answer_nodelay)]
    return Starlette(routes=routes)


def create_slowly(folder: Path) -> Starlette:
    """Return an application after a minute."""
    (folder / str(os.getpid())).touch()
    time.sleep(60)
    return Starlette()


async def answer(request: Request) -> PlainTextResponse:
    return PlainTextResponse("served")


async def answer_pid(request: Request) -> PlainTextResponse:
    """Answer with the process that answers."""
    return PlainTextResponse(str(os.getpid()))


async def answer_nodelay(request: Request) -> PlainTextResponse:
    """Answer with the option of the connection that turns Nagle's algorithm off."""
    accepted = request.scope[CONNECTION].transport.get_extra_info("socket")
    option = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    return PlainTextResponse(str(option))


def main() -> None:
    server.FIRST_PAUSE = 0.1
    server.LONGEST_PAUSE = 0.2
    server.MAX_FAILED_STARTS = 2
    log_as_json("info")
    server_socket = server.listen(server.Address("127.0.0.1", 0))
    function = create_slowly if "--slow" in sys.argv else create
    config = server._config(functools.partial(function, Path(sys.argv[1])), workers=2)
    url = f"http://127.0.0.1:{server_socket.getsockname()[1]}"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        try:
            server._Workers(config, [server_socket], lambda: print(url, flush=True)).run()
        except ZooError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
