"""Commands on checkpoints: ``convert``, ``verify``, ``export``, ``info``, ``fetch`` and lists."""
