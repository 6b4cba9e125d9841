"""The card of the page, in a browser: it shows the text's letters in their colours where the field
is out of view, says what cannot be seen, and never lies over what has the focus or is typed."""
import pytest

from tests.browser import of, resize
from tests.model.look.pages import MODERN, dragged, of_kind, opened_page, plain, typed

pytestmark = pytest.mark.needs("browser")
SIZES = [(375, 470), (640, 450), (853, 600), (1280, 900)]
LINES = "the quick brown fox\nruns over the green\nwood and the sea of\nwords that it likes\n\n"

# Whether some of an element with such a box lies off the screen or under the card; if there is no
# room for it, all but 40 pixels.
COVERED = """((box) => {
    const cards = ['card', 'glance'].map((id) => byId(id).getBoundingClientRect()).filter((x) =>
        x.height && x.left < box.right && x.right > box.left && x.bottom > box.top);
    const low = Math.max(0, ...cards.map((x) => x.top < box.bottom ? x.bottom : 0));
    const {scrollPaddingTop} = getComputedStyle(document.documentElement);
    if (box.height > innerHeight - (parseFloat(scrollPaddingTop) || 0)) {
        return box.bottom < low + 40 || box.top > innerHeight - 40;
    }
    return box.top < low - 1 || box.bottom > innerHeight + 1;
})"""


def shown(page):
    """Wait until the browser has drawn the page, told its observers and done the work."""
    page.execute_async_script("""const done = arguments[0];
        requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => {
            for (const _ of job); done(); })));""")


def scrolled(page, id):
    page.execute_script("byId(arguments[0]).scrollIntoView({block: 'end'})", id)
    shown(page)


@pytest.fixture
def wide(driver, tmp_path):
    """The page of a model that reads 200 characters at once, with a text of 12 lines."""
    return opened_page(driver, tmp_path, *of_kind(MODERN, 200), (LINES * 3)[:200])


@pytest.mark.parametrize("width, height", SIZES)
def test_no_tab_stop_and_no_letter_that_is_typed_lies_under_the_card(page, width, height):
    from selenium.webdriver.common.action_chains import ActionChains
    page.execute_script("update({off: ['0.1'], pin: {off: [], drag: null}}); for (const _ of job);"
                        "byId('log').open = byId('why').open = true;")
    resize(page, width, height)
    shown(page)                 # also the effects, which move what is below them
    page.execute_script("scrollTo(0, 0)")
    reached, covered = set(), []
    for _ in range(70):
        ActionChains(page).send_keys("\ue004").perform()           # Tab
        stop, is_covered = of(page, f"""(({{activeElement: x}}) => [
            `${{x.tagName}} ${{x.closest('[id]')?.id}} ${{x.textContent.slice(0, 20)}}`,
            x !== document.body && !byId('card').contains(x)
                && {COVERED}((x === input ? chosenLetter() : x).getBoundingClientRect())
            ])(document)""")
        if stop in reached and len(reached) > 30:
            break
        reached.add(stop)
        if is_covered:
            covered.append(stop)
    assert covered == [] and len(reached) > 30, reached
    page.execute_script("scrollTo(0, 0); input.focus({ preventScroll: true });")
    typed(page, LINES * 3)
    for text in ("the", " qu"):
        ActionChains(page).send_keys(text).perform()
        shown(page)
        assert not of(page, f"{COVERED}(letters.lastChild.getBoundingClientRect())")
        assert of(page, "document.activeElement === input && input.value").endswith(text)


@pytest.mark.parametrize("width, height", SIZES)
def test_the_card_has_the_letters_in_their_colours_only_while_the_field_is_out_of_view(
        wide, width, height):
    resize(wide, width, height)
    wide.execute_script("scrollTo(0, 0)")
    shown(wide)
    assert of(wide, "glance.hidden && glanceWords.textContent === ''")
    scrolled(wide, "heads")
    colours = "[...new Set(copies.map((x) => x.style.backgroundColor))].length"
    same = f"""((copies) => [copies.length, {colours} > 20, copies.every((x, i) =>
        x.style.cssText === spans[i].style.cssText && x.textContent === pieces[start + i]
    )])([...glance.children].slice(0, seen.length))"""
    assert of(wide, same) == [200, True, True]
    before = of(wide, "spans.map((x) => x.style.backgroundColor)")
    wide.execute_script("setOff('0.1', true); for (const _ of job);")
    assert of(wide, same) == [200, True, True]
    assert of(wide, "spans.map((x) => x.style.backgroundColor)") != before
    assert of(wide, "glanceWords.textContent") == (
        "Orange: worse with head 1.2 off.  Blue: better.")
    assert of(wide, """((a) => [blue, orange].map((ramp) => ramp.some((x) => a.has(css(x)
        .replaceAll(' ', ', ')))).join())(new Set([...glance.children].map((x) =>
        x.style.backgroundColor)))""") == "true,true"
    lines = of(wide, "glance.clientHeight / parseFloat(getComputedStyle(glance).lineHeight)")
    assert round(lines, 2) == (9 if width > 960 else 2)
    card = of(wide, "byId('card').getBoundingClientRect()")
    assert card["top"] == (16 if width > 960 else 0) and card["bottom"] < 0.74 * height
    wide.execute_script("update({off: ['0.1', '1.mlp', 'ngrams']}); for (const _ of job);")
    assert of(wide, "glanceWords.scrollWidth <= glanceWords.clientWidth")
    scrolled(wide, "input")
    assert of(wide, "glance.hidden")


# Whether a letter of the window lies in what is seen of the text in the card.
SEEN = """((row) => { const box = glance.getBoundingClientRect();
    const {top, bottom} = glance.children[row].getBoundingClientRect();
    return top > box.top - 3 && bottom < box.bottom + 3; })"""


@pytest.mark.parametrize("width, height", SIZES)
def test_of_a_long_text_the_card_has_the_lines_that_were_hit_or_written(wide, width, height):
    resize(wide, width, height)
    wide.execute_script("update({off: ['0.1']}); for (const _ of job);")
    scrolled(wide, "write")
    for row in (2, 100, 198):
        wide.execute_script("""rises = seen.map((_, i) => i === arguments[0] ? -5 : 0.004);
            showGlance();""", row)
        assert of(wide, f"{SEEN}({row})")
        if width < 960:
            assert not of(wide, f"{SEEN}({(row + 100) % 200})")
    typed(wide, LINES, 60)                      # nothing is off, and the cursor in the middle
    wide.execute_script("update({off: []}); for (const _ of job);")
    assert of(wide, f"{SEEN}(60)") and of(wide, "glance.children[60].className") == "chosen"
    for off in ("[]", "['0.1']"):
        wide.execute_script(f"update({{off: {off}, at: Infinity}}); for (const _ of job);")
        wide.execute_script("write(90); for (const _ of job); for (const _ of job);")
        scrolled(wide, "write")
        assert of(wide, f"{SEEN}(seen.length - 1)"), off


def test_a_dragged_weight_is_seen_in_the_letters_of_the_card(wide):
    resize(wide, 375, 470)
    wide.execute_script("update({at: 100}); for (const _ of job);")
    scrolled(wide, "weight")
    dragged(wide, 3, 0.9)
    largest = of(wide, "rises.indexOf(rises.reduce((a, b) => Math.abs(b) > Math.abs(a) ? b : a))")
    assert largest >= 100 and of(wide, f"{SEEN}({largest})")
    assert of(wide, "glanceWords.textContent") == (
        "Orange: worse with a weight moved.  Blue: better.")


@pytest.mark.parametrize("width", [375, 520, 640, 768])
def test_many_changes_are_scrolled_within_the_card_and_never_widen_the_page(page, width):
    page.execute_script("""update({at: 9}); update({off: ['0.0', '0.1', '0.mlp'],
        pin: {off: [], drag: null}, drag: {layer: 0, head: 0, row: 8, column: 2, weight: 0.5}});
        for (const _ of job);""")
    resize(page, width, 800)
    assert of(page, "$$('#changes li').length") == 5
    assert of(page, "byId('changes').scrollWidth > byId('changes').clientWidth")
    assert of(page, "document.documentElement.scrollWidth") == width


def test_what_was_hit_hardest_is_heard_and_not_seen(page):
    typed(page, "the quick\nthe fox")
    page.execute_script("""ids = seen = [...'the quick\\nthe fox'].map((c) => idOf.get(c));
        start = 0; edit = {key: 'x'}; pieces = [...'the quick\\nthe fox'];
        const rises = {3: 2, 10: 4, 16: 3};
        source.loss = (row, changed) => row ? 1 + changed * (rises[row] ?? 0) : null;
        showCost();""")
    said = plain(of(page, "$('#cost').textContent"))
    assert said.endswith("(1.563 nats).  Hit hardest: t at the start of a line: 4.00; "
                         "x after ‘the fo’: 3.00; space after ‘the’: 2.00.")
    assert of(page, "$$('#cost .unseen').map((x) => x.textContent).join()").startswith(
        ".  Hit hardest")
    typed(page, "the fox")
    page.execute_script("delete source.loss;")
    assert of(page, "getComputedStyle($('#place .unseen')).clipPath") == "inset(50%)"
    assert plain(of(page, "$('#place').textContent")).startswith("Most likely: ")
    assert of(page, "$('#place').textContent === $('#place .unseen').textContent")


def test_characters_that_cannot_be_seen_are_named_by_their_codes(page):
    typed(page, "a\u202eb\t\u00a0\u2028\u0301ש")
    assert of(page, "$('#unknown').textContent") == (
        "The model does not know U+202E, U+0009, U+00A0, U+2028, ‘◌\u0301’ (U+0301), "
        "‘\u2068ש\u2069’ (U+05E9).  It reads ‘␣’ instead, and gives no loss there.")
    assert of(page, "$('#context').textContent") == "aU+202Eb\t\u00a0U+2028\u0301ש?"
    assert of(page, "letters.textContent") == "a\u202eb\t\u00a0\u2028\u0301ש\u200b"
    page.execute_script("update({at: 1}); for (const _ of job);")
    assert "aU+202E" == of(page, "$('#context').textContent")
    assert of(page, "$('#place').textContent").startswith("Place 2, U+202E, unknown, has no loss")
    resize(page, 375, 470)
    scrolled(page, "write")
    assert of(page, "[...glance.children].map((x) => x.textContent).join('')") == (
        "aU+202Eb\t\u00a0U+2028\u0301ש")


@pytest.mark.parametrize("text, at, side", [
    ("the fox", None, "right"), ("שלום", None, "left"), ("the שלום", None, "right"),
    ("שלום\nthe ", None, "right"), ("the\n  שלום", None, "left"), ("שלום the", 4, "left"),
    ("the\nשלום", 3, "right"), ("", None, "right")])
def test_the_context_has_the_direction_of_the_line_of_the_cursor(page, text, at, side):
    typed(page, text, at)
    assert of(page, "getComputedStyle($('#context')).direction") == (
        "ltr" if side == "right" else "rtl")
    if text:
        sign, box = of(page, """[$('#context b'), document.createRange()].map((x) => {
            if (x.selectNodeContents) x.selectNodeContents($('#context'));
            return x.getBoundingClientRect(); })""")
        assert sign[side] == pytest.approx(box[side], abs=0.5)


def test_the_context_of_the_card_begins_with_no_bare_mark(page):
    typed(page, "the quick" + "e\u0301" * 10 + "x")     # of which the last 20 begin with a mark
    assert of(page, "$('#context').textContent") == "◌\u0301" + "e\u0301" * 9 + "x?"


def test_the_letter_after_what_is_read_has_its_ring_too(page):
    text = "the quick brown fox runs over the green wood"
    typed(page, text)
    page.execute_script("update({at: 32}); for (const _ of job);")
    assert of(page, "[state.at, start, spans.length]") == [32, 16, 16]
    rings = "$$('#letters .chosen').map((x) => [x.textContent, getComputedStyle(x).outlineStyle])"
    assert of(page, rings) == [[text[32], "solid"]]
    assert of(page, "letters.textContent") == text + "\u200b"
    for at, letter in ((31, text[31]), (44, "\u200b")):
        typed(page, text, at)
        assert of(page, rings)[0][0] == letter and len(of(page, rings)) == 1


def test_a_line_break_has_the_colour_of_its_loss_and_a_ring(wide):
    wide.execute_script("update({at: 19}); for (const _ of job);")
    tint, around, shown_, ring = of(wide, """[spans[19]].flatMap((x) => [x.style.backgroundColor,
        getComputedStyle(x, '::before').backgroundColor,
        getComputedStyle(x, '::before').content, getComputedStyle(x, '::before').outlineStyle])""")
    assert tint == around and "rgb" in tint and shown_ == '"⏎"' and ring == "solid"
    assert of(wide, "getComputedStyle(spans[19], '::before').opacity") == "1"


def test_a_page_that_is_printed_has_light_maps_at_once(wide):
    from tests.browser import chosen
    heads = """$$('#heads canvas').map((x) => { const {data} = x.getContext('2d')
        .getImageData(0, 0, 200, 200), at = 4 * 200 * 150; return data.slice(at, at + 3).join(); })
        .join(';') + $('#shades .ramp').style.background + $('#legend .ramp').style.background"""
    all_done = "for (const _ of job);"
    wide.execute_script(all_done)
    light = of(wide, heads)
    chosen(wide, "dark")
    wide.execute_script(all_done)
    assert of(wide, heads) != light
    wide.execute_script(f"""const $ = (x) => document.querySelector(x);
        const $$ = (x) => [...document.querySelectorAll(x)];
        onPaper.addEventListener('change', () => {{ globalThis.printed ??= {heads}; }});""")
    wide.execute_cdp_cmd("Page.printToPDF", {})
    assert of(wide, "printed") == light
    shown(wide)
    assert of(wide, heads) != light             # and afterwards it is dark again


@pytest.mark.parametrize("width, height", [*SIZES, (500, 484), (640, 360)])
def test_the_map_has_the_room_that_the_card_leaves(wide, width, height):
    resize(wide, width, height)
    scrolled(wide, "map")
    tall, above = of(wide, """[byId('map').offsetHeight,
        parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop)]""")
    assert 180 < tall <= max(200, height - above)
    assert above >= of(wide, "byId('glance').getBoundingClientRect().bottom") or width > 960


def test_a_keyboard_of_a_phone_makes_the_page_smaller(page):
    assert "interactive-widget=resizes-content" in of(page, "$('[name=viewport]').content")


@pytest.mark.parametrize("width, height", SIZES)
def test_hardly_anything_moves_while_the_page_is_drawn(wide, width, height):
    from selenium.webdriver.support.wait import WebDriverWait
    resize(wide, width, height)
    wide.refresh()
    WebDriverWait(wide, 20, 0.02).until(
        lambda page: of(page, "'ready' in document.documentElement.dataset"))
    shown(wide)
    shifts = wide.execute_async_script("""const done = arguments[0], shifts = [];
        new PerformanceObserver((list) => shifts.push(...list.getEntries())).observe(
            {type: 'layout-shift', buffered: true});
        setTimeout(() => done(shifts.map((x) => x.value)), 100);""")
    assert sum(shifts) < 0.1


@pytest.mark.parametrize("width, height", SIZES)
def test_what_is_there_first_stays_where_it_is(wide, width, height):
    """A browser may paint before it has read all of the page."""
    resize(wide, width, height)
    shown(wide)                 # the page has no work left, which would miss what is taken away
    wide.execute_script("scrollTo(0, 0)")
    moved = of(wide, """(() => {
        const ids = ['title', 'lede', 'card', 'text'], tops = () => ids.map((id) => {
            const x = byId(id);
            return x?.checkVisibility({visibilityProperty: true}) && x.getBoundingClientRect().top;
        });
        const before = tops(), moved = [], {children} = $('.desk');
        while (children.length > 1) {
            $('.desk').lastElementChild.remove();
            tops().forEach((top, i) => {
                if (top && top !== before[i]) moved.push([ids[i], children.length]);
            });
        }
        return moved; })()""")
    assert moved == [] and of(wide, "!byId('text') && byId('title').checkVisibility()")
