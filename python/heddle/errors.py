"""The errors of Heddle. Each has a stable code and says what was wrong, and what must be or can be done."""


class HeddleError(Exception):
    """Every error that Heddle raises on purpose. `code` is stable, for programs: 'HEDDLE_ARGUMENT', 'HEDDLE_RANK_LOST', …"""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ArgumentError(HeddleError):
    """An argument has a value that it cannot have."""

    def __init__(self, argument: str, was: object, must_be: str) -> None:
        super().__init__("HEDDLE_ARGUMENT", f"{argument} is {was}; it must be {must_be}")
        self.argument = argument


class DisposedError(HeddleError):
    """What was used has been destroyed."""

    def __init__(self, what: str) -> None:
        super().__init__("HEDDLE_DISPOSED", f"{what} was disposed; create a new one")


class UnavailableError(HeddleError):
    """Something that this machine lacks, with its remedy."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__("HEDDLE_UNAVAILABLE", f"{what}. {remedy}")


class RankLostError(HeddleError):
    """A wait for a rank gave up. Results mean nothing from that round on: the others mask the rank, or make their Buffers anew without it."""

    def __init__(self, message: str, rank: int, round: int) -> None:
        super().__init__("HEDDLE_RANK_LOST", message)
        self.rank = rank
        #: Counted from 1.
        self.round = round
