"""One place of PyTorch that is edited: text before, after or in the place of an anchor, a few words
of its file that must stand there once."""

from __future__ import annotations

from dataclasses import dataclass

from .releases import RELEASES, Refused, Release

SOURCES = ("2.6",)  # releases of which more than headers is known
SINCE_2_14 = ("2.14", "2.15")


@dataclass(frozen=True)
class Edit:
    """`file` and `anchor` may name {lists} and {last}, which releases have in other places."""

    file: str
    anchor: str
    where: str  # before, after, instead
    text: str
    why: str
    releases: tuple[str, ...] = tuple(RELEASES)

    def applied(self, source: str, release: Release, path: object) -> str:
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
