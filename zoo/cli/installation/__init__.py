"""Commands on the installation: ``plugins``, ``doctor`` and ``completion``."""
