"""What tasks that train embeddings share: options, losses, representations, inputs and results."""
