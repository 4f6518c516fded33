"""Words by which an error blames PyTorch, or speaks of its insides: none that a user's call raises
has them."""

WORDS = (
    "Unsupported TypeMeta",
    "INTERNAL ASSERT",
    "UNKNOWN_SCALAR",
    "please report",
    "file an issue",
    "nullptr",
)
