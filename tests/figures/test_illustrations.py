"""The paper's illustrations come out of the library with the numbers that the paper prints."""

import json
import math

import numpy as np
import pytest

from tpkd.errors import InputError
from tpkd.figures.illustrations import draw_illustrations, feasibility_illustration, geometry_illustration
from tpkd.figures.record import IllustrationsRecord


def test_feasibility_numbers_are_those_of_appendices_a4_and_a6():
    """fig:feasibility."""
    figure = feasibility_illustration()
    expected = {
        "max_ratio": 35 / 18,
        "transfer_cost": math.log(35 / 18),
        "min_confidence": 35 / 37,
        "teacher_rise": math.log(2 / 27),
        "teacher_conditional_3": 7 / 12,
        "odds_against_2_before": 90 / 7,
        "odds_against_2_after": 42,
        "odds_against_3_before": 30,
        "odds_against_3_after": 30,
        "odds_against_3_ce_only": 0.9 / (7 / 120),
        "label_loss_before": -math.log(9 / 10),
        "label_loss_after": -math.log(35 / 37),
        "conditional_loss_before": 5 / 12 * math.log(25 / 42) + 7 / 12 * math.log(35 / 18),
        "conditional_loss_after": 0,
        "imitation_loss_before": 0.4 * math.log(4 / 9) + 0.25 * math.log(25 / 7) + 0.35 * math.log(35 / 3),
        "imitation_loss_after": 0.4 * math.log(74 / 175) + 0.6 * math.log(111 / 10),
        "imitation_loss_ce_only": 0.4 * math.log(0.4 / 0.9) + 0.6 * math.log(0.6 / 0.1),
    }
    assert figure.numbers.keys() == expected.keys()
    for name, value in expected.items():
        assert figure.numbers[name] == pytest.approx(value, abs=1e-12), name
    assert figure.endpoint == pytest.approx((35 / 37, 5 / 222, 7 / 222), abs=1e-12)
    assert figure.ce_only_optimum == pytest.approx((0.9, 1 / 24, 7 / 120), abs=1e-12)


def test_feasibility_curves_follow_the_printed_formulas():
    """fig:feasibility: the path touches the safe boundary, label and conditional loss fall and imitation loss rises."""
    figure = feasibility_illustration()
    x, rise = np.array(figure.boundary.x), np.array(figure.boundary.y)
    np.testing.assert_allclose(rise, np.maximum(np.log((1 - x) / 0.7), np.log(x / 0.3)), atol=1e-12)
    s = np.array(figure.label_loss.x)
    np.testing.assert_allclose(figure.path.x, 0.3 + 17 * s / 60, atol=1e-12)
    np.testing.assert_allclose(figure.path.y, np.log(np.array(figure.path.x) / 0.3), atol=1e-12)
    for curve, sign in ((figure.label_loss, -1), (figure.conditional_loss, -1), (figure.imitation_loss, 1)):
        assert curve.y[0] == 1
        assert np.all(sign * np.diff(curve.y) > 0)


def test_geometry_numbers_are_those_of_appendix_b5():
    """fig:projection-geometry, with the coordinates of the printed drawing."""
    figure = geometry_illustration()
    assert figure.conditional == pytest.approx((0, -0.10, -0.02, 0.12), abs=1e-12)
    assert figure.safe == pytest.approx((-0.05, -0.05, -0.02, 0.12), abs=1e-12)
    assert figure.pure_conditional == pytest.approx((0, -1 / 15, -11 / 300, 31 / 300), abs=1e-12)
    assert figure.numbers["compensation"] == pytest.approx(0.05, abs=1e-12)
    assert figure.numbers["angle_degrees"] == pytest.approx(11.536386237016446, abs=1e-9)
    assert figure.oblique["u"] == pytest.approx((3.35, 0), abs=1e-6)
    assert figure.oblique["w_cond"] == pytest.approx((2.674597, 0.245665), abs=1e-6)
    assert figure.oblique["l a_0"] == pytest.approx((0, 1.096791), abs=1e-6)
    assert figure.oblique["d"] == pytest.approx((2.674597, 1.342455), abs=1e-6)
    assert figure.plane["w_cond"] == pytest.approx((2.674597, 0.545922), abs=1e-6)


def test_figures_are_written_as_svg_and_png_with_their_numbers(tmp_path):
    """fig:feasibility, fig:training-workflow and fig:projection-geometry, the same bytes every time."""
    written = draw_illustrations(tmp_path / "new" / "figures")
    assert [path.name for path in written] == [
        *("figure-1-feasibility.svg", "figure-1-feasibility.png", "figure-2-workflow.svg", "figure-2-workflow.png"),
        *("figure-3-geometry.svg", "figure-3-geometry.png", "figures.json"),
    ]
    assert sorted(written) == sorted((tmp_path / "new" / "figures").iterdir())
    for path in written:
        head = {".svg": b"<?xml", ".png": b"\x89PNG", ".json": b"{"}[path.suffix]
        assert path.read_bytes().startswith(head)
    data = json.loads(written[-1].read_text())
    assert IllustrationsRecord.from_dict(data).feasibility == feasibility_illustration()
    again = draw_illustrations(tmp_path / "again")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in written]


def test_a_directory_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"):
        draw_illustrations(tmp_path / "file")
