"""The style of all figures: colours that colour-blind users can tell apart, for light and dark mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import plotly.graph_objects as go

from sagemaker_queue.jobs.formatting import visible

# Colours of Okabe and Ito, without black, and without yellow, which is invisible on white.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999")
# Textures of projects beyond the number of colours. Hatching is left out, since it marks reservations.
_TEXTURES = ("", ".", "x", "-")
_DARK_LETTERS = frozenset({"#E69F00", "#CC79A7", "#56B4E9", "#009E73", "#D55E00", "#999999"})
NOBODY = "(none)"


@dataclass(frozen=True)
class Theme:
    """The colours of a figure in light or dark mode."""

    dark: bool = False

    @property
    def text(self) -> str:
        """Colour of text."""
        return "#e0e0e0" if self.dark else "#222222"

    @property
    def faint(self) -> str:
        """Colour of grid lines and axes."""
        return "#3a3f47" if self.dark else "#e3e6ea"

    @property
    def paper(self) -> str:
        """Colour of the background."""
        return "#121212" if self.dark else "#ffffff"


@dataclass(frozen=True)
class Paint:
    """The colour and texture of one project's bars."""

    colour: str
    texture: str = ""

    @property
    def letters(self) -> str:
        """Colour of text on the bars."""
        return "#111111" if self.colour in _DARK_LETTERS else "#ffffff"


def paints(names: Iterable[str | None], gone: Iterable[str | None] = ()) -> Mapping[str, Paint]:
    """Return the paint of each project, which stays the same while the set of projects does not change.

    Projects that are ``gone`` from the policy get the next paints, so they do not look like a present project.
    """
    found: dict[str, Paint] = {}
    present, past = ({name or NOBODY for name in some} for some in (names, gone))
    for index, name in enumerate([*sorted(present), *sorted(past - present)]):
        texture, colour = divmod(index, len(_COLOURS))
        found[name] = Paint(_COLOURS[colour], _TEXTURES[texture % len(_TEXTURES)])
    return found


def figure(theme: Theme, *, height: int, placeholder: str, **layout: Any) -> go.Figure:
    """Return an empty figure, with the text ``placeholder`` in its centre unless that text is empty."""
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
        uirevision="kept",  # keeps the user's zoom after an update
    )
    made.update_xaxes(gridcolor=theme.faint, linecolor=theme.faint, zeroline=False, automargin=True)
    made.update_yaxes(gridcolor=theme.faint, linecolor=theme.faint, zeroline=False, automargin=True)
    made.update_layout(**layout)
    if placeholder:
        made.add_annotation(text=plain(placeholder), x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False)
    return made


def plain(text: object) -> str:
    """Return untrusted text escaped, because Plotly interprets some HTML."""
    return escape(visible(str(text)))
