"""Training: a run is a pure function of its settings, on one device or on several."""
