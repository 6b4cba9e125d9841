"""Look inside a trained model:  python -m model.look --text "MARA:" -o look.html

Writes one HTML file, which opens from disk in any browser, without a network.  It holds the model:
you type, and see what it expects next, what each head looks at, and what gets worse without a part
of it.  Of a model of tokens, or one too large for a browser, it shows one text.  For a model
of model.reverse it shows where each letter of an answer came from.

    python -m model.look out_a out_b            the losses of several runs in one chart, and what
                                                differs in their settings
    python -m model.look out_a --beside out_b   the page of the first, with the second, such as the
                                                one before fine-tuning, on the same letters
"""
import dataclasses
import pathlib
import sys

from data.files import replacing
from minigrad import compiled
from model.answers import announced_if_slow, answering, tell, text_or_file
from model.checkpoint import Checkpoint, load_checkpoint
from model.command import Parser
from model.generation import generate
from model.interrupts import Interrupts
from model.look import crossed, living
from model.look.beside import Side, check
from model.look.page import gather, html
from model.look.runs import compare
from model.options import Words, flag
from model.reverse.encoder_decoder import EncoderDecoder
from model.score.text import training_text
from model.transformer import Transformer

PASSAGE = 128       # characters, where no text is given
WRITTEN = {"character": PASSAGE, "token": PASSAGE // 4}     # about as many, by the model itself


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of the command."""
    out_dir: Words = flag(("out",), "folder of the run, with its ckpt.npz and log.csv; of several "
                                    "runs, the losses are shown side by side")
    text: str = flag(None, "what to read, or FILE:path to take it from a file (default: a passage "
                           "of the text's end, which was not trained on)")
    output: str = flag("look.html", "the file to write", short="-o")
    beside: str = flag(None, "folder of a second run, such as the one before fine-tuning: the page "
                             "shows what both models expect of each letter, and where they part",
                       unset="none")
    live: bool = flag(True, "put the model into the page, to type into and to take apart, if it is "
                            "of characters and fits; --no-live shows one text")


def main(argv: list[str] | None = None) -> None:
    """Run the command."""
    parser = Parser("python -m model.look", __doc__, Settings)
    words = sys.argv[1:] if argv is None else argv
    if words and not words[0].startswith("-"):      # folders may stand first, without their flag
        words = ["--out_dir", *words]
    given = parser.parse(words)
    s = Settings(**given)
    several = len(s.out_dir) > 1
    of_one = given.keys() & {"text", "live", "beside"}
    if several and of_one:
        parser.refuse([f"--{min(of_one)} is for one run, and --out_dir names {len(s.out_dir)}; "
                       "leave out one or the other"])
    if s.beside and not s.live:
        parser.refuse(["--beside needs the models in the page, and --no-live leaves them out; "
                       "leave out one or the other"])
    compiled.announce("compiling", sys.stderr)
    with answering("model.look"):
        if several:
            write_comparison(s)
            return
        with announced_if_slow(f"reading the model in {s.out_dir[0]} and computing what it shows"):
            write(s)


def check_output(output: pathlib.Path) -> None:
    """Refuse a file that is no page."""
    if output.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--output is a page, whose name ends in .html; this is {str(output)!r}")


def write_comparison(s: Settings) -> None:
    """Write the page of several runs; print where it is and what it shows."""
    output = pathlib.Path(s.output)
    check_output(output)
    with Interrupts(at_once=True), replacing(output) as file:
        with announced_if_slow(f"reading {len(s.out_dir)} runs, and counting n-grams"):
            page, lines = compare(s.out_dir)
        file.write(page.encode("utf-8"))
    tell(f"{output}: the losses of {len(s.out_dir)} runs; open it in a browser", *lines)


def write(s: Settings) -> None:
    """Write the page, and print where it is."""
    out_dir, output = pathlib.Path(s.out_dir[0]), pathlib.Path(s.output)
    check_output(output)
    # What cannot be written is refused before the work begins.
    with Interrupts(at_once=True), replacing(output) as file:
        kinds = (Transformer,) if s.beside else (Transformer, EncoderDecoder)
        checkpoint = load_checkpoint(out_dir / "ckpt.npz", kinds=kinds)
        second = None
        if s.beside:
            second = Side(s.beside, load_checkpoint(pathlib.Path(s.beside) / "ckpt.npz"))
            check(Side(str(out_dir), checkpoint), second)
        text, source = passage(checkpoint) if s.text is None else (
            text_or_file(s.text), "The text is the one given with --text.")
        still = ""
        if isinstance(checkpoint.model, EncoderDecoder):
            page = crossed.html(checkpoint, text).encode("utf-8")
        else:
            facts, data = gather(
                checkpoint,
                text,
                source,
                out_dir,
                s.live,
                second)
            page = html(facts, data).encode("utf-8")
            still = unknown_in(text, checkpoint) if facts["live"] else ""
            if s.live and not facts["live"]:
                still = f"\nThe page shows one text, and cannot be typed into: {facts['reason']}."
        file.write(page)
    tell(f"{output}: {len(page):,} bytes, {len(text):,} characters; open it in a browser{still}")


def unknown_in(text: str, checkpoint: Checkpoint) -> str:
    """Return a line that names the letters which the model does not know, or ""."""
    unknown = living.unknown_letters(checkpoint.tokenizer.vocabulary, text)
    if not unknown:
        return ""
    names = ", ".join(f"{character!r}" for character in unknown[:8])
    return (f"\nThe model does not know {names}{', ...' if unknown[8:] else ''}: the page marks "
            "them, reads another character instead, and gives no loss there.")


def passage(checkpoint: Checkpoint) -> tuple[str, str]:
    """Return a text to read when none is given, and its source: part of the validation split of the
    run's text if that is at hand, else what the model writes; for an encoder-decoder, a word."""
    model, tokenizer, training, _ = checkpoint
    if isinstance(model, EncoderDecoder):
        return crossed.EXAMPLE[:model.config.block_size - 1], ""
    try:
        _, val = training_text(training, tokenizer).parts()
    except ValueError:
        return (generate(model, tokenizer, "", WRITTEN[tokenizer.unit], temperature=0.8, seed=1337),
                "The text was written by the model itself (temperature 0.8), since the one that it "
                "was trained on is not at hand.")
    # Begin at a paragraph, or else a line, that is followed by at least two characters.
    start = next((at + len(end) for end in ("\n\n", "\n")
                  if 0 <= (at := val.find(end)) < len(val) - PASSAGE), 0)
    found = val[start:start + PASSAGE]
    end = found.rfind(" ") + 1      # where many words may follow
    return found[:end] if end > 1 else found, (
        "The text is a passage of the part of the run's text that was kept for validation: the "
        "model was not trained on it.")


if __name__ == "__main__":
    main()
