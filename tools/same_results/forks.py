"""A process that runs commands of ``zoo`` in forks, for ``tools.same_results``.

The interpreter of an environment runs this file. Most of the time of a short command is the import
of torch; here it is imported once. A line of standard input is a JSON object with the
arguments, the working directory, and the files of standard output and standard error; the answer
is a line with the exit code.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import resource
import sys
from typing import NoReturn

SECONDS = 300  # of the CPU, after which a command is killed
LIBRARIES = (
    "torch._dynamo",
    "torch.export._trace",
    "torch.onnx._internal.exporter._core",
    "onnxruntime.quantization",
    "onnxscript.rewriter",
    "torch.utils.tensorboard",
)


def run(order: dict[str, object]) -> NoReturn:
    """Run a command in this process, and end it."""
    os.chdir(str(order["folder"]))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    for number, path in enumerate((os.devnull, order["output"], order["errors"])):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(str(path), flags), number)
    code = 0
    try:
        importlib.import_module("zoo.cli").main(order["arguments"])
    except SystemExit as ended:
        code = int(ended.code or 0)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def modules() -> list[str]:
    """Return the names of all modules of the program."""
    package = importlib.import_module("zoo")
    names = [module.name for module in pkgutil.walk_packages(package.__path__, "zoo.")]
    return [name for name in names if not name.endswith("__main__")]


def main() -> None:
    for name in (*LIBRARIES, *modules()):
        importlib.import_module(name)
    gc.freeze()  # a fork copies the memory that its garbage collector visits
    with open(os.dup(0)) as orders, open(os.dup(1), "w") as answers:
        for line in orders:
            order = json.loads(line)
            child = os.fork()
            if not child:
                run(order)
            _, status = os.waitpid(child, 0)
            print(os.waitstatus_to_exitcode(status), file=answers, flush=True)


if __name__ == "__main__":
    main()
