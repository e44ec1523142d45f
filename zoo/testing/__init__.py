"""The conformance kit as pytest classes; its checks are in ``zoo.conformance``."""
