"""The conformance tests of a further version of a family."""

from zoo.testing.conformance import FamilyTests


class FurtherVersionTests(FamilyTests):
    """``FamilyTests`` without those that cover all sizes and versions of the family at once."""

    test_config_round_trip = None  # of every size
    test_declarations = None  # of the family
    test_rules_cover_parameters = None  # of every size
    test_fine_tuning = None  # of the size tiny
    test_golden_file = None  # of every version
