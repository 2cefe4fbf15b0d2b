"""What no check expects as an answer."""


class Stranger:
    """Be an object of which nothing is known; it looks the same in each process, as the name of a test must."""

    def __repr__(self) -> str:
        return "Stranger()"
