"""Data of a network, by the name of a data set, a user's loader or a file of text."""

from __future__ import annotations

import os

from .data import Dataset, load_dataset
from .sources import load_own_data
from .text import TOPICS, load_text


def load_data(
    dataset: str,
    model: str,
    *,
    data_dir: str | os.PathLike = "data",
    train_samples: int | None = None,
    test_samples: int | None = None,
    text: str | os.PathLike | None = None,
    download: bool = False,
) -> Dataset:
    """Load data for a network.

    Args:
        dataset: a name of ``data.DATASETS``, or ``package.module:loader``. model: a name, which
            gives the length of a text's windows. text: a file to read in place of ``dataset``.
        data_dir, train_samples, test_samples, download: as for ``load_dataset``.

    Raises:
        ValueError, OSError, ImportError: as for ``load_dataset``, ``load_own_data``, ``load_text``.
    """
    if text is not None or dataset == TOPICS:
        return load_text(model, text).first(train_samples, test_samples)
    if ":" in dataset:
        return load_own_data(dataset).first(train_samples, test_samples)
    return load_dataset(dataset, data_dir, train_samples, test_samples, download)
