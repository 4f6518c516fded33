"""Words with which an error blames PyTorch, or describes its internals. No error that a user's call
raises has them."""

WORDS = (
    "Unsupported TypeMeta",
    "INTERNAL ASSERT",
    "UNKNOWN_SCALAR",
    "please report",
    "file an issue",
    "nullptr",
)
