"""What the files of vectors have in common."""

KINDS = ("hex", "json", "readmemh")


def digits(bits: int) -> int:
    """How many hexadecimal digits a code fills."""
    return -(-bits // 4)
