"""A checkpoint as the beginning of a new run: found by its name, and fitted to another text."""
import difflib
import os
import pathlib

from data.tokenizer import CharTokenizer, Tokenizer
from model.console.words import first_of, in_a_line, number_of
from model.storage.archive import ArchiveError
from model.storage.checkpoint import BEST, Checkpoint, CheckpointError, load_checkpoint
from model.transformer import Transformer, TransformerConfig

CONVERT = ("to begin with another program's model, make a checkpoint of it with python -m "
           "model.convert")


def beginning(name: str) -> pathlib.Path:
    """Return the path of the checkpoint that --init_from names: a file, or the folder of a run,
    which stands for its best model."""
    path = pathlib.Path(os.path.expanduser(name))
    return path / BEST if os.path.isdir(path) else path


def load_beginning(name: str) -> Checkpoint:
    """Read the checkpoint that --init_from names, without the state of its optimiser: a new run
    begins with a new one, and this has up to twice the size of the model.

    Raises
    ------
    CheckpointError : there is none, or it is damaged, or of another kind.
    """
    path = beginning(name)
    if name and os.path.exists(path):
        try:
            return load_checkpoint(path)._replace(optimizer={})
        except CheckpointError as error:
            if path.suffix == ".npz" or not isinstance(error.__cause__, ArchiveError):
                raise
            raise CheckpointError(f"--init_from {name} is no checkpoint of this program; {CONVERT}"
                                  ) from error
    if name and path.name == BEST and os.path.isdir(path.parent):
        raise CheckpointError(f"--init_from {name}: the folder {path.parent} has no {BEST}; give "
                              f"that of a run; {CONVERT}")
    near = difflib.get_close_matches(name, ("scratch", "resume"), n=1)
    raise CheckpointError(f"--init_from {name} is neither scratch, resume, nor a checkpoint or the "
                          "folder of a run; " + (f"did you mean {near[0]}?" if near else
                                                 "give one that is there"))


def with_characters_of(text: str, tokenizer: Tokenizer) -> tuple[Tokenizer, dict[str, int]]:
    """Return a tokenizer that knows all characters of a text, those that it lacked at the end; and
    how often the text has each of these."""
    _, unknown = tokenizer.without_unknown(text)
    if unknown:
        tokenizer = CharTokenizer.of(tokenizer.vocabulary + "".join(sorted(unknown)))
    return tokenizer, unknown


def told(path: pathlib.Path, config: TransformerConfig, block_size: int, new: dict[str, int]
         ) -> str:
    """Return what a run begins with, in lines: the file, the characters that its model does not
    know, with how often they come, and what is left of its positions."""
    lines = [f"with the weights of {in_a_line(path)}"]
    if new:
        named = [f"{character!r} ({count:,})" for character, count in new.items()]
        lines.append(f"{number_of(len(new), 'character')} that it does not know, with new rows at "
                     f"the end of its table: {first_of(named)}")
    if config.position == "learned" and block_size < config.block_size:
        lines.append(f"of its {config.block_size} positions, the first {block_size}")
    return f"\n{'':12}".join(lines)


def take_weights(model: Transformer, known: Transformer) -> None:
    """Give a model the weights of another, which may know fewer characters and more positions.  The
    rows of the characters that it does not know stay as they are.  Arrays of one shape are then the
    same in both, so that no model is in memory twice."""
    weights = dict(known.named_parameters())
    for name, p in model.named_parameters():
        its = weights[name].data
        if its.shape == p.shape:
            p.data = its
        else:
            rows = its[:len(p.data)]
            p.data[:len(rows)] = rows
