"""The fastest backend of a model on this machine, as ``zoo bench`` measured it."""

import contextlib
import logging
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from blake3 import blake3

from zoo.checkpoint import Checkpoint
from zoo.errors import PluginError, UsageError
from zoo.exporting.targets import find_target, state_of_target, target_names
from zoo.inference import BACKENDS
from zoo.io.cores import usable_cores
from zoo.io.json import encode_json
from zoo.io.output.atomic import atomic_write
from zoo.io.paths import home
from zoo.plugins import state_of_family
from zoo.version import __version__, package_version

if TYPE_CHECKING:
    from zoo.inference.bench import Measurement

LOG = logging.getLogger("zoo")
PACKAGES = ("torch", "onnxruntime", "openvino", "ctranslate2", "gguf")


class BackendSpeeds(msgspec.Struct, frozen=True):
    """Speeds of backends whose outputs agree."""

    tokens_per_second: dict[str, float]  # backend -> tokens per second of a batch
    # backend -> package -> version, of the backends that are export targets
    versions: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)

    @property
    def fastest(self) -> str | None:
        """The backend with the highest speed; ``None`` if any has another version by now."""
        speeds = dict(self.tokens_per_second)
        for backend, measured in self.versions.items():
            installed = _versions(backend)
            if any(installed.get(name, version) != version for name, version in measured.items()):
                return None
            if not measured.keys() <= installed.keys():  # as llama.cpp in another folder
                speeds.pop(backend, None)
        known = {*BACKENDS, *target_names()}
        return max(speeds.keys() & known, key=speeds.__getitem__, default=None)


def _versions(backend: str) -> dict[str, str]:
    """Return package -> version of an export target and its plugin."""
    with contextlib.suppress(UsageError, PluginError):
        state = state_of_target(backend)
        versions = find_target(backend).versions()
        return {**versions, **({"plugin": state} if state else {})}
    return {}


def save_measurements(
    checkpoint: Checkpoint,
    threads: int | None,
    measurements: "Sequence[tuple[str | None, Measurement]]",
) -> dict[str, str]:
    """Record speeds in each dtype in which several backends were measured."""
    from zoo.inference.bench import TOLERANCE  # slow to import

    fastest = {}
    for requested in dict.fromkeys(dtype for dtype, _ in measurements):
        measured = [m for dtype, m in measurements if dtype == requested]
        # a runtime that rounds differently is not chosen in place of another one
        same = [m for m in measured if m.difference <= TOLERANCE.get(m.dtype, 0)]
        if checkpoint.head.has_cache:  # a runtime's own search has other settings
            same = [m for m in same if m.backend in BACKENDS]
        speeds = {m.backend: m.tokens_per_second for m in same}
        if len(speeds) < 2:
            continue
        dtypes = dict.fromkeys(m.dtype for m in same)
        for dtype in {requested, *dtypes} if len(dtypes) == 1 else {requested}:
            save_speeds(checkpoint, threads, speeds, dtype)
        fastest[" and ".join(dtypes)] = max(speeds, key=speeds.__getitem__)
    return fastest


def save_speeds(
    checkpoint: Checkpoint,
    threads: int | None,
    speeds: Mapping[str, float],
    dtype: str | None = None,
) -> str:
    """Record the speeds of backends, and return the fastest one."""
    # A record is a file under ``$ZOO_HOME/backends``. It is for one model, dtype, kind of CPU,
    # number of threads and set of versions, of libraries and of the family's plugin: where any of
    # them differs, nothing was measured. Backends are compared at one dtype, since the results of
    # another differ.
    targets = [name for name in speeds if name not in BACKENDS]
    record = BackendSpeeds(dict(speeds), {name: _versions(name) for name in targets})
    path = _record_path(checkpoint, threads, dtype)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, encode_json(msgspec.to_builtins(record)))
    except OSError as error:  # a shared home may be read-only
        LOG.warning("%s cannot be written: %s", path, error.strerror)
    return max(speeds, key=speeds.__getitem__)


def fastest_backend(
    checkpoint: Checkpoint, threads: int | None = None, dtype: str | None = None
) -> str | None:
    """Return the fastest backend of a model; ``None`` if none was measured here."""
    try:
        content = _record_path(checkpoint, threads, dtype).read_bytes()
        return msgspec.json.decode(content, type=BackendSpeeds).fastest
    except (OSError, msgspec.DecodeError, ValueError):  # absent, or damaged: measured again
        return None


def _record_path(checkpoint: Checkpoint, threads: int | None, dtype: str | None) -> Path:
    versions = [f"{name} {package_version(name)}" for name in PACKAGES]
    family = state_of_family(checkpoint.family.name)
    compute = [str(threads or usable_cores()), dtype or "default"]
    surroundings = [__version__, _processor(), *compute, *versions, family]
    key = checkpoint.identity + "\n".join(surroundings).encode()
    digest = blake3(key).hexdigest()[:32]
    return home() / "backends" / f"{digest}.json"


def _processor() -> str:
    """Return the name of the CPU, as far as the platform tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
