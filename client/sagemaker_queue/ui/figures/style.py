"""What all figures have in common: colours that colour-blind people tell apart, light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import plotly.graph_objects as go

from sagemaker_queue.formatting import visible

# Okabe and Ito's, without black and the yellow that cannot be seen on white.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999")
_TEXTURES = ("", ".", "x", "-")  # for more projects than colours; hatched means reserved
_DARK_LETTERS = frozenset({"#E69F00", "#CC79A7", "#56B4E9", "#009E73", "#D55E00", "#999999"})
NOBODY = "(none)"


@dataclass(frozen=True)
class Theme:
    """How a figure is drawn."""

    dark: bool = False

    @property
    def text(self) -> str:
        """The colour of letters."""
        return "#e0e0e0" if self.dark else "#222222"

    @property
    def faint(self) -> str:
        """The colour of lines that are not to be looked at."""
        return "#3a3f47" if self.dark else "#e3e6ea"

    @property
    def paper(self) -> str:
        """The colour behind it all."""
        return "#121212" if self.dark else "#ffffff"


@dataclass(frozen=True)
class Paint:
    """How the bars of one project look."""

    colour: str
    texture: str = ""

    @property
    def letters(self) -> str:
        """The colour of letters on them."""
        return "#111111" if self.colour in _DARK_LETTERS else "#ffffff"


def paints(names: Iterable[str | None]) -> Mapping[str, Paint]:
    """Return how each project is painted: the same at every look, as long as no project comes or goes."""
    found: dict[str, Paint] = {}
    for index, name in enumerate(sorted({name or NOBODY for name in names})):
        texture, colour = divmod(index, len(_COLOURS))
        found[name] = Paint(_COLOURS[colour], _TEXTURES[texture % len(_TEXTURES)])
    return found


def figure(theme: Theme, *, height: int, told: str, **layout: Any) -> go.Figure:
    """Return an empty figure. ``told`` stands there as long as nothing is added."""
    made = go.Figure()
    made.update_layout(
        height=height,
        template="none",
        paper_bgcolor=theme.paper,
        plot_bgcolor=theme.paper,
        font={"color": theme.text, "size": 12, "family": "system-ui, sans-serif"},
        margin={"l": 10, "r": 10, "t": 10, "b": 40},
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "font": {"color": theme.text}},
        hoverlabel={"bgcolor": theme.paper, "font": {"color": theme.text}},
        barmode="overlay",
        showlegend=True,
        uirevision="kept",  # what somebody has zoomed into stays where it is when news come
    )
    made.update_xaxes(gridcolor=theme.faint, linecolor=theme.faint, zeroline=False, automargin=True)
    made.update_yaxes(gridcolor=theme.faint, linecolor=theme.faint, zeroline=False, automargin=True)
    made.update_layout(**layout)
    if told:
        made.add_annotation(text=plain(told), x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False)
    return made


def plain(text: object) -> str:
    """Return others' words such that Plotly, which knows some HTML, shows them as they are."""
    return escape(visible(str(text)))
