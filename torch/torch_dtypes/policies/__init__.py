"""Policies of a thread: how it rounds and adds up now, by dtype or in a block."""
