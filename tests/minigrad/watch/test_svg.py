"""The drawing: values go down, arrows run through no box, and browsers take the file."""
import configparser
import itertools
import pathlib
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from minigrad.watch import svg
from minigrad.watch.svg import Arrow, Box, draw

SPACE = "{http://www.w3.org/2000/svg}"


def random_boxes(seed, n=16):
    """A graph in which each box is made of up to three earlier ones, some more than once."""
    rng = np.random.default_rng(seed)
    boxes = []
    for i in range(n):
        box = Box(("op", "leaf", "constant")[i % 3], [("head", f"box {i}"), ("", "x" * (3 * i))],
                  badge=str(i))
        for j in rng.integers(max(i, 1), size=rng.integers(4)) if i else ():
            box.arrows.append(Arrow(boxes[j], "1.5" * (i % 4 == 0), f"{j} {i}"))
        boxes.append(box)
    return boxes


def chain(n, residual):
    boxes = [Box("leaf", [("", "start")])]
    for i in range(n):
        boxes.append(Box("op", [("", f"step {i}")], arrows=[Arrow(boxes[-1], tip="next")]))
        if residual and i:
            boxes[-1].arrows.append(Arrow(boxes[0], tip="start"))
    return boxes


def drawn(boxes):
    """The frames of the boxes by their first line, (left, top, right, bottom); and the arrows'
    paths as points along them."""
    drawing = ET.fromstring(draw(boxes, "title"))
    frames, paths = {}, []
    for g in drawing.iter(f"{SPACE}g"):
        rect = g.find(f"{SPACE}rect")
        if rect is not None:
            x, y, w, h = (float(rect.get(k)) for k in ("x", "y", "width", "height"))
            frames[g.find(f"{SPACE}text").text] = (x, y, x + w, y + h)
        elif g.get("class") == "arrow":
            paths.append(points_of(g.find(f"{SPACE}path").get("d")))
    return frames, paths


def points_of(d):
    """Points along a path of M, H, V, Q and C commands, close to each other."""
    points = []
    for letter, rest in re.findall(r"([MHVQC])([^MHVQC]*)", d):
        n = [float(x) for x in rest.split()]
        t = np.linspace(0, 1, 41)[:, None]
        if letter == "M":
            points.append(np.array([n]))
            continue
        start = points[-1][-1]
        if letter in "HV":
            n = [n[0], start[1]] if letter == "H" else [start[0], n[0]]
        corners = [start, *np.array(n).reshape(-1, 2)]
        while len(corners) > 1:                 # de Casteljau's way to any such curve
            corners = [(1 - t) * a + t * b for a, b in zip(corners, corners[1:])]
        points.append(corners[0])
    return np.concatenate(points)


def on_edge(point, frame):
    """Whether a point lies on a frame, and outside of its corners."""
    (x, y), (left, top, right, bottom) = point, frame
    beside = min(abs(x - left), abs(x - right)) < 0.2 and top + 5 < y < bottom - 5
    return beside or min(abs(y - top), abs(y - bottom)) < 0.2 and left + 5 < x < right - 5


GRAPHS = [random_boxes(seed) for seed in range(8)] + [chain(12, False), chain(12, True)]


@pytest.mark.parametrize("boxes", GRAPHS)
def test_no_box_lies_on_another_and_none_outside_the_paper(boxes):
    frames, paths = drawn(boxes)
    assert len(frames) == len(boxes)
    for name, (left, top, right, bottom) in frames.items():
        for other, (x, y, to_x, to_y) in frames.items():
            assert name == other or right < x or to_x < left or bottom < y or to_y < top
    view = [float(x) for x in ET.fromstring(draw(boxes, "title")).get("viewBox").split()]
    assert all(view[0] < left and top > view[1] and right < view[0] + view[2]
               and bottom < view[1] + view[3] for left, top, right, bottom in frames.values())
    assert all((points > view[:2]).all() and (points < view[2:]).all() for points in paths)


@pytest.mark.parametrize("boxes", GRAPHS)
def test_a_box_lies_below_all_that_it_is_made_of_or_beside_it(boxes):
    frames, _ = drawn(boxes)
    for box in boxes:
        left, top, _, bottom = frames[box.lines[0][1]]
        for arrow in box.arrows:
            _, _, right, end = frames[arrow.source.lines[0][1]]
            assert end < top or right < left and not arrow.source.arrows
    assert len({left for left, *_ in frames.values()}) <= 2


@pytest.mark.parametrize("boxes", GRAPHS)
def test_arrows_run_through_no_box(boxes):
    frames, paths = drawn(boxes)
    assert len(paths) == sum(len(box.arrows) for box in boxes)
    for points in paths:
        for left, top, right, bottom in frames.values():
            x, y = points.T
            inside = (x > left + 1) & (x < right - 1) & (y > top + 1) & (y < bottom - 1)
            assert not inside.any()


@pytest.mark.parametrize("boxes", GRAPHS)
def test_every_arrow_ends_at_its_box_and_comes_from_its_source(boxes):
    frames, _ = drawn(boxes)
    drawing, expected = ET.fromstring(draw(boxes, "title")), {}
    for box in boxes:
        for arrow in box.arrows:
            expected.setdefault(arrow.tip or None, []).append((arrow, box))
    ends = set()
    for g in drawing.iter(f"{SPACE}g"):
        if g.get("class") == "arrow":
            points = points_of(g.find(f"{SPACE}path").get("d"))
            ends.add(tuple(points[-1]))
            assert any(on_edge(points[0], frames[arrow.source.lines[0][1]])
                       and on_edge(points[-1], frames[box.lines[0][1]])
                       and arrow.label == (g.findtext(f"{SPACE}text") or "")
                       for arrow, box in expected[g.findtext(f"{SPACE}title") or None])
    assert len(ends) == sum(len(box.arrows) for box in boxes)       # none covers another one's end


def test_long_arrows_beside_each_other_are_told_apart():
    leaves = [Box("leaf", [("", name)]) for name in "ab"]
    steps = [Box("op", [("", "0")], arrows=[Arrow(leaf) for leaf in leaves])]
    for i in range(1, 12):
        steps.append(Box("op", [("", str(i))], arrows=[Arrow(steps[-1])]))
        if i > 7:
            steps[-1].arrows += [Arrow(steps[11 - i]), Arrow(leaves[i % 2])]
    _, paths = drawn(leaves + steps)
    curves = [points for points in paths if np.ptp(points[:, 1]) > 200]
    assert len(curves) == 8
    for one, other in itertools.combinations(curves, 2):
        y = (max(one[0, 1], other[0, 1]) + min(one[-1, 1], other[-1, 1])) / 2
        apart = np.interp(y, *one.T[::-1]) - np.interp(y, *other.T[::-1])
        assert abs(apart) > 5 or tuple(one[0]) == tuple(other[0])


def test_a_chain_is_straight_and_what_goes_around_it_takes_a_line_each():
    frames, paths = drawn(chain(30, True))
    assert len({left for left, *_ in frames.values()}) == 2
    assert sum(np.ptp(points[:, 0]) < 0.1 for points in paths) == 29    # between neighbours
    once, twice = (len(draw(chain(n, True), "title")) for n in (30, 60))
    assert twice < 2.1 * once
    assert draw(chain(30, True), "title") == draw(chain(30, True), "title")


def test_long_chains_and_no_boxes_are_drawn():
    assert draw(chain(3000, False), "long").count("<rect") == 3002
    assert ET.fromstring(draw([], "nothing")) is not None


def test_the_file_is_an_image_with_a_name_for_light_and_dark():
    text = draw([Box("op", [("", 'a < b & "c"')], tip="<tip>")], "a <title>", "a & description")
    drawing = ET.fromstring(text)
    assert drawing.get("role") == "img" and drawing[0].tag == f"{SPACE}title"
    assert drawing[0].text == "a <title>" and drawing[1].text == "a & description"
    assert "prefers-color-scheme: dark" in text and "<script" not in text and "href" not in text
    assert 'a &lt; b &amp;' in text and "&lt;tip&gt;" in text


def test_its_style_is_installed_with_the_package():
    folder, config = pathlib.Path(svg.__file__).parent, configparser.ConfigParser()
    config.read(folder.parents[1] / "setup.cfg", encoding="utf-8")
    installed = folder.glob(config["options.package_data"]["minigrad.watch"])
    assert [path.name for path in installed] == ["graph.css"]
