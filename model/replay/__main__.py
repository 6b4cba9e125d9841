"""Find the op that made a loss nan:  python -m model.replay --out_dir out

A run that meets a loss or gradient that is not finite keeps that step in nan.npz.  It is taken
again, and the first op is shown that made a nan or inf.  Nothing is trained.
"""
from model.answers import answering       # before slow imports
from model.command import Parser
from model.options import flag

import dataclasses
import os
import pathlib

from model.folder import NAN
from model.replay.nan import replay


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of the command."""
    out_dir: str = flag("out", "folder of the run, with its nan.npz; or that file")


def main(argv: list[str] | None = None) -> None:
    """Run the command."""
    s = Settings(**Parser("python -m model.replay", __doc__, Settings).parse(argv))
    with answering("model.replay"):
        path = pathlib.Path(s.out_dir).expanduser()
        replay(path / NAN if os.path.isdir(path) else path)


if __name__ == "__main__":
    main()
