"""Commands that train: ``pretrain``, ``corpus`` and ``check``."""
