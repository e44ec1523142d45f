"""Versions of this distribution and of packages; imports nothing, not even the package's root."""

__version__ = "0.2.0"
# a package -> distributions that install it, where there are several
_DISTRIBUTIONS = {"onnxruntime": ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml")}


def package_version(name: str) -> str | None:
    """Return the version of an installed package; ``None`` if it is not installed."""
    from importlib import metadata  # takes half the time of ``zoo --help``

    for distribution in _DISTRIBUTIONS.get(name, (name,)):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None
