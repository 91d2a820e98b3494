"""What is known of values: subsumption, joins, substitution, coarsening."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webrelax.compiler.ir import (
    Annotation,
    Callable,
    Object,
    Shape,
    Tensor,
    Tuple,
    annotation_variables,
    dimensions,
    erase_variables,
    is_subsumed,
    join,
    map_dimensions,
)
from webrelax.compiler.symbolic import Var

N, M, SMALL = Var("n"), Var("m"), Var("n", 1, 8)

# Each row goes from finer to coarser.
CHAINS: list[list[Annotation]] = [
    [Tensor((N * 4,), "f32"), Tensor(dtype="f32", ndim=1), Tensor(dtype="f32"), Tensor(), Object()],
    [Tensor((N,), "i32"), Tensor((N,)), Tensor(ndim=1), Tensor(), Object()],
    [Shape((N, 4)), Shape(ndim=2), Shape(), Object()],
    [
        Tuple((Tensor((N,), "f32"), Shape((M,)))),
        Tuple((Tensor(ndim=1), Shape(ndim=1))),
        Tuple((Object(), Object())),
        Object(),
    ],
    [Callable((Tensor(ndim=1),), Shape((4,))), Callable((Tensor((N,), "f32"),), Shape(ndim=1)), Object()],
]


@pytest.mark.parametrize("chain", CHAINS)
def test_coarser_annotations_hold_of_all_values_of_finer_ones(chain: list[Annotation]) -> None:
    for at, finer in enumerate(chain):
        for later, coarser in enumerate(chain):
            assert is_subsumed(finer, coarser) == (at <= later)


def test_dimensions_are_compared_by_proof() -> None:
    assert is_subsumed(Tensor(((N + 1) * 4,)), Tensor((4 + N * 4,)))
    assert is_subsumed(Tensor((N * M // M * 1,)), Tensor((N * M // M,)))
    assert not is_subsumed(Tensor((N,)), Tensor((M,)))
    assert not is_subsumed(Tensor((N, 1)), Tensor((N,)))
    assert not is_subsumed(Tensor((N,)), Shape((N,)))


@pytest.mark.parametrize(
    ("finer", "coarser", "holds"),
    [
        # The variables of a function are its own: names do not matter.
        (Callable((Tensor((N,)),), Tensor((N * 2,))), Callable((Tensor((M,)),), Tensor((M * 2,))), True),
        (Callable((Tensor((N,)),), Tensor((N * 2,))), Callable((Tensor((M,)),), Tensor((M * 3,))), False),
        # A function of any two lengths is one of two equal lengths, not the other way round.
        (Callable((Tensor((N,)), Tensor((M,))), Object()), Callable((Tensor((N,)), Tensor((N,))), Object()), True),
        (Callable((Tensor((N,)), Tensor((N,))), Object()), Callable((Tensor((N,)), Tensor((M,))), Object()), False),
        # ... and one of any length is one of length 4, but a function of few is not one of many.
        (Callable((Tensor((N,)),), Tensor((N,))), Callable((Tensor((4,)),), Tensor((4,))), True),
        (Callable((Tensor((SMALL,)),), Object()), Callable((Tensor((M,)),), Object()), False),
        (Callable((Tensor((M,)),), Object()), Callable((Tensor((SMALL,)),), Object()), True),
        # A result that mentions what no parameter binds is known by its rank alone.
        (Callable((), Tensor((N,))), Callable((), Tensor(ndim=1)), True),
        (Callable((), Tensor((N,))), Callable((), Tensor((M,))), False),
        (Callable((Object(),), Object()), Callable((), Object()), False),
    ],
)
def test_functions(finer: Annotation, coarser: Annotation, holds: bool) -> None:
    assert is_subsumed(finer, coarser) == holds


@pytest.mark.parametrize(
    ("a", "b", "joined"),
    [
        (Tensor((N, 4), "f32"), Tensor((N, 4), "f32"), Tensor((N, 4), "f32")),
        (Tensor((N, 4), "f32"), Tensor((M, 4), "f32"), Tensor(dtype="f32", ndim=2)),
        (Tensor((N, 4), "f32"), Tensor((N, 4), "i32"), Tensor((N, 4))),
        (Tensor((N, 4), "f32"), Tensor((N,), "f32"), Tensor(dtype="f32")),
        (Tensor((N + N,)), Tensor((2 * N,)), Tensor((2 * N,))),
        (Shape((N, 4)), Shape((4, N)), Shape(ndim=2)),
        (Shape((N,)), Shape((N, N)), Shape()),
        (Shape((N,)), Tensor((N,)), Object()),
        (Tuple((Shape((N,)), Object())), Tuple((Shape((M,)), Tensor())), Tuple((Shape(ndim=1), Object()))),
        (Tuple((Object(),)), Tuple(()), Object()),
        (Callable((), Object()), Callable((), Object()), Callable((), Object())),
        (Callable((), Object()), Callable((), Shape()), Object()),
    ],
)
def test_join(a: Annotation, b: Annotation, joined: Annotation) -> None:
    assert join(a, b) == joined
    assert join(b, a) == joined


def random_annotations() -> st.SearchStrategy[Annotation]:
    dims = st.lists(st.sampled_from([N, M, N * 2, N + M]), max_size=3)
    leaves: st.SearchStrategy[Annotation] = st.one_of(
        st.just(Object()),
        st.builds(Shape, dims),
        st.builds(Shape, ndim=st.none() | st.integers(0, 3)),
        st.builds(Tensor, dims, st.sampled_from([None, "f32", "i32"])),
        st.builds(Tensor, dtype=st.sampled_from([None, "f32"]), ndim=st.none() | st.integers(0, 3)),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(lambda f: Tuple(tuple(f)), st.lists(inner, max_size=2)),
            st.builds(lambda p, r: Callable(tuple(p), r), st.lists(inner, max_size=2), inner),
        ),
        max_leaves=4,
    )


@given(random_annotations(), random_annotations())
def test_a_join_holds_of_both(a: Annotation, b: Annotation) -> None:
    assert is_subsumed(a, join(a, b))
    assert is_subsumed(b, join(a, b))


@given(random_annotations())
def test_every_annotation_holds_of_itself_and_of_its_erasure(a: Annotation) -> None:
    assert is_subsumed(a, Object())
    assert is_subsumed(a, erase_variables(a, frozenset({N})))
    assert map_dimensions(a, {}) == a
    assert str(a)
    hash(a)


def test_dimensions_substitution_and_erasure() -> None:
    nested = Tuple((Tensor((N, M * 2), "f32"), Shape((N,)), Callable((Tensor((N,)),), Shape((N,)))))
    assert list(dimensions(nested)) == [N, M * 2, N]
    assert annotation_variables(nested) == {N, M}
    # Simultaneously, and not in the function's own variables.
    assert str(map_dimensions(nested, {N: M, M: N})) == (
        'Tuple[Tensor((m, n*2), "f32"), Shape([m]), Callable([Tensor((n,))], Shape([n]))]'
    )
    assert str(erase_variables(nested, frozenset({N}))) == (
        'Tuple[Tensor(ndim=2, dtype="f32"), Shape([n]), Callable([Tensor((n,))], Shape([n]))]'
    )


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (Object(), "Object"),
        (Shape(), "Shape()"),
        (Shape(ndim=2), "Shape(ndim=2)"),
        (Shape((N, 4)), "Shape([n, 4])"),
        (Shape(()), "Shape([])"),
        (Tensor(), "Tensor()"),
        (Tensor((N,), "f32"), 'Tensor((n,), "f32")'),
        (Tensor(()), "Tensor(())"),
        (Tensor(dtype="u32", ndim=3), 'Tensor(ndim=3, dtype="u32")'),
        (Tuple((Shape(), Object())), "Tuple[Shape(), Object]"),
        (Callable((Shape((N,)),), Tensor((N,))), "Callable([Shape([n])], Tensor((n,)))"),
    ],
)
def test_printed(annotation: Annotation, text: str) -> None:
    assert str(annotation) == text
