"""A format's datasheet: the answers of the workbench on one page, below a verdict."""

from .sheet import Datasheet, datasheet

__all__ = ["Datasheet", "datasheet"]
