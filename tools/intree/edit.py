"""One edited place of PyTorch: a text before, after or in the place of an anchor.

The anchor is a few words that must occur once in the file.
"""

from __future__ import annotations

from dataclasses import dataclass

from .releases import RELEASES, Refused, Release

SOURCES = ("2.6",)  # releases whose sources are known, not only their headers
SINCE_2_14 = ("2.14", "2.15")


@dataclass(frozen=True)
class Edit:
    """`file` and `anchor` may name {lists} and {last}, which differ by release."""

    file: str
    anchor: str
    where: str  # before, after, instead
    text: str
    why: str
    releases: tuple[str, ...] = tuple(RELEASES)

    def apply(self, source: str, release: Release, path: object) -> str:
        anchor = self.anchor.replace("{last}", release.last)
        count = source.count(anchor)
        if count != 1:
            words = " ".join(anchor.split())
            raise Refused(
                f"expected {words!r} once in {path} of PyTorch {release.name}, but got it {count} "
                "times; nothing was changed"
            )
        before, after = source.split(anchor)
        put = {"before": self.text + anchor, "after": anchor + self.text, "instead": self.text}[
            self.where
        ]
        return before + put + after

    def place(self, release: Release) -> str:
        return self.file.replace("{lists}", release.lists)
