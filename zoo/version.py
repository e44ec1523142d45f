"""The version of the distribution, for modules that must not import the package's root."""

__version__ = "0.2.0"
