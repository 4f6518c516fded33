"""Summarise a comparison in sentences: runs that diverged, failed, did not learn or guess."""

from ...targets.lookup import target
from .data import CLASSES, Guess
from .recipes import AFTER, THROUGHOUT

EVEN = Guess(CLASSES, 100 / CLASSES)


def over_seeds(summaries):
    """Return a title's words on the seeds. After an interruption some summaries have fewer than
    others."""
    counts = {summary.seeds for summary in summaries}
    most = max(counts, default=1)
    return "" if most == 1 else f", mean of {'up to ' * (len(counts) > 1)}{most} seeds"


def units(is_text=False):
    """Return the sentence on the units of the tables."""
    if is_text:
        return (
            "Perplexity of the test text by bytes, exp(loss), and its gap to float32, seed by "
            "seed; accuracy of the next byte in percent; loss in nats."
        )
    return (
        "Accuracy on the test data in percent; gap to float32 in points, seed by seed; loss in "
        "nats."
    )


def notes(summaries, guess=EVEN, is_text=False):
    """Return sentences that explain the table: its units, and the runs that diverged."""
    lines = [units(is_text)]
    if any(s.accuracy and s.accuracy[-1].std is not None for s in summaries):
        lines.append("± is the standard deviation over the seeds.")
    most = max((s.seeds for s in summaries), default=1)
    lines += [
        f"{s.label} was interrupted: {s.seeds} of {most} seeds."
        for s in summaries
        if s.seeds < most
    ]
    idle = did_not_learn(summaries, guess)
    for summary in summaries:
        for seed, epoch in summary.diverged:
            rest = "; its row is the mean of the other seeds" if summary.accuracy else ""
            where = f"at epoch {epoch} with seed {seed}"
            lines.append(f"{summary.label} diverged {where} (loss not finite){rest}.")
        if summary.failed:
            lines.append(
                f"{summary.label} failed with {len(summary.failed)} of {summary.seeds} seeds: "
                f"{summary.why}"
            )
        if summary in idle:
            lines.append(f"{summary.label} {_describe_idleness(summary, guess)}")
    lines += [f"{s.label} {_describe_guess(s)}" for s in guesses_after_training(summaries, guess)]
    if after := [
        recipe for recipe in AFTER if any(summary.recipe == recipe for summary in summaries)
    ]:
        lines.append(
            f"{', '.join(after)}: the epochs are float32's, the last is tested after rounding."
        )
    return lines


_GRADIENTS_LOST = (
    "Gradients may be lost below the smallest number or saturate at the largest one: try another "
    "--loss-scale"
)
_MASTERS = "try --recipe master, which has float32 masters"
_ADVICE = {
    "nearest": (
        "Updates below half a unit in the last place are lost when weights round to nearest: "
        f"{_MASTERS}."
    ),
    "all": f"Gradients may be lost below the smallest number: {_MASTERS} and takes a --loss-scale.",
    "master": f"{_GRADIENTS_LOST}, and --loss-dtype float32.",
}


def _describe_idleness(summary, guess):
    recipe = summary.recipe
    if recipe == "all" and target(summary.dtype).rounding.startswith("nearest"):
        recipe = "nearest"
    return (
        f"did not learn: its loss is {summary.train_loss:.2f}, and guessing among {guess.classes} "
        f"classes has {guess.loss:.2f}. {_ADVICE.get(recipe, f'{_GRADIENTS_LOST}.')}"
    )


def _describe_guess(summary):
    return (
        f"guesses on the test data ({summary.accuracy[-1].mean:.1f} %), though its training "
        f"loss fell to {summary.train_loss:.2f}. Normalisation "
        "layers, where it has some, may have lost their running statistics, whose updates (0.1 "
        "of a difference) are below half a unit in the dtype's last place: try --recipe mixed, "
        "which keeps them in float32, as module.float() after model.to(dtype) does in code of "
        "your own."
    )


def failures(summaries, guess=EVEN):
    """Return the reasons, by label, of summaries that diverged or failed with all seeds, or did not
    learn."""
    idle = did_not_learn(summaries, guess)
    reasons = {}
    for summary in summaries:
        if not summary.accuracy and not summary.diverged:
            reasons[summary.label] = f"failed: {summary.why}"
        elif not summary.accuracy:
            epochs = sorted({epoch for _, epoch in summary.diverged})
            where = f"diverged at epoch {epochs[0]}" + (
                f" to {epochs[-1]}" if len(epochs) > 1 else ""
            )
            where += f" with all {summary.seeds} seeds" if summary.seeds > 1 else ""
            reasons[summary.label] = (
                f"{where}. {summary.why}" if summary.why else f"{where} (loss not finite)."
            )
        elif summary in idle:
            reasons[summary.label] = _describe_idleness(summary, guess)
    return reasons


def losses_of_seeds(summaries):
    """Return a sentence, by label, on each summary that lost some of its seeds."""
    return {
        s.label: (
            f"{s.lost[0]} of {s.seeds} seeds {s.lost[1]}; its figures are the mean of the others."
        )
        + (f" {s.why}" if s.why else "")
        for s in summaries
        if s.lost[0] and s.accuracy
    }


def did_not_learn(summaries, guess=EVEN):
    """Return the summaries whose final training loss is as high as a guess's, if float32's is
    lower."""
    stuck = 0.95 * guess.loss
    if not any(
        s.is_baseline and s.train_loss is not None and s.train_loss < stuck for s in summaries
    ):
        return []
    return [
        s
        for s in summaries
        if s.recipe not in AFTER and s.train_loss is not None and s.train_loss > stuck
    ]


def guesses_after_training(summaries, guess=EVEN):
    """Return summaries in a dtype whose training loss fell to less than half of a guess's, though
    their test accuracy is a guess's. None if float32 guesses too."""

    def guesses(summary):
        return summary.accuracy[-1].mean <= guess.accuracy + 2

    if any(s.is_baseline and s.accuracy and guesses(s) for s in summaries):
        return []
    fell = [
        s
        for s in summaries
        if s.recipe in THROUGHOUT and s.train_loss is not None and s.train_loss < 0.5 * guess.loss
    ]
    return [s for s in fell if not s.is_baseline and guesses(s)]
