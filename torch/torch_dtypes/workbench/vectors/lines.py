"""Shared parts of the files of vectors."""

KINDS = ("hex", "json", "readmemh")


def digits(bits: int) -> int:
    """Return how many hexadecimal digits a code fills."""
    return -(-bits // 4)
