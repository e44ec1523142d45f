"""From texts to batches: corpora on disk, rows packed from them, and the order they come in."""
