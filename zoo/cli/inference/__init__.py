"""Commands that run models: ``zoo run`` and ``zoo bench``."""
