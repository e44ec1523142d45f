"""Building blocks of models, for built-in families and third parties' alike."""
