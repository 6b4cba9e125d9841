"""How a run begins.  Fine-tuning: the checkpoint from which a new run takes its weights, and new
characters for it.
"""
import difflib
import os
import pathlib

import numpy as np

from data.tokenizer import CharTokenizer, Tokenizer
from minigrad.machine import check_fits
from minigrad.packed import PackedTensor
from minigrad.words import first_of, in_a_line, number_of
from model.checkpoint import (Checkpoint, CheckpointError, OfAnotherProgram, load_checkpoint,
                              path_of)
from model.command import as_flags
from model.settings import Settings
from model.transformer import Transformer, TransformerConfig


def load_initial(name: str) -> Checkpoint:
    """Read the checkpoint that --init_from names, without the state of its optimiser: a new run
    starts with a new one.

    Raises
    ------
    CheckpointError : there is none, or it is damaged, or of another kind.
    """
    try:
        found = load_checkpoint(path_of(name))
    except CheckpointError as error:
        near = difflib.get_close_matches(name, ("scratch", "resume"), n=1)
        hint = str(error)
        if near:
            hint = f"did you mean {near[0]}?"
        elif not (os.path.exists(path_of(name)) or error.__cause__
                  or isinstance(error, OfAnotherProgram)):
            hint = f"there is no checkpoint {path_of(name)}; give one, or the folder of a run"
        raise CheckpointError(f"--init_from {name} is neither scratch nor resume; {hint}"
                              ) from error
    if kinds := {p.packed.kind for p in found.model.parameters() if isinstance(p, PackedTensor)}:
        print(f"unpacked    the weights, from {', '.join(sorted(kinds))} to float32, for training")
    if found.model.parameters()[0].dtype == np.float64:
        print("rounded     the weights, from float64 to float32, for training")
    return found._replace(optimizer={})


def with_characters_of(text: str, tokenizer: Tokenizer) -> tuple[Tokenizer, dict[str, int]]:
    """Return a tokenizer that knows all characters of a text, the new ones at the end; and how
    often each of these occurs in the text."""
    _, unknown = tokenizer.without_unknown(text)
    if unknown:
        tokenizer = CharTokenizer.of(tokenizer.vocabulary + "".join(sorted(unknown)))
    return tokenizer, unknown


def describe_initial(path: pathlib.Path, config: TransformerConfig, block_size: int,
                     new: dict[str, int]) -> str:
    """Describe in lines what a run starts from: the file, the characters that its model does not
    know, with their counts, and how many of its positions are kept."""
    lines = [f"with the weights of {in_a_line(path)}"]
    if new:
        named = [f"{character!r} ({count:,})" for character, count in new.items()]
        lines.append(f"{number_of(len(new), 'character')} that it does not know, with new rows at "
                     f"the end of its table: {first_of(named)}")
    if config.position == "learned" and block_size < config.block_size:
        lines.append(f"of its {config.block_size} positions, the first {block_size}")
    return f"\n{'':12}".join(lines)


def take_weights(model: Transformer, initial: Transformer) -> None:
    """Give a model the weights of another, which may know fewer characters and more positions.  The
    rows of new characters stay as they are.  Arrays of one shape and type are then shared by both,
    so that no model is in memory twice.

    Raises
    ------
    ValueError : a weight lies beyond the numbers of the model's type.
    """
    weights = dict(initial.named_parameters())
    for name, p in model.named_parameters():
        weight = weights[name].data
        if weight.dtype != p.dtype:
            with np.errstate(over="ignore"):
                weight = weight.astype(p.dtype)
            if not np.isfinite(weight).all():
                raise ValueError(f"{name} of the model to fine-tune has numbers that are too large "
                                 f"for {p.dtype}, in which it is trained; take another model")
        if weight.shape == p.shape:
            p.data = weight
        else:
            rows = weight[:len(p.data)]
            p.data[:len(rows)] = rows


def training_bytes(config: TransformerConfig, optimizer: str, batch_size: int) -> int:
    """Return the bytes of all arrays at the peak of a training step in float32, to about a tenth.

    For each parameter: itself, its gradient, and the optimiser's state.  For each token: in a
    block, 6 C, its keys and values, and the hidden channels of the MLP, three times where it has a
    gate; outside the blocks, 4 C and three times the V logits.
    """
    from model.count.sizes import parameters, state
    numbers = 2 * parameters(config) + state(config, optimizer)
    config = config.resolved()
    C = config.n_embd
    gated = config.activation == "swiglu"
    of_block = 6 * C + 2 * config.n_kv_head * config.d_head + config.n_inner * (1 + 2 * gated)
    of_token = config.n_layer * of_block + 4 * C + 3 * config.vocab_size
    return 4 * (numbers + batch_size * config.block_size * of_token)


def check_memory(s: Settings, config: TransformerConfig) -> None:
    """Compare what a training step of a model needs with the memory of this machine, before any is
    taken.

    Raises
    ------
    ValueError : the step needs more.
    """
    ids = 16 * (s.characters - s.batch_size * s.block_size)     # of accumulated batches
    of_model = ["n_layer", "n_embd"]
    if config.ngrams > 1:
        of_model.append("ngram_rows")
    for batch_size, more, names in (
            (0, 0, of_model),
            (s.batch_size, ids, ("batch_size", "block_size", "gradient_accumulation_steps"))):
        flags = as_flags({name: getattr(s, name) for name in names})
        check_fits(training_bytes(config, s.optimizer, batch_size) + more, ", ".join(flags))
