"""A second model in the page of a first one, on the same letters: such as before fine-tuning."""
from typing import NamedTuple

from model.checkpoint import Checkpoint
from model.look import living, weights


class Side(NamedTuple):
    """A model, and the folder that it came from."""
    folder: str
    checkpoint: Checkpoint


def check(first: Side, second: Side) -> None:
    """Refuse a second model that the page of the first cannot compute on what the first reads.

    Raises
    ------
    ValueError : one is not of characters, or too large, or has an option that a page does not know;
        or the second knows other characters, or reads fewer at once.
    """
    for folder, checkpoint in (first, second):
        if reason := living.reason_against(checkpoint):
            raise ValueError(f"--beside needs a page that computes both models, and of {folder} "
                             f"there is none: {reason}; leave out --beside")
    size = sum(weights.size_in_page(side.checkpoint.model) for side in (first, second))
    if size > living.LARGEST:
        raise ValueError(f"with both models the page would have {size / 1e6:,.1f} MB, and a "
                         f"browser should open at most {living.LARGEST / 1e6:.0f} MB; leave out "
                         "--beside")
    if problem := mismatch(first, second):
        cure = "give two models of which one was fine-tuned from the other (--init_from)"
        if not mismatch(second, first):
            cure = ("give them the other way round: "
                    f"--out_dir {second.folder} --beside {first.folder}")
        raise ValueError(f"{problem}; {cure}")


def mismatch(first: Side, second: Side) -> str:
    """Return why a second model cannot read what a first one reads, or ""."""
    known, its_own = (list(side.checkpoint.tokenizer.vocabulary) for side in (first, second))
    if unknown := living.unknown_letters(known, its_own):
        return (f"the model in {second.folder} knows {unknown[0]!r}, and the one in "
                f"{first.folder}, which reads the text for both, does not")
    if its_own != known[:len(its_own)]:
        return (f"the models in {first.folder} and {second.folder} number their characters "
                "differently")
    block, its_block = (side.checkpoint.model.config.block_size for side in (first, second))
    if its_block < block:
        return (f"the model in {second.folder} reads at most {its_block} characters at once, and "
                f"the one in {first.folder}, which cuts the text for both, {block}")
    return ""
