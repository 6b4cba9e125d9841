"""An encoder-decoder at work on a string: the maps of all its heads, on one page."""
import numpy as np

from model.command import number_of
from model.reverse.encoder_decoder import BEGIN, END, PAD
from model.look.maps import Section, labelled, page
from model.generation import USELESS
from model.checkpoint import Checkpoint

EXAMPLE = "backwards"
MOST_LETTERS = 100      # of which a page stays light enough for a browser
MARKS = {PAD: "·", BEGIN: "▸", END: "■"}        # of tokens that are no letters
TITLES = {"reverse": "A model that reverses strings", "sort": "A model that sorts letters"}
LEARNT = {
    "reverse": "Where reversing has been learnt, the diagonal runs the wrong way: for its first "
               "letter a head looks at the last of the string, and for its last at the first.",
    "sort": "Where sorting has been learnt, a head looks at the letter that it writes, wherever "
            "that stands, or at neighbours of it in the alphabet."}


def html(checkpoint: Checkpoint, text: str) -> str:
    """Return the page of a string and its answer.

    Raises
    ------
    ValueError : the string is empty or too long, or has characters that the model does not know; or
        the model is of no use.
    """
    model, _, training, _ = checkpoint
    answer, sections = answer_and_maps(checkpoint, text)
    task = training.get("settings", {}).get("task")
    about = (f"{number_of(model.config.n_layer, 'layer')} to read and as many to write, "
             f"{number_of(model.config.n_head, 'head')} in each, "
             f"{number_of(model.config.n_embd, 'channel')}, "
             f"{number_of(sum(p.size for p in model.parameters()), 'parameter')}.")
    if "right" in training and "judged" in training:
        about += (f"  After its training, {training['right']:,} of {training['judged']:,} strings "
                  "that it had not seen were right.")
    sections[0].paragraphs.extend(x for x in (LEARNT.get(task), about) if x)
    return page(TITLES.get(task, "An encoder-decoder at work"),
                f"It read {text} and wrote {answer}.", sections)


def answer_and_maps(checkpoint: Checkpoint, text: str) -> tuple[str, list[Section]]:
    """Return what the model writes for a string, and three sections with the maps of all heads: of
    the answer on the string, within the string, and within the answer; errors as in `html`."""
    model, tokenizer, *_ = checkpoint
    longest = min(model.config.block_size - 1, MOST_LETTERS)            # END takes a place
    read = tokenizer.encode(text)
    if not 1 <= len(read) <= longest or (read <= END).any():
        raise ValueError(f"this model reads a string of 1 to {longest} letters, and --text is "
                         f"{text!r}; give another --text")
    source, written = read[None], model.write(read[None])[0]
    written = written[:[*written, END].index(END) + 1]                      # (T,)
    target = np.append(BEGIN, written[:-1])
    within_source, within_target, across = (
        maps[:, 0] for maps in model.attention_maps(source, target[None]))  # (L, H, T, S)
    if not np.isfinite(across).all():
        raise ValueError(USELESS)
    letters, so_far, answer = ([MARKS.get(i) or tokenizer.vocabulary[i] for i in ids]
                               for ids in (read, target, written))
    return "".join(answer).removesuffix(MARKS[END]), [
        _section("From the answer back to the string", [
            "To write a letter, each head looks at the string that was read: a row for each letter "
            f"of the answer, and {MARKS[END]} for its end."],
            across, answer, letters, "letter written", "letter read"),
        _section("The string, read both ways", [
            "Before anything is written, each letter looks at the whole string, at what comes "
            "before it and at what comes after it.  No cell is closed."],
            within_source, letters, letters, "letter", "letter it looks at"),
        _section("The answer, written from left to right", [
            "To write a letter, each head also looks at what is written already, after "
            f"{MARKS[BEGIN]}, where the answer begins.  Later letters do not exist yet: a mask "
            "closes them."],
            np.where(np.tri(len(target)) > 0, within_target, np.nan), answer, so_far,
            "letter written", "letter before it")]


def _section(heading, paragraphs, maps, rows, columns, row, column):
    """Return a section with a map of each head, (L, H, T, S); the sharpest is chosen."""
    sharpness = np.nanmax(maps, axis=-1).mean(axis=-1)                              # (L, H)
    return Section(heading, paragraphs, maps=[
        labelled(f"layer {i + 1}, head {j + 1}", map, rows, columns, row, column, most=1)
        for i, layer in enumerate(maps) for j, map in enumerate(layer)],
        across=maps.shape[1], chosen=int(sharpness.argmax()))
