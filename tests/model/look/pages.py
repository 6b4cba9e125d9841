"""Pages that are opened in a browser, and the maps of attention that they show."""
import numpy as np

from data.tokenizer import CharTokenizer
from model import Transformer, TransformerConfig
from model.checkpoint import Checkpoint
from model.look.beside import Side
from model.look.page import gather, html
from model.look.reading import attention_maps, watch
from tests.browser import chosen, of, opened
from tests.kit import written

LETTERS = "\n abcdefghijklmnopqrstuvwxyz.</script>&'\""
MODERN = {"position": "rotary", "norm": "rms", "qk_norm": True, "activation": "relu2", "ngrams": 4,
          "ngram_rows": 50}


def of_kind(options, block_size=12, seed=0, characters=LETTERS, heads=4, channels=16):
    """A model with large random weights, so that every part of it counts."""
    tokenizer = CharTokenizer(characters)
    model = Transformer(TransformerConfig(tokenizer.vocab_size, block_size, 2, heads, channels,
                                          **options), seed)
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.data += rng.normal(0, 0.3, p.shape).astype(np.float32)
    return model, tokenizer


def typed(page, text, at=None):
    """Put a text into the field, as a paste does, and wait until it is read."""
    page.execute_script("""const input = byId('input'); input.value = arguments[0];
        const at = arguments[1] ?? input.value.length;
        input.setSelectionRange(at, at);
        input.dispatchEvent(new Event('input')); for (const _ of job);""", text, at)


def dragged(page, column, weight):
    """Drag the weight of the chosen row on a column of the window, as the slider does."""
    page.execute_script("""update({column: start + arguments[0]});
        byId('weight').value = arguments[1];
        byId('weight').dispatchEvent(new Event('input')); for (const _ of job);""", column, weight)


def without(model, part):
    """The model without a part, by weights that are 0."""
    same = Transformer(model.config)
    same.load_state_dict({name: p.data.copy() for name, p in model.named_parameters()})
    layer, _, what = part.partition(".")
    if part == "ngrams":
        same.ngram_embedding.weight.data[:] = 0
    elif what == "mlp":
        same.blocks[int(layer)].mlp.down.weight.data[:] = 0
    else:
        columns = same.blocks[int(layer)].attention.out.weight.data.reshape(
            model.config.n_embd, model.config.n_head, -1)
        columns[:, slice(None) if what == "attention" else int(what)] = 0
    return same


def after(page, action):
    """Do something, and wait until the address holds what it changed."""
    page.execute_script(action)
    page.execute_async_script("setTimeout(arguments[0], 300)")


def plain(text):
    return text.replace("\u00a0", " ")


def maps_of(model, ids):
    return attention_maps(model, watch(model, ids))


def opened_page(driver, folder, model, tokenizer, text, training=None, live=True, source="",
                beside=None):
    """The page, which has drawn itself without a complaint; `beside` is the name of a second model,
    that, and its tokenizer."""
    checkpoint = Checkpoint(model, tokenizer, training or {}, {})
    second = beside and Side(beside[0], Checkpoint(*beside[1:], {}, {}))
    page = opened(driver, written(
        folder / "live.html", html(*gather(checkpoint, text, source, folder, live, second))))
    assert of(page, "$('#trouble').hidden") and page.get_log("browser") == []
    return page


def assert_pair_keeps_its_colours(page, which):
    """Both texts are printed as in the light theme, also from the dark one; and where colours are
    forced, the letter of the second text that a selector names has its own."""
    shades = "$$('#pair .letters span').map((x) => x.style.backgroundColor).join('')"
    light = of(page, shades)
    chosen(page, "dark")
    page.execute_script("for (const _ of job);")
    assert of(page, shades) != light
    page.execute_script(f"""const $$ = (x) => [...document.querySelectorAll(x)];
        onPaper.addEventListener('change', () => {{ globalThis.printed ??= {shades}; }});""")
    page.execute_cdp_cmd("Page.printToPDF", {})
    assert of(page, "printed") == light
    chosen(page, "")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
        {"name": "forced-colors", "value": "active"}]})
    page.execute_script("for (const _ of job);")
    letter = f"$('#now-letters span:{which}')"
    assert of(page, f"getComputedStyle({letter}).backgroundColor") == of(
        page, f"{letter}.style.backgroundColor")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


# Whether a page that is printed keeps its parts below one another, with all costs.
ON_PAPER = """['card', 'flow', 'text'].map((id) => byId(id).getBoundingClientRect())
    .every((x, i, all) => x.left === all[2].left && (i || x.bottom <= all[1].top))
    && getComputedStyle($('.level')).breakInside === 'avoid'
    && $('.cost .more').checkVisibility()"""
