"""A drawing has the same bytes for the same numbers, and others for others."""

import dataclasses
import io

from tpkd.figures.charts import draw_geometry, draw_workflow
from tpkd.figures.illustrations import geometry_illustration


def drawn(draw, *arguments):
    file = io.BytesIO()
    draw(*arguments, file, "svg")
    return file.getvalue()


def test_the_same_numbers_give_the_same_bytes():
    illustration = geometry_illustration()
    other = dataclasses.replace(illustration, numbers={**illustration.numbers, "angle_degrees": 30.0})
    assert drawn(draw_geometry, illustration) == drawn(draw_geometry, illustration) != drawn(draw_geometry, other)
    assert drawn(draw_workflow) == drawn(draw_workflow)
