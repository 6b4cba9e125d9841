"""Where a transformer's parameters are, and what a token costs:

    python -m model.count                   the model that train.py trains, by the same flags
    python -m model.count --recipe gpt2 --n_layer 96 --n_head 96 --n_embd 12288 \\
        --vocab_size 50257 --block_size 2048                GPT-3
    python -m model.count --out_dir out     a model that was trained

Everything is counted by formulas, so that the largest model needs no memory.
Shapes: L layers, H heads of D channels, C = H D channels in all, V vocabulary, T block size.
"""
import dataclasses

from minigrad.watch.text import aligned
from minigrad.words import number_of, scaled
from model.answers import answering
from model.checkpoint import checkpoint_path, load_checkpoint
from model.command import Parser
from model.config import TransformerConfig
from model.count.sizes import (cached, forward_flops, layer_parameters, outside_layers, parameters,
                               state, trained)
from model.options import flag
from model.settings import MODEL, MODERN, RECIPES, WITHOUT_FLAG, Settings, recipe

LANTERN = 62    # characters of the text that train.py takes by default
ATTENTION = ("query", "key", "value", "output")
MLP = ("gate", "up", "down")
EMBEDDINGS = [f"{name} embedding" for name in ("token", "n-gram", "position", "output")]


@dataclasses.dataclass(frozen=True)
class Counted(TransformerConfig):
    """The settings of the command: the options of the model, as train.py has them, and these."""
    vocab_size: int = flag(LANTERN, "different characters, V", at_least=1)
    recipe: str = flag(Settings.recipe, f"whole settings by name: {', '.join(RECIPES)}",
                       choices=tuple(RECIPES))
    out_dir: str = flag(None, "count the model in the ckpt.npz of this folder instead")


def main(argv: list[str] | None = None) -> None:
    """Run the command."""
    usual = {name: MODERN[name] for name in MODEL if name in MODERN}
    parser = Parser("python -m model.count", __doc__, Counted(**usual))
    flags = parser.parse(argv)
    out_dir = flags.pop("out_dir", None)
    with answering("model.count"):
        if not out_dir:
            counted = model_and_optimizer(flags, parser)
        elif not flags:
            model, _, training, _ = load_checkpoint(checkpoint_path(out_dir))
            settings = training.get("settings", {})
            counted = model.config, settings.get("optimizer", Settings.optimizer)
        else:
            parser.refuse(["--out_dir counts a model as it was trained; leave out --"
                           + ", --".join(flags)])
        print(report(*counted))


def model_and_optimizer(flags: dict, parser: Parser) -> tuple[TransformerConfig, str]:
    """Return the config of the model that train.py would train, on a text that holds the block, and
    its optimiser."""
    vocab_size = flags.pop("vocab_size", LANTERN)
    without_flag = {name: flags.pop(name) for name in WITHOUT_FLAG if name in flags}
    chosen = recipe(flags.get("recipe", Settings.recipe), characters=0) | flags
    s = Settings(**chosen)
    parser.refuse(s.problems())
    return dataclasses.replace(s.model_config(vocab_size), **without_flag), s.optimizer


def report(c: TransformerConfig, optimizer: str) -> str:
    """Return three tables: parameters by part, operations per token, bytes."""
    heads = f"{number_of(c.n_head, 'head')} of {c.d_head:,}"
    if c.kv_heads != c.n_head:
        heads += f", keys and values in {c.kv_heads:,}"
    return "\n".join([
        f"{number_of(c.n_layer, 'layer')}, {heads}; {number_of(c.n_embd, 'channel')}, "
        f"vocabulary {c.vocab_size:,}, block {c.block_size:,}", "",
        *parameter_table(c), "", *flops_table(c), "", *bytes_table(c, optimizer)])


def parameter_table(config: TransformerConfig) -> list[str]:
    """Return the parameters of each part: in one head, one layer, all layers; and its share."""
    layer = layer_parameters(config)
    outside = outside_layers(config)
    total = parameters(config)
    H = config.n_head
    G = config.kv_heads
    head = {part: layer[part] // heads for part, heads in zip(ATTENTION, (H, G, G, H))}

    def row(name, in_layer=0, in_head=0, outside=0):
        in_all = config.n_layer * in_layer + outside
        cells = (f"{n:,}" if n else "" for n in (in_head, in_layer, in_all))
        return name, *cells, f"{in_all / total:.1%}"
    rows = [("parameters", "one head", "one layer", "all", "share"),
            *(row(name, outside=outside[name]) for name in EMBEDDINGS if outside[name]),
            row("attention", sum(layer[part] for part in ATTENTION), sum(head.values()) * (H == G)),
            *(row(f"  {part}", layer[part], head[part]) for part in ATTENTION),
            row("MLP", sum(layer[part] for part in MLP)),
            *(row(f"  {part}", layer[part]) for part in MLP if layer[part]),
            *(row(name, layer[name], outside=outside[name]) for name in ["norms"] if outside[name]),
            row("total", layer.total(), outside=outside.total())]
    C = config.n_embd
    D = config.d_head
    lines = aligned(rows, "<>>>>")
    if config.tied:
        lines.append("The token embedding is the output's weights as well.")
    if config.kind:
        lines.append(f"The pairs of the adapter have {trained(config):,} more; only these are "
                     "trained.")
    # Source of the comparison: 3Blue1Brown 2024, "Attention in transformers".
    return lines + [
        f"A head's value and output matrices, down to {number_of(D, 'channel')} and up again, have",
        f"{2 * C * D:,} parameters; one of {C:,} x {C:,} in their place has {C * C:,}."]


def flops_table(config: TransformerConfig) -> list[str]:
    """Return the floating-point operations of a token, forward and in training."""
    products, attention = forward_flops(config)
    keys = number_of((config.block_size + 1) / 2, "key")
    rows = {"2 for each weight that multiplies": products,
            f"attention to {keys}, the mean of a block": attention, "total": products + attention}
    return [f"{'floating-point operations a token':49}{'forward':>14}{'training':>14}",
            *(f"{name:49}{scaled(n, ''):>14}{scaled(3 * n, ''):>14}" for name, n in rows.items())]


def bytes_table(config: TransformerConfig, optimizer: str) -> list[str]:
    """Return the bytes of weights, of training, of the KV cache, and read for each new token."""
    n = parameters(config)
    cache = cached(config)
    outside = outside_layers(config)
    block = config.block_size * cache
    # A step reads one row of positions, a row for each length of n-gram, and all rows of the
    # output, which are those of the tokens where it is tied.
    rows_read = {"position": config.position == "learned", "n-gram": config.ngrams - 1}
    if not config.tied:
        rows_read["token"] = 1
    unread = sum(outside[f"{name} embedding"] - rows * config.n_embd
                 for name, rows in rows_read.items())
    rows = {"weights": n, "keys and values of a token": cache,
            "keys and values of a full block": block,
            "read to write a token, the cache full": n + block - unread}
    by = "Muon and AdamW" if optimizer == "muon" else "AdamW"
    training = {"gradients": trained(config), f"the state of {by}": state(config, optimizer)}
    return [f"{'bytes':49}{'float32':>14}{'16 bits':>14}",
            *(f"{name:49}{scaled(4 * n, 'B'):>14}{scaled(2 * n, 'B'):>14}"
              for name, n in rows.items()),
            *(f"{f'to train: {name}':49}{scaled(4 * n, 'B'):>14}" for name, n in training.items())]


if __name__ == "__main__":
    main()
