"""Settings as flags on a command line: nanoGPT's names, and help for mistakes."""
import argparse
import contextlib
import dataclasses
import difflib
import itertools
import os
import sys
from collections.abc import Iterator

from data import read_text, remedy
from model.console import startup
from model.console.options import Words, of_another_type, problem
from model.console.words import in_a_line

ALIKE = 0.75        # at this ratio of difflib, a name may be another one mistyped
# Flags as other programs name them.  A name may be in several lines: the first line whose flags the
# command has is the answer.
OTHER_NAMES = {
    "--init_from resume": "resume resume_from resume_from_checkpoint continue restore load "
                          "checkpoint ckpt",
    "--max_iters or --minutes": "epochs num_epochs n_epochs max_epochs num_train_epochs",
    "--minutes": "time max_time hours",
    "--max_iters": "epochs num_epochs n_epochs max_epochs steps max_steps num_steps n_steps "
                   "train_steps iters iterations num_iters num_iterations",
    "--learning_rate": "lr rate max_lr step_size",
    "--min_lr": "min_learning_rate lr_min",
    "--batch_size": "bs batch per_device_train_batch_size device_batch_size micro_batch_size",
    "--gradient_accumulation_steps": "grad_accum accumulation_steps accumulate_grad_batches",
    "--n_layer": "layer layers num_layers num_hidden_layers depth",
    "--n_head": "head heads num_heads num_attention_heads",
    "--n_kv_head": "kv_heads num_kv_heads num_key_value_heads",
    "--n_embd": "embd n_embed embed_dim emb_dim d_model dim hidden hidden_dim hidden_size width "
                "channels",
    "--block_size": "block context context_length context_size ctx ctx_len n_ctx n_positions "
                    "seq_len seq_length sequence_length max_seq_len max_length",
    "--position": "pos pos_emb position_embedding position_embedding_type",
    "--rotary_base": "rope_theta theta rope_base rope_freq_base",
    "--activation": "act act_fn hidden_act activation_function",
    "--n_inner": "intermediate_size ffn_dim d_ff feed_forward_length",
    "--norm_eps": "rms_norm_eps layer_norm_eps layer_norm_epsilon",
    "--tied": "tie tie_weights tie_word_embeddings",
    "--dropout": "drop",
    "--optimizer": "opt optim",
    "--beta1 and --beta2": "beta betas",
    "--schedule": "scheduler lr_scheduler lr_scheduler_type",
    "--warmup_iters": "warmup warmup_steps num_warmup_steps",
    "--weight_decay": "wd l2",
    "--grad_clip": "clip clip_grad max_grad_norm max_norm",
    "--eval_interval": "eval_every eval_steps eval_freq val_interval",
    "--log_interval": "logging_steps log_every",
    "--checkpoint_interval": "save_steps save_interval save_every",
    "--threads": "num_threads n_threads workers num_workers cpus jobs j",
    "--recipe": "config preset",
    "--start": "prompt prefix text input i p",
    "--start FILE:path": "file input_file f",
    "--text": "prompt prefix input i p file input_file f",
    "--data": "dataset data_dir data_path train_file corpus text input i file input_file f",
    "--out_dir": "output_dir output out o save_dir checkpoint_dir model model_path checkpoint "
                 "ckpt ckpt_path load m",
    "--num_samples or --max_new_tokens": "n",
    "--num_samples": "samples num_return_sequences",
    "--max_new_tokens": "length max_length max_len tokens max_tokens num_tokens n_tokens "
                        "n_predict steps",
    "--temperature": "temp t",
    "--top_k or --top_p": "top",
    "--top_k": "k",
    "--top_p": "p nucleus",
}
# Answers to names for which a command has no flag.
NO_FLAG = {
    "everything is computed on the processor (CPU); leave it out":
        "device devices gpu gpus cuda cpu mps no_cuda use_cpu backend ddp",
    "numbers have 32 bits; leave it out":
        "dtype precision fp16 bf16 fp32 float16 bfloat16 amp half",
    "kernels are always compiled; leave it out": "compile jit",
    "a run keeps its losses in log.csv; leave it out":
        "wandb wandb_log wandb_project wandb_run_name tensorboard report_to",
    "it is python -m model.sample that writes text, going on from its --start":
        "prompt start generate sample samples num_samples max_new_tokens length temperature temp "
        "top_k top_p interactive",
}


class Parser(argparse.ArgumentParser):
    """A command-line parser with a flag for every field of a dataclass, with underscores or
    hyphens; one of the type Words takes several.  An unknown flag is answered with the nearest
    known one.  The defaults that --help shows are those of the dataclass, or of an instance of
    it."""

    def __init__(self, command: str, description: str, settings: object) -> None:
        super().__init__(prog=command.split()[-1], description=description, allow_abbrev=False,
                         usage=f"{command} [--flag value ...]   (--help lists them all)",
                         formatter_class=argparse.RawDescriptionHelpFormatter)
        self.fields = {field.name: field for field in dataclasses.fields(settings)}
        for field in dataclasses.fields(settings):
            spellings = dict.fromkeys((f"--{field.name}", f"--{field.name.replace('_', '-')}"))
            if field.metadata["short"]:
                spellings[field.metadata["short"]] = None
            kind = {"action": argparse.BooleanOptionalAction} if field.type is bool else {}
            if field.metadata["alone"] is not None:
                kind = {"nargs": "?", "const": field.metadata["alone"]}
            if field.type == Words:
                kind = {"nargs": "+"}
            default = getattr(settings, field.name)
            shown = (field.metadata["unset"] if default is None else
                     " ".join(default) if field.type == Words else default)
            help = field.metadata["help"].replace("%", "%%") + (
                f" (default: {shown})" if shown != "" else "")
            self.add_argument(*spellings, dest=field.name, default=argparse.SUPPRESS, help=help,
                              **kind)

    def error(self, message: str) -> None:
        """Say what is wrong, and exit."""
        self.refuse([message])

    def given(self, argv: list[str] | None) -> dict[str, object]:
        """Return the settings on the command line, by name."""
        known, mistakes = self.read(argv)
        self.refuse(mistakes)
        return known

    def read(self, argv: list[str] | None) -> tuple[dict[str, object], list[str]]:
        """Return the settings on the command line, by name, and a line for each mistake."""
        argv, mistakes = self._split(sys.argv[1:] if argv is None else argv)
        found, unknown = self.parse_known_args(argv)
        known = {}
        for name, word in vars(found).items():
            field = self.fields[name]
            flag = f"--{name}" if f"--{name}" in self._option_string_actions else name
            try:
                known[name] = field.type(word)
            except ValueError:
                mistakes.append(f"{flag} {of_another_type(field.type, word)}")
            else:
                if said := problem(field, known[name]):
                    mistakes.append(f"{flag} {said}")
        flags = [word.split("=")[0] for word in unknown if word.startswith("-")]
        for word in flags:
            mistakes.append(f"there is no flag {word}; {self._instead_of(word)}")
        if not flags:               # the words may belong to it
            mistakes += [f"no flag stands before {word!r}, or one that takes nothing; see --help"
                         for word in unknown]
        return known, mistakes

    def _instead_of(self, word):
        """Return what to do about an unknown flag."""
        options = self._option_string_actions
        name = _name(word)
        by_name = {_name(option): option for option in reversed(options)}
        meant = [flags for flags, names in OTHER_NAMES.items() if name in names.split()
                 and all(flag in options for flag in flags.split() if flag.startswith("--"))]
        said = [say for say, names in NO_FLAG.items() if name in names.split()]
        if not meant and not said:
            meant = [by_name[near] for near in difflib.get_close_matches(name, by_name, 1, ALIKE)]
        return f"did you mean {meant[0]}?" if meant else (said or ["see --help"])[0]

    def _split(self, argv):
        """Return the words that argparse can read, and a line for each that it would refuse before
        it has read the others."""
        words, mistakes = [], []
        for word, following in itertools.zip_longest(argv, argv[1:]):
            name, equals, value = word.partition("=")
            action = self._option_string_actions.get(name)
            if equals and isinstance(action, argparse.BooleanOptionalAction):
                mistakes.append(f"--{action.dest} is on or off, and takes no value such as "
                                f"{value!r}; write --{action.dest} or --no-{action.dest}")
            elif action and value == "--":
                mistakes.append(f"--{action.dest} takes a value, not '--'")
            elif (action and not equals and action.nargs in (None, "+")
                  and (following is None or self._parse_optional(following))):
                mistakes.append(f"{name} takes a value, and none was given; one that begins with a "
                                f"hyphen follows an equals sign, as in {name}=-value")
            else:
                words.append(word)
        return words, mistakes

    def refuse(self, mistakes: list[str]) -> None:
        """Print each different mistake in a line, and exit; do nothing if there is none."""
        if mistakes:
            self.exit(2, "".join(f"{self.prog}: error: {in_a_line(mistake)}\n"
                                 for mistake in dict.fromkeys(mistakes)))


def _name(option):
    """Return the name of a flag as it is typed."""
    return option.lstrip("-").replace("-", "_").lower()


@contextlib.contextmanager
def answering(command: str, unread: int = 1) -> Iterator[None]:
    """Answer an error of a command in a line on standard error, and exit; with the status `unread`
    if nobody reads the output."""
    try:
        startup.main_begins()
        yield
    except ValueError as error:         # all of them say what is wrong and what to do
        sys.exit(f"{command}: {in_a_line(error)}")
    except MemoryError as error:
        sys.exit(f"{command}: there is not enough memory ({in_a_line(error)}); end other programs, "
                 "or take a smaller model or text")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(unread)
    except OSError as error:
        what = f"use {error.filename}" if error.filename else "write what it has to say"
        sys.exit(in_a_line(f"{command}: cannot {what}: {error.strerror or error}; "
                           + remedy(error, "name another file")))
    except KeyboardInterrupt:
        sys.exit(130)


def text_or_file(value: str) -> str:
    """Return the text itself, or the contents of the file that FILE:path names."""
    if not value.startswith("FILE:"):
        return value
    return read_text(os.path.abspath(os.path.expanduser(value.removeprefix("FILE:"))))


def prepare_output() -> None:
    """Make standard output usable where the terminal lacks a character, and it and standard error
    where whoever started the program has closed them."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))
    sys.stdout.reconfigure(errors="replace")
