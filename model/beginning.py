"""How a run begins: from random weights, where it was stopped, or with the weights of a checkpoint.

    python train.py                                                     from random weights
    python train.py --init_from resume                                  resumed
    python train.py --init_from out --data my_text.txt --out_dir mine   fine-tuning
    the same with --lora 8                                              training an adapter of it

`prepare` reads what the flags name, the checkpoint and the text, and resolves the settings: each of
the three ways is a function of its own.  `make_model` makes the model that is trained.
"""
import contextlib
import dataclasses
import difflib
import os
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

import data
from data.tokenizer import CharTokenizer, Tokenizer
from minigrad import compiled
from minigrad.machine import check_fits
from minigrad.packed import PackedTensor
from minigrad.words import first_of, in_a_line, number_of, shown
from model.checkpoint import (Checkpoint, CheckpointError, OfAnotherProgram, checkpoint_path,
                              load_checkpoint, recorded_texts)
from model.answers import reading
from model.command import Parser
from model.options import Values, as_flags, option_names, problems
from model.folder import Folder, folder_problems
from model.processes import Ranks
from model.settings import (NAMES, WITHOUT_FLAG, AdapterOptions, Settings, resolve_fine_tuned,
                            resolve_from_scratch, resolve_resumed)
from model.transformer import Transformer, TransformerConfig


@dataclasses.dataclass
class Beginning:
    """What a run begins with.

    Attributes
    ----------
    text : None if it cannot be read: then `unreadable` says why, and there is no run.
    initial : the checkpoint whose model is fine-tuned, if there is one.
    resumed : the checkpoint of the run that is resumed, if there is one.
    contradictions, unreadable : a line for each flag that contradicts the checkpoint, and for a
        text that cannot be read.
    lines : what is printed of the checkpoint and the files of the text.
    """
    settings: Settings
    text: data.Text | None
    initial: Checkpoint | None = None
    resumed: Checkpoint | None = None
    contradictions: Sequence[str] = ()
    unreadable: Sequence[str] = ()
    lines: Sequence[str] = ()

    def problems(self, ranks: Ranks) -> list[str]:
        """Return a line for each mistake, with the remedy."""
        s = self.settings
        text_problems = self.unreadable or self.text.problems(s.block_size)
        lines = [
            *self.contradictions,
            *s.problems(),
            *ranks.problems(s),
            *folder_problems(s),
            *text_problems]
        adapter_options = [getattr(s, name) for name in option_names(AdapterOptions)]
        if not lines and any(value is not None for value in adapter_options):
            from model.lora.begin import start_problems
            lines = start_problems(s, self.text, self.initial)
        return lines

    def model_config(self) -> TransformerConfig:
        """Return the configuration of the model."""
        checkpoint = self.resumed or self.initial
        config = checkpoint.model.config if checkpoint else None
        config = self.settings.model_config(self.text.tokenizer.vocab_size, config)
        if self.settings.lora and not self.resumed:
            from model.lora.begin import adapted_config
            config = adapted_config(config, self.settings)
        return config

    def make_model(self) -> Transformer:
        """Return the model that is trained, with its first weights."""
        if self.resumed:
            return self.resumed.model
        if self.settings.lora:
            from model.lora.begin import make_adapted
            return make_adapted(self.model_config(), self.settings.seed, self.initial.model)
        model = Transformer(self.model_config(), self.settings.seed)
        if self.initial:
            take_weights(model, self.initial.model)
        model.look_ahead(self.settings.ahead, self.settings.seed)
        return model


def prepare(
        flags: Values,
        mistakes: Sequence[str],
        parser: Parser,
        folder: Folder,
        ranks: Ranks = Ranks()) -> Beginning:
    """Return what the flags let a run begin with; the first rank reads for all.  Set the number of
    threads.  Exit with a line for each mistake, those of the command line among them, if there are
    any."""
    refuse_mistakes(
        mistakes,
        flags,
        parser,
        ranks)
    flags = flags | {"out_dir": str(folder)}
    init_from = flags.pop("init_from", Settings.init_from)
    if init_from == "scratch":
        beginning = begin_from_scratch(flags, ranks)
    elif init_from == "resume":
        beginning = begin_resumed(flags, folder, ranks)
    else:
        beginning = begin_fine_tuning(flags, init_from, ranks)
    if ranks.first:
        parser.refuse([*mistakes, *beginning.problems(ranks)])
    ranks.meet()
    s = beginning.settings
    if s.threads or ranks.threads:
        compiled.set_threads(s.threads or ranks.threads)
    check_memory(s, beginning.model_config())
    for line in beginning.lines:
        print(line)
    for warning in s.warnings():
        print(f"warning     {warning}")
    return beginning


def refuse_mistakes(
        mistakes: Sequence[str],
        flags: Values,
        parser: Parser,
        ranks: Ranks) -> None:
    """Exit with this rank's mistakes on the command line, unless the first rank has some, too:
    `prepare` then answers those for all.  Refuse ranks that differ, and warn of flags given twice.
    """
    first, *_ = ranks.gather(mistakes)
    if not first:
        parser.refuse(mistakes)
    ranks.check_alike(flags)
    if ranks.first:
        parser.warn()


def begin_from_scratch(flags: Values, ranks: Ranks) -> Beginning:
    """Begin a new run with random weights, and with the characters of its text."""
    texts, unreadable = read_texts(flags.get("data", Settings.data), ranks)
    text = encode(texts)
    settings = resolve_from_scratch(
        flags | {"data": text_names(texts)},
        characters=len(text or ()),
        vocabulary=text.tokenizer.vocab_size if text else 0)
    return Beginning(
        settings,
        text,
        unreadable=unreadable,
        lines=describe_texts(texts))


def begin_resumed(flags: Values, folder: Folder, ranks: Ranks) -> Beginning:
    """Begin where the run in the folder was stopped, with the text that it was trained on."""
    resumed = ranks.call_on_first(lambda: folder.resume(flags.get("explain", False)))
    earlier = saved_settings(resumed, folder)
    names = flags.get("data", earlier.data)
    texts, unreadable = read_texts(names, ranks)
    if unreadable and [*names] == [*recorded_texts(resumed.training)]:
        unreadable = [f"{line}.  The run in {folder} was trained on it; if the same text is in "
                      "another file, give that with --data FILE" for line in unreadable]
    if not unreadable and resumed.training["text"] != digest(texts):
        raise ValueError(f"the text {texts.name} is not the one that the run in {folder} was "
                         "trained on; give that with --data, or train anew into another --out_dir")
    text = encode(texts, resumed.tokenizer)
    flags = flags | {"data": text_names(texts)}
    settings, contradictions = resolve_resumed(flags, earlier, f"the run in {folder}")
    return Beginning(
        settings,
        text,
        resumed=resumed,
        contradictions=contradictions,
        unreadable=unreadable,
        lines=describe_texts(texts))


def begin_fine_tuning(flags: Values, init_from: str, ranks: Ranks) -> Beginning:
    """Begin a new run with the weights of a checkpoint, and with the characters that its model
    knows; those of the text that are new come after them."""
    initial = ranks.call_on_first(lambda: load_initial(init_from, frozen="lora" in flags))
    path = checkpoint_path(init_from)
    texts, unreadable = read_texts(flags.get("data", Settings.data), ranks)
    tokenizer, new = extend_tokenizer(texts.characters, initial.tokenizer)
    text = encode(texts, tokenizer)
    flags = flags | {"data": text_names(texts), "init_from": str(path.absolute())}
    config = initial.model.config
    settings, contradictions = resolve_fine_tuned(
        flags,
        config,
        len(text or ()),
        f"the model in {path}")
    begins = describe_initial(
        path,
        config,
        settings.block_size,
        new)
    return Beginning(
        settings,
        text,
        initial=initial,
        contradictions=contradictions,
        unreadable=unreadable,
        lines=[*describe_texts(texts), f"begins      {begins}"])


@contextlib.contextmanager
def enough_memory_for_the_text() -> Iterator[None]:
    """Say of what there is too much, if the memory does not suffice."""
    try:
        yield
    except MemoryError as error:
        raise ValueError("there is not enough memory for the text; give a shorter one") from error


@enough_memory_for_the_text()
def read_texts(words: Sequence[str], ranks: Ranks) -> tuple[data.Texts, list[str]]:
    """Read the texts that words stand for.  If one cannot be read, return texts without a
    character, and a line that says why."""
    try:
        with reading(words):
            return ranks.call_on_first(lambda: data.read_texts(words)), []
    except data.TextError as error:
        return data.Texts("", [(word, 0) for word in words], []), [str(error)]


@enough_memory_for_the_text()
def encode(texts: data.Texts, tokenizer: Tokenizer | None = None) -> data.Text | None:
    """Encode texts, by default with a tokenizer of their own characters; return None if there is no
    character."""
    return data.Text(texts.characters, texts.name, tokenizer) if texts.characters else None


@enough_memory_for_the_text()
def digest(texts: data.Texts) -> str:
    """Return what identifies the characters of texts."""
    return data.digest(texts.characters)


def text_names(texts: data.Texts) -> tuple[str, ...]:
    """Return the texts that were read, each in a word for --data."""
    return tuple(name for name, _ in texts.taken)


def describe_texts(texts: data.Texts) -> list[str]:
    """Return a line that lists several texts, or those left out; none if there is only one."""
    if len(texts.taken) < 2 and not texts.left_out:
        return []
    from data.sources.folders import listed
    return [f"files       {listed(texts.taken, texts.left_out)}"]


def saved_settings(checkpoint: Checkpoint, folder: object) -> Settings:
    """Return the settings of a saved run.

    Raises
    ------
    ValueError : this version cannot use them.
    """
    training = checkpoint.training
    saved = training["settings"] | {"data": recorded_texts(training) or Settings.data}
    for name in WITHOUT_FLAG:
        saved.pop(name, None)
    wrong = [f"there is no --{shown(name)}" for name in sorted(saved.keys() - {*NAMES})]
    if not wrong:
        # An older checkpoint lacks some settings, which were those of the recipe gpt2.
        earlier = Settings(**{"recipe": "gpt2"} | saved)
        wrong = [f"--{line}" for line in problems(earlier)]
    if wrong:
        raise ValueError(f"the run in {folder} has settings that this version cannot use "
                         f"({first_of(wrong)}); train anew into another --out_dir")
    most, _ = compiled.thread_limit()           # of this machine
    return dataclasses.replace(earlier, threads=min(earlier.threads, most))


def load_initial(name: str, frozen: bool = False) -> Checkpoint:
    """Read the checkpoint that --init_from names, without the state of its optimiser: a new run
    starts with a new one.  `frozen` is whether its weights stay as they are.

    Raises
    ------
    CheckpointError : there is none, or it is damaged, or of another kind.
    """
    path = checkpoint_path(name)
    try:
        checkpoint = load_checkpoint(path)
    except CheckpointError as error:
        near = difflib.get_close_matches(name, ("scratch", "resume"), n=1)
        hint = str(error)
        if near:
            hint = f"did you mean {near[0]}?"
        elif not (os.path.exists(path) or error.__cause__ or isinstance(error, OfAnotherProgram)):
            hint = f"there is no checkpoint {path}; give one, or the folder of a run"
        raise CheckpointError(f"--init_from {name} is neither scratch nor resume; {hint}"
                              ) from error
    if checkpoint.model.config.kind:
        from model.lora.begin import adapter_refusal
        raise CheckpointError(adapter_refusal(name, checkpoint.model))
    if frozen:
        return checkpoint._replace(optimizer={})
    parameters = checkpoint.model.parameters()
    if kinds := {p.packed.kind for p in parameters if isinstance(p, PackedTensor)}:
        print(f"unpacked    the weights, from {', '.join(sorted(kinds))} to float32, for training")
    if parameters[0].dtype == np.float64:
        print("rounded     the weights, from float64 to float32, for training")
    return checkpoint._replace(optimizer={})


@enough_memory_for_the_text()
def extend_tokenizer(text: str, tokenizer: Tokenizer) -> tuple[Tokenizer, dict[str, int]]:
    """Return a tokenizer that knows all characters of a text, the new ones at the end; and how
    often each of these occurs in the text."""
    _, unknown = tokenizer.without_unknown(text)
    if unknown:
        tokenizer = CharTokenizer.of(tokenizer.vocabulary + "".join(sorted(unknown)))
    return tokenizer, unknown


def describe_initial(
        path: pathlib.Path,
        config: TransformerConfig,
        block_size: int,
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


def training_bytes(
        config: TransformerConfig,
        optimizer: str,
        batch_size: int,
        ahead: int = 0) -> int:
    """Return the bytes of all arrays at the peak of a training step in float32, to about a tenth.

    For each parameter: itself, its gradient, and the optimiser's state.  For each token: in a
    block, 4 C, its queries, keys and values, what attention mixes, and the hidden channels of the
    MLP, three times where it has a gate; outside the blocks, 4 C and three times the V logits, and
    V for each id further `ahead`.
    """
    from model.count.sizes import parameters, state
    if config.kind:
        from model.lora.begin import numbers_in_training
        numbers = numbers_in_training(config)
    else:
        numbers = 2 * parameters(config) + state(config, optimizer)
    config = config.resolved()
    C = config.n_embd
    numbers += 4 * ahead * config.vocab_size * C
    gated = config.activation == "swiglu"
    heads = 2 * (config.n_head + config.n_kv_head)
    block_numbers = 4 * C + heads * config.head_dim + config.n_inner * (1 + 2 * gated)
    token_numbers = config.n_layer * block_numbers + 4 * C + (3 + ahead) * config.vocab_size
    return 4 * (numbers + batch_size * config.block_size * token_numbers)


def check_memory(s: Settings, config: TransformerConfig) -> None:
    """Compare what a training step of a model needs with the memory of this machine, before any is
    taken.

    Raises
    ------
    ValueError : the step needs more.
    """
    ids = 16 * (s.characters - s.batch_size * s.block_size)     # of accumulated batches
    model_options = ["n_layer", "n_embd"]
    if config.ngrams > 1:
        model_options.append("ngram_rows")
    for batch_size, more, names in (
            (0, 0, model_options),
            (s.batch_size, ids, ("batch_size", "block_size", "gradient_accumulation_steps"))):
        flags = as_flags({name: getattr(s, name) for name in names})
        needed = training_bytes(
            config,
            s.optimizer,
            batch_size,
            s.ahead)
        check_fits(needed + more, ", ".join(flags))
