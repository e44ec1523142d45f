"""Commands that run models: ``run`` and ``bench``."""
