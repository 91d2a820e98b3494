"""The layout of graphs: every edge goes down, and nothing lies on anything else."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from webrelax.packaging.report.layered import draw, longest_paths

Graph = tuple[dict[str, tuple[float, float]], list[tuple[str, str]]]


@st.composite
def graphs(draw_: st.DrawFn) -> Graph:
    """Sizes and edges, from earlier nodes to later ones."""
    count = draw_(st.integers(1, 12))
    lengths = st.floats(4, 200)
    sizes = {f"v{at}": (draw_(lengths), draw_(lengths)) for at in range(count)}
    pairs = list(combinations(sizes, 2))
    return sizes, draw_(st.lists(st.sampled_from(pairs), max_size=20)) if pairs else []


@given(graphs())
@settings(deadline=None)
def test_edges_go_down_and_nodes_do_not_touch(graph: Graph) -> None:
    sizes, edges = graph
    drawing = draw(sizes, edges, (10, 20))
    for a, b in edges:
        assert drawing.spans[a][1] <= drawing.spans[b][0] - 19.9
        for _, y in drawing.bends[(a, b)]:
            assert drawing.spans[a][1] < y < drawing.spans[b][0]
    for a, b in combinations(sizes, 2):
        (ax, ay), (bx, by) = drawing.centers[a], drawing.centers[b]
        apart_x = abs(ax - bx) >= (sizes[a][0] + sizes[b][0]) / 2 + 9.9
        apart_y = abs(ay - by) >= (sizes[a][1] + sizes[b][1]) / 2
        assert apart_x or apart_y
    for node, (x, y) in drawing.centers.items():
        assert x - sizes[node][0] / 2 >= -0.01
        assert x + sizes[node][0] / 2 <= drawing.width + 0.01
        assert y + sizes[node][1] / 2 <= drawing.height + 0.01


def test_a_long_edge_passes_beside_the_nodes_between() -> None:
    sizes = dict.fromkeys("abc", (100.0, 40.0))
    drawing = draw(sizes, [("a", "b"), ("b", "c"), ("a", "c")], (10, 20))
    (x, top), (_, bottom) = drawing.bends[("a", "c")]
    assert abs(x - drawing.centers["b"][0]) > 50
    assert (top, bottom) == drawing.spans["b"]


def test_rows() -> None:
    edges = [("a", "b"), ("b", "c"), ("a", "c"), ("late", "c")]
    assert longest_paths(["a", "b", "c", "late", "alone"], edges) == {"a": 0, "b": 1, "c": 2, "late": 1, "alone": 0}
    assert draw({}, [], (1, 1)).width == 0
