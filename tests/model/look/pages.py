"""Pages that are opened in a browser, and the maps of attention that they show."""
from model.checkpoint import Checkpoint
from model.look.page import gather, html
from model.look.reading import attention_maps, watch
from tests.browser import of, opened
from tests.kit import written


def maps_of(model, ids):
    return attention_maps(model, watch(model, ids))


def opened_page(driver, folder, model, tokenizer, text, training=None, live=True, source=""):
    """The page, which has drawn itself without a complaint."""
    checkpoint = Checkpoint(model, tokenizer, training or {}, {})
    page = opened(driver, written(
        folder / "live.html", html(*gather(checkpoint, text, source, folder, live))))
    assert of(page, "$('#trouble').hidden") and page.get_log("browser") == []
    return page


# Whether a page that is printed keeps its parts below one another, with all costs.
ON_PAPER = """['card', 'flow', 'text'].map((id) => byId(id).getBoundingClientRect())
    .every((x, i, all) => x.left === all[2].left && (i || x.bottom <= all[1].top))
    && getComputedStyle($('.level')).breakInside === 'avoid'
    && $('.cost .more').checkVisibility()"""
