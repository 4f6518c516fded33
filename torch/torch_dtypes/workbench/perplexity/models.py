"""Causal language models: from a folder in transformers' layout, or a user's own by
``package.module:function``."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from ...formats.imports import SPELLING, is_spelt
from ...integrations.transformers import split_experts
from ..training.gpt import build_gpt, is_gpt
from ..training.ranks import first_line
from ..training.sources import find, load_weights
from .recipes import fill_cache
from .windows import logits_of

if TYPE_CHECKING:
    from ...integrations.transformers_config import TransformersConfig

# Files of tokenizers contain one of these in their names.
_OF_TOKENIZERS = ("tokenizer", "vocab", "spiece", "sentencepiece")
_LONGEST = 2048  # the window of papers on quantisation


@dataclass
class LanguageModel:
    """A model with a text as its tokens.

    Attributes:
        tokens: int64, of shape (number of tokens,).
        unit: ``"tokens"``, or ``"bytes"`` if the model has no tokenizer.
        longest: the longest input of the model; None if the model does not tell.
        saved: the rules that the model was saved with; None if there are none. The model itself is
            without rules.
    """

    name: str
    model: nn.Module
    tokens: torch.Tensor
    unit: str
    longest: int | None
    saved: TransformersConfig | None = None

    @property
    def context(self) -> int | None:
        """The default length of a window."""
        return None if self.longest is None else min(self.longest, _LONGEST)

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    def digest(self) -> str:
        """Return the SHA-256 of the weights, buffers and tokens."""
        hashed = hashlib.sha256(self.tokens.numpy().tobytes())
        for name, tensor in self.model.state_dict().items():
            hashed.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            hashed.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return hashed.hexdigest()


def load_model(name: str, text: bytes, weights: str | None = None) -> LanguageModel:
    """Load a model in float32, in evaluation mode, and split a text into its tokens.

    Args:
        name: a folder in transformers' layout, ``gpt`` with sizes as for ``train``, or
            ``package.module:function``. The function is called without arguments. It returns a
            model, or a model and a tokenizer: a function of a text that returns integers.
        text: UTF-8 for a tokenizer. Without one, each byte is a token.
        weights: a file of weights for a model that is not from a folder. ``gpt`` needs one.

    Raises:
        ValueError: no such folder or function, no causal model, weights of another model, or tokens
            that the model does not have.
        ModuleNotFoundError: a folder without transformers.
        OSError: a file cannot be read.
    """
    if os.path.isdir(name):
        if weights is not None:
            raise ValueError(
                f"expected --weights with gpt or {SPELLING}, but got it with the folder {name}, "
                "which has its own; leave it out"
            )
        loaded = _load_folder(name, text)
    elif is_gpt(name):
        if weights is None:
            raise ValueError(
                f"expected --weights with {name}, but got none; give the file in DIR/trained that "
                "train --out DIR writes"
            )
        loaded = _build_loaded(name, build_gpt(name), text)
    elif is_spelt(name):
        loaded = _load_own(name, text)
    else:
        raise ValueError(
            f"expected the folder of a model in transformers' layout, gpt, or {SPELLING}, but got "
            f"{name!r}, which is no folder; models are not downloaded"
        )
    if weights is not None:
        load_weights(loaded.model, weights)
    loaded.model.eval().requires_grad_(False)
    return loaded


def _decode(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"expected a text in UTF-8 for a tokenizer, but got {error}") from error


def _tokens_of(text: bytes, tokenize, what: str) -> tuple[torch.Tensor, str]:
    """Return the tokens of a text, and their unit."""
    if tokenize is None:
        return torch.frombuffer(bytearray(text), dtype=torch.uint8).long(), "bytes"
    ids = torch.as_tensor(tokenize(_decode(text)))
    if ids.dim() != 1 or ids.is_floating_point():
        raise ValueError(
            f"expected a tokenizer of {what} that returns a list of integers, but got "
            f"{ids.dtype} of shape {tuple(ids.shape)}"
        )
    return ids.long(), "tokens"


def _load_own(spec: str, text: bytes) -> LanguageModel:
    try:
        value = find(spec, "a function that returns a language model")()
    except ValueError:
        raise
    except Exception as error:  # a user's function may raise any error
        raise ValueError(
            f"expected {spec} to run without arguments, but it raised {type(error).__name__}: "
            f"{error}"
        ) from error
    model, tokenize = value if isinstance(value, tuple) and len(value) == 2 else (value, None)
    if not isinstance(model, nn.Module):
        raise ValueError(
            f"expected {spec} to return a torch.nn.Module, or one and a tokenizer, but got "
            f"{type(value).__name__}"
        )
    return _build_loaded(spec, model, text, tokenize)


def _build_loaded(name: str, model: nn.Module, text: bytes, tokenize=None) -> LanguageModel:
    longest = _find_longest(getattr(model, "config", model))
    return LanguageModel(name, model, *_tokens_of(text, tokenize, name), longest)


def _find_longest(config: object) -> int | None:
    for name in ("max_position_embeddings", "n_positions", "block_size", "context"):
        if isinstance(value := getattr(config, name, None), int) and value > 1:
            return value
    return None


def _load_folder(folder: str, text: bytes) -> LanguageModel:
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "a model from a folder needs transformers, which is not installed: pip install "
            "transformers"
        ) from error
    if not os.path.isfile(os.path.join(folder, "config.json")):
        raise ValueError(
            f"expected a folder in transformers' layout, but {folder} has no config.json"
        )
    local = {"local_files_only": True}
    config = transformers.AutoConfig.from_pretrained(folder, **local)
    if type(config) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ValueError(
            f"expected a causal language model, but {folder} has {config.model_type!r}, which "
            "transformers' AutoModelForCausalLM does not know; torch_dtypes.quantize_ converts it"
        )
    saved = _take_rules(config)
    with _quiet(transformers):
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=torch.float32, **local
        )
        tokenize = None
        if any(part in file.name for file in Path(folder).iterdir() for part in _OF_TOKENIZERS):
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **local)

            def tokenize(text: str) -> list[int]:
                return tokenizer(text, verbose=False)["input_ids"]

    fill_cache(model)
    split_experts(model)
    loaded = _build_loaded(Path(folder).resolve().name, model, text, tokenize)
    loaded.saved = saved
    return loaded


def _take_rules(config) -> TransformersConfig | None:
    """Take the rules of a saved model out of its configuration, so that it loads without them."""
    from ...integrations.transformers_config import METHOD, TransformersConfig

    kept = getattr(config, "quantization_config", None)
    if kept is None or kept.get("quant_method") != METHOD:
        return None
    del config.quantization_config
    return TransformersConfig.from_dict(kept)


@contextlib.contextmanager
def _quiet(transformers) -> Iterator[None]:
    """Hide transformers' progress bars in a block."""
    logging = transformers.utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _move_vocabulary(module: nn.Module, args: object, output: object) -> torch.Tensor:
    """Return logits of shape ``(N, vocabulary, T)`` as ``(N, T, vocabulary)``."""
    return logits_of(output).transpose(1, 2)


@torch.no_grad()
def check_causal(loaded: LanguageModel, context: int, device: str = "cpu") -> None:
    """Check the tokens, and that a model's logits at a position depend on no later token.

    Logits of shape ``(N, vocabulary, T)``, which ``cross_entropy`` takes, become ``(N, T,
    vocabulary)`` by a hook of the model.

    Raises:
        ValueError: there are fewer than two tokens, or the model does not take them, returns
            something else than logits, or is not causal.
    """
    if len(loaded.tokens) < 2:
        raise ValueError(f"expected a text of at least two {loaded.unit}, but got fewer")
    ids = loaded.tokens[: min(context, 16)].unsqueeze(0).to(device)
    if _has_vocabulary_first(loaded, ids):
        loaded.model.register_forward_hook(_move_vocabulary)
    other = ids.clone()
    other[0, -1] = (ids[0, -1] + 1) % (int(ids.max()) + 1)
    first, second = (_find_logits(loaded, x) for x in (ids, other))
    if (largest := int(loaded.tokens.max())) >= first.shape[-1]:
        raise ValueError(
            f"expected {loaded.unit} below {first.shape[-1]}, the vocabulary of {loaded.name}, but "
            f"got {largest}; add the model's tokenizer to its folder"
        )
    near = 1e-4 * float(first.nan_to_num().abs().max())
    if not torch.allclose(first[:, :-1], second[:, :-1], rtol=0, atol=near, equal_nan=True):
        raise ValueError(
            f"expected a causal model, but logits of {loaded.name} depend on later tokens"
        )


def _has_vocabulary_first(loaded: LanguageModel, ids: torch.Tensor) -> bool:
    """Return whether a model's logits are ``(N, vocabulary, T)``, where others' are ``(N, T,
    vocabulary)``.

    Raises:
        ValueError: they are neither.
    """
    # A vocabulary as large as a length tells nothing, but then it is not as large as another one.
    for length in (ids.shape[1], ids.shape[1] - 1):
        shape = tuple(_find_logits(loaded, ids[:, :length]).shape)
        if len(shape) != 3 or shape[0] != 1 or length not in shape[1:]:
            raise ValueError(
                f"expected {loaded.name} to return logits of shape (1, {length}, vocabulary) or "
                f"(1, vocabulary, {length}), but got {shape}"
            )
        if shape[1] != shape[2]:
            break
    return shape[2] == length


def _find_logits(loaded: LanguageModel, ids: torch.Tensor) -> torch.Tensor:
    try:
        return logits_of(loaded.model(ids))
    except Exception as error:  # a user's model may raise any error
        raise ValueError(
            f"expected {loaded.name} to take tokens of shape {tuple(ids.shape)}, but it raised "
            f"{type(error).__name__}: {first_line(error)}"
        ) from error
