"""Explain why a run is not finite, or does not learn."""
