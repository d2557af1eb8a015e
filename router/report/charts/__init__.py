"""Plots as geometry: numbers in, places and labels out; a template draws them. Along the page places are percentages of
the width, so that a chart fills what room there is and its text keeps its size; up and down they are pixels."""

from router.report.charts.draw import draw

__all__ = ["draw"]
