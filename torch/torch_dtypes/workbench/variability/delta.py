"""Delta debugging: find the smallest sets of items that together make a run fail."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

__all__ = ["Search", "responsible"]


class Search:
    """Tests sets of items, each once.

    Args:
        fails: a function that runs with only these items perturbed, and returns whether the run
            fails.
    """

    def __init__(self, fails: Callable[[tuple[Hashable, ...]], bool]) -> None:
        self._fails = fails
        self.known: dict[frozenset[Hashable], bool] = {frozenset(): False}

    def fails(self, items: Sequence[Hashable]) -> bool:
        key = frozenset(items)
        if key not in self.known:
            self.known[key] = self._fails(tuple(items))
        return self.known[key]

    @property
    def runs(self) -> int:
        return len(self.known) - 1

    def minimal(self, items: Sequence[Hashable]) -> list[Hashable]:
        """Find a subset that fails, but not without any one of its items.

        It tries parts of the items, then all but one part, in ever smaller parts. It takes about n
        runs where one item is responsible, n^2 at worst.
        """
        left, parts = list(items), 2
        while len(left) >= 2:
            pieces = [
                piece
                for i in range(parts)
                if (piece := left[i * len(left) // parts : (i + 1) * len(left) // parts])
            ]
            smaller = next((p for p in pieces if self.fails(p)), None)
            if smaller is not None:
                left, parts = smaller, 2
                continue
            rests = (
                [[item for item in left if item not in piece] for piece in pieces]
                if len(pieces) > 2
                else []
            )
            rest = next((r for r in rests if self.fails(r)), None)
            if rest is not None:
                left, parts = rest, max(parts - 1, 2)
            elif parts >= len(left):
                break
            else:
                parts = min(2 * parts, len(left))
        return left


def responsible(items: Sequence[Hashable], search: Search) -> list[list[Hashable]]:
    """Find sets of items that each fail by themselves, but not without any one of their items. The
    items outside of all sets do not fail.

    Returns:
        The sets in the order of discovery; none if all items together do not fail.

    Sources: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", IEEE TSE 28
    (2002), algorithm ddmin; Févotte and Lathuilière, "Debugging and optimization of HPC programs
    with the Verrou tool" (2019), for the search among the remaining items.
    """
    sets, left = [], list(items)
    while left and search.fails(left):
        sets.append(search.minimal(left))
        left = [item for item in left if item not in sets[-1]]
    return sets
