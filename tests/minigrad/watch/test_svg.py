"""The drawing: values go down, arrows run through no box, and browsers take the file."""
import itertools
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from minigrad.watch.svg import Arrow, Box, draw

SVG = "{http://www.w3.org/2000/svg}"


def random_boxes(seed, n=16):
    """A graph in which each box is made of up to three earlier ones, some more than once."""
    rng = np.random.default_rng(seed)
    boxes = []
    for i in range(n):
        box = Box(("op", "leaf", "constant")[i % 3], [("head", f"box {i}"), ("", "x" * (3 * i))],
                  badge=str(i))
        for j in rng.integers(max(i, 1), size=rng.integers(4)) if i else ():
            number = "1.5" if i % 4 == 0 else ""
            box.arrows.append(Arrow(boxes[j], number, f"{j} {i}"))
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
    """The size of the paper; the frames of the boxes by their first line, (left, top, right,
    bottom); and each arrow's tip, label and path, as points along it."""
    drawing = ET.fromstring(draw(boxes, "title"))
    frames = {}
    arrows = []
    for g in drawing.iter(f"{SVG}g"):
        rect = g.find(f"{SVG}rect")
        if rect is not None:
            x, y, w, h = (float(rect.get(k)) for k in ("x", "y", "width", "height"))
            frames[g.findtext(f"{SVG}text")] = (x, y, x + w, y + h)
        elif g.get("class") == "arrow":
            arrows.append((g.findtext(f"{SVG}title") or "", g.findtext(f"{SVG}text") or "",
                           points_of(g.find(f"{SVG}path").get("d"))))
    return [float(drawing.get(k)) for k in ("width", "height")], frames, arrows


def points_of(d):
    """Points along a path of M, V, Q and C commands, close to each other."""
    points = []
    for letter, rest in re.findall(r"([MVQC])([^MVQC]*)", d):
        n = [float(x) for x in rest.split()]
        t = np.linspace(0, 1, 41)[:, None]
        if letter == "M":
            points.append(np.array([n]))
            continue
        start = points[-1][-1]
        corners = [start, *np.array([start[0], *n] if letter == "V" else n).reshape(-1, 2)]
        while len(corners) > 1:                 # de Casteljau's way to any such curve
            corners = [(1 - t) * a + t * b for a, b in zip(corners, corners[1:])]
        points.append(corners[0])
    return np.concatenate(points)


def on_edge(point, frame):
    """Whether a point lies on a frame, and outside of its corners."""
    x, y = point
    left, top, right, bottom = frame
    beside = min(abs(x - left), abs(x - right)) < 0.2 and top + 5 < y < bottom - 5
    return beside or min(abs(y - top), abs(y - bottom)) < 0.2 and left + 5 < x < right - 5


@pytest.mark.parametrize("boxes", [*map(random_boxes, range(8)), chain(12, False), chain(12, True)])
def test_boxes_are_apart_and_below_their_sources_and_arrows_go_between_them(boxes):
    paper, frames, arrows = drawn(boxes)
    assert len(frames) == len(boxes) and len({left for left, *_ in frames.values()}) <= 2
    for (left, top, right, bottom), (x, y, to_x, to_y) in itertools.permutations(
            frames.values(), 2):
        assert right < x or to_x < left or bottom < y or to_y < top
    assert all(0 < left and 0 < top and right < paper[0] and bottom < paper[1]
               for left, top, right, bottom in frames.values())
    expected = {}                           # the boxes that arrows go between, by tip and label
    for box in boxes:
        frame = left, top, _, _ = frames[box.lines[0][1]]
        for arrow in box.arrows:
            source = _, _, right, end = frames[arrow.source.lines[0][1]]
            assert end < top or right < left and not arrow.source.arrows
            expected.setdefault((arrow.tip, arrow.label), []).append((source, frame))
    for tip, label, points in arrows:
        assert (points > 0).all() and (points < paper).all()
        for left, top, right, bottom in frames.values():
            x, y = points.T
            assert not ((x > left + 1) & (x < right - 1) & (y > top + 1) & (y < bottom - 1)).any()
        assert any(on_edge(points[0], source) and on_edge(points[-1], box)
                   for source, box in expected[tip, label])
    if len(boxes) == 13:            # a chain is straight
        assert sum(np.ptp(points[:, 0]) < 0.1 for *_, points in arrows) >= 11
    ends = {tuple(points[-1]) for *_, points in arrows}
    assert len(ends) == len(arrows) == sum(len(box.arrows) for box in boxes)    # none is covered


def test_long_arrows_beside_each_other_can_be_distinguished():
    leaves = [Box("leaf", [("", name)]) for name in "ab"]
    steps = [Box("op", [("", "0")], arrows=[Arrow(leaf) for leaf in leaves])]
    for i in range(1, 12):
        steps.append(Box("op", [("", str(i))], arrows=[Arrow(steps[-1])]))
        if i > 7:
            steps[-1].arrows += [Arrow(steps[11 - i]), Arrow(leaves[i % 2])]
    curves = [points for *_, points in drawn(leaves + steps)[2] if np.ptp(points[:, 1]) > 200]
    assert len(curves) == 8
    for one, other in itertools.combinations(curves, 2):
        y = (max(one[0, 1], other[0, 1]) + min(one[-1, 1], other[-1, 1])) / 2
        apart = np.interp(y, *one.T[::-1]) - np.interp(y, *other.T[::-1])
        assert abs(apart) > 5 or tuple(one[0]) == tuple(other[0])


def test_the_file_is_an_image_with_a_name_for_light_and_dark():
    text = draw([Box("op", [("", 'a < b & "c"')], tip="<tip>")], "a <title>", "a & description")
    drawing = ET.fromstring(text)
    assert drawing.get("role") == "img" and drawing[0].tag == f"{SVG}title"
    assert drawing[0].text == "a <title>" and drawing[1].text == "a & description"
    assert "prefers-color-scheme: dark" in text and "<script" not in text and "href" not in text
    assert 'a &lt; b &amp;' in text and "&lt;tip&gt;" in text
