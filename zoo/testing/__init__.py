"""The conformance kit: what every family must show, built-in or not."""
