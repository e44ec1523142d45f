"""The conformance kit: what every family must pass, and the comparison with a reference.

``zoo.testing.conformance`` needs pytest.
"""
