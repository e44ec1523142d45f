"""Commands about the installation: ``plugins``, ``doctor`` and ``completion``."""
