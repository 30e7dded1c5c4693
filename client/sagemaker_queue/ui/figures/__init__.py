"""Plotly figures of the queue, as pure functions of its answers; the pages and the export share them."""
