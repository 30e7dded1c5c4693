"""What a search varies and what it looks at, as it is written on the command line."""

from __future__ import annotations

import itertools
import math

import pytest

from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.tuning.metric import SearchMetric, parse_metric
from sagemaker_queue.tuning.space import Choice, Interval, Range, grid_point, grid_size, parse_range


@pytest.mark.parametrize(
    ("text", "name", "meant"),
    [
        ("lr=1e-5..1e-1", "lr", Interval(1e-5, 0.1)),
        ("lr=log:1e-5..1e-1", "lr", Interval(1e-5, 0.1, log=True)),
        ("layers=int:1..8", "layers", Interval(1, 8, integer=True)),
        ("width=int:log:8..1024", "width", Interval(8, 1024, log=True, integer=True)),
        ("width=log:int:8..1024", "width", Interval(8, 1024, log=True, integer=True)),
        ("x=-1..-0.5", "x", Interval(-1, -0.5)),
        ("dropout=0..0.5/0.1", "dropout", Interval(0, 0.5, step=0.1)),
        ("width=int:8..64/8", "width", Interval(8, 64, integer=True, step=8)),
        ("opt=adam, sgd", "opt", Choice(("adam", "sgd"))),
        ("only=one", "only", Choice(("one",))),
        ("file=s3://a/b,s3://a/c", "file", Choice(("s3://a/b", "s3://a/c"))),
    ],
)
def test_a_range_is_read(text: str, name: str, meant: Range) -> None:
    assert parse_range(text) == (name, meant)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lr", "not a range"),
        ("=1..2", "not a range"),
        ("l r=1..2", "not a range"),
        ("lr=", "not a range"),
        ("lr=a..b", "not a range"),
        ("lr=1..", "not a range"),
        ("lr=1..nan", "not a range"),
        ("lr=1..inf", "not a range"),
        ("lr=log:1,2", "not a range"),
        ("lr=2..1", "write the lower number first"),
        ("lr=log:0..1", "begins above 0"),
        ("lr=log:1..2/0.5", "has no step"),
        ("lr=0..1/2", "does not fit"),
        ("lr=0..1/0", "does not fit"),
        ("n=int:0.5..2", "whole numbers"),
        ("opt=a,,b", "empty value"),
        ("opt=a,a", "twice"),
    ],
)
def test_what_is_no_range_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        parse_range(text)


def test_a_grid_has_every_combination_in_order_and_begins_again() -> None:
    space = dict(parse_range(text) for text in ("a=x,y", "n=int:1..3", "d=0..0.3/0.1"))
    wanted = [dict(zip("and", values)) for values in itertools.product(["x", "y"], [1, 2, 3], [0.0, 0.1, 0.2, 0.3])]
    assert grid_size(space) == 24
    assert [grid_point(space, number) for number in range(24)] == wanted
    assert grid_point(space, 24) == wanted[0]


@pytest.mark.parametrize("text", ["x=0..1", "x=log:1..8", "x=int:log:1..8"])
def test_a_grid_of_all_numbers_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="A grid needs values"):
        grid_size(dict([parse_range(text)]))


def test_a_metric_finds_its_figures() -> None:
    metric = parse_metric("loss=loss[:=] ?([^ ,]+)")
    assert list(metric.find("epoch 1, loss: 0.5, loss=1e-3")) == [(None, 0.5), (None, 0.001)]
    assert list(metric.find("loss: soon")) == []
    assert math.isnan(next(metric.find("loss: nan"))[1])


@pytest.mark.parametrize(
    "regex",
    [
        r"step (?P<step>\d+).* loss (?P<value>\S+)",
        r"step (?P<step>\d+).* loss (\S+)",
        r"step (?P<step>\d+)(?: loss (\S+))?",
    ],
)
def test_a_metric_finds_its_step(regex: str) -> None:
    assert list(SearchMetric("loss", regex).find("step 20 loss 0.25")) == [(20, 0.25)]


def test_a_figure_that_is_not_there_is_none() -> None:
    assert list(SearchMetric("loss", r"step (?P<step>\d+)(?: loss (\S+))?").find("step 20")) == []


@pytest.mark.parametrize("text", ["loss", "=([0-9]+)", "loss=[0-9]+", "loss=(", r"loss=(?P<step>\d+)"])
def test_what_is_no_metric_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption):
        parse_metric(text)
