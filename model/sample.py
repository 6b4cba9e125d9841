"""Write text from a trained checkpoint:  python -m model.sample --start "MARA:"

The text goes to standard output as it is made; everything else goes to standard error.
"""
import dataclasses
import os
import pathlib
import sys

from model.checkpoint import CheckpointError, load_checkpoint
from model.flags import Parser, flag
from model.generation import check_settings, stream


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything that the command can be told; the names are nanoGPT's."""
    out_dir: str = flag("out", "folder of the run, with its ckpt.npz")
    start: str = flag("", "beginning to go on from, or FILE:path to read it from a file")
    num_samples: int = flag(1, "how many texts")
    max_new_tokens: int = flag(500, "characters to write after the beginning")
    temperature: float = flag(0.8, "0 takes the likeliest character, 1 draws as the model predicts")
    top_k: int = flag(None, "draw from so many of the likeliest characters only")
    top_p: float = flag(None, "draw from the likeliest that together have this probability")
    seed: int = flag(1337, "of the draws; the next sample takes the next number")
    stop: str = flag(None, "end a text before this would be written")


def main(argv: list[str] | None = None) -> None:
    """The command."""
    sys.stdout.reconfigure(errors="replace")    # for terminals that lack a character
    s = Settings(**Parser("python -m model.sample", __doc__, Settings).given(argv))
    try:
        check_settings(s.temperature, s.top_k, s.top_p)
        for name in ("num_samples", "max_new_tokens", "seed"):
            if getattr(s, name) < 0:
                raise ValueError(f"{name} is at least 0, not {getattr(s, name)}")
        model, tokenizer, *_ = load_checkpoint(pathlib.Path(s.out_dir) / "ckpt.npz")
        start = read_start(s.start)
        for i in range(s.num_samples):
            if i:
                print("-" * 20)
            pieces = stream(model, tokenizer, start, s.max_new_tokens, s.temperature, s.top_k,
                            s.top_p, s.seed + i, s.stop)
            print(start, end="", flush=True)
            for piece in pieces:
                print(piece, end="", flush=True)
            print()
    except (CheckpointError, ValueError) as error:
        sys.exit(f"model.sample: {error}")
    except BrokenPipeError:     # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        sys.exit(f"model.sample: cannot write the text: {error.strerror or error}")
    except KeyboardInterrupt:
        print()
        sys.exit(130)


def read_start(start: str) -> str:
    """The beginning itself, or what stands in the file that FILE:path names."""
    if not start.startswith("FILE:"):
        return start
    path = start.removeprefix("FILE:")
    try:
        return pathlib.Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f'cannot read the beginning from "{path}": {error.strerror}; '
                         "give --start FILE: and the path of a text file") from error
    except UnicodeDecodeError as error:
        raise ValueError(f'"{path}" is not UTF-8 (byte {error.start}); '
                         "save it as UTF-8 first") from error


if __name__ == "__main__":
    main()
