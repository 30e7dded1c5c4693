"""Plotly figures for the pages and the export, made from the queue's answers without further requests."""
