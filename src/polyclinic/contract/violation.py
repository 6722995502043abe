"""What a check raises."""


class Violation(Exception):
    """A method breaks the contract; the text says how, and often what would help."""
