"""The paper's three illustrations, drawn by matplotlib."""

from typing import IO, Any

from tpkd.figures.record import FeasibilityIllustration, GeometryIllustration
from tpkd.report.charts import BLUE, GREY, INK, PALE, RUST, STYLE

_MATHS: Any = {**STYLE, "svg.fonttype": "path", "text.parse_math": True, "font.size": 11, "mathtext.fontset": "cm"}
Size = tuple[float, float]


def draw_feasibility(illustration: FeasibilityIllustration, file: IO[bytes], kind: str) -> None:
    """Left: the safe boundary, the path and the teacher's point. Right: the losses along the path."""

    def paint(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        _paint_boundary(left, illustration)
        _paint_losses(right, illustration)

    _save(paint, "feasibility", (9.4, 3.7), file, kind)


def _paint_boundary(axes: Any, illustration: FeasibilityIllustration) -> None:
    numbers, path = illustration.numbers, illustration.path
    boundary, top = illustration.boundary, 3.4
    axes.fill_between(boundary.x, boundary.y, top, color=PALE, alpha=0.6, linewidth=0)
    axes.plot(boundary.x, boundary.y, color=GREY, linewidth=1.4)
    axes.plot(path.x, path.y, color=BLUE, linewidth=2.6)
    axes.plot([path.x[0]], [path.y[0]], "o", color=INK)
    axes.plot([path.x[-1]], [path.y[-1]], "o", color=BLUE)
    axes.plot([numbers["teacher_conditional_3"]], [numbers["teacher_rise"]], "s", color=RUST)
    at: Any = {"textcoords": "offset points", "fontsize": 11}
    axes.annotate("student $p$", (path.x[0], path.y[0]), xytext=(-4, -16), ha="center", color=INK, **at)
    axes.annotate("$p^*$: exact transfer", (path.x[-1], path.y[-1]), xytext=(9, -9), color=BLUE, **at)
    teacher = (numbers["teacher_conditional_3"], numbers["teacher_rise"])
    axes.annotate("teacher $t$", teacher, xytext=(9, -4), color=RUST, **at)
    axes.text(0.36, 2.35, "every margin kept", color=BLUE, ha="center", fontsize=11)
    axes.axhline(0, color=GREY, linewidth=0.8, linestyle=":")
    axes.set(xlim=(0, 1), ylim=(-3.1, top), xlabel="$x = r_3$, conditional probability of class 3")
    axes.set_ylabel(r"$\Delta$, rise in log-odds (nats)")


def _paint_losses(axes: Any, illustration: FeasibilityIllustration) -> None:
    curves = (
        (illustration.imitation_loss, RUST, "--", "full teacher KL", (-12, 13)),
        (illustration.label_loss, INK, "-.", "label CE", (0, 7)),
        (illustration.conditional_loss, BLUE, "-", "conditional KL", (0, -14)),
    )
    for curve, color, line, name, offset in curves:
        axes.plot(curve.x, curve.y, color=color, linestyle=line, linewidth=2)
        place = (curve.x[60], curve.y[60])
        ha = "right" if name == "conditional KL" else "left"
        axes.annotate(name, place, xytext=offset, textcoords="offset points", color=color, fontsize=11, ha=ha)
    axes.set(xlim=(0, 1), ylim=(0, 1.42), xlabel="$s$, position on the path", ylabel="loss / its value at the start")


def draw_workflow(file: IO[bytes], kind: str) -> None:
    """How the two signals become one update.

    Paper: fig:training-workflow.
    """
    boxes = {
        "logits": (0, 1, "Student logits $z$,\nlabel $y$", "white"),
        "label": (1, 1, "Label signal\n$h = p - e_y$", "white"),
        "update": (2, 1, "Keep both signals\n$v = h + d\\,/\\,2$", PALE),
        "others": (0, 0, "Teacher and student\nnon-target logits", "white"),
        "conditional": (1, 0, "Conditional signal\n$u = (0,\\; r - q)$", "white"),
        "safe": (2, 0, "Safe correction\n$d = \\Pi_{\\mathcal{K}_y}(u)$", "#eef1f5"),
    }
    arrows = (("logits", "label"), ("label", "update"), ("others", "conditional"), ("conditional", "safe"))
    width, height, column, row = 2.3, 0.78, 3.1, 1.25

    def paint(figure: Any) -> None:
        from matplotlib.patches import FancyBboxPatch

        axes = figure.add_subplot()
        for x, y, text, color in boxes.values():
            corner = (x * column - width / 2, y * row - height / 2)
            style = "round,pad=0.02,rounding_size=0.08"
            axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle=style, facecolor=color, edgecolor=GREY))
            axes.text(x * column, y * row, text, ha="center", va="center", linespacing=1.5)
        arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.3}
        for start, end in arrows:
            (x0, y0, *_), (x1, *_) = boxes[start], boxes[end]
            tail, head = (x0 * column + width / 2 + 0.04, y0 * row), (x1 * column - width / 2 - 0.04, y0 * row)
            axes.annotate("", head, tail, arrowprops=arrow)
        axes.annotate("", (2 * column, row - height / 2 - 0.04), (2 * column, height / 2 + 0.04), arrowprops=arrow)
        axes.set(xlim=(-width / 2 - 0.1, 2 * column + width / 2 + 0.1), ylim=(-0.5, row + 0.5), aspect="equal")
        axes.axis("off")

    _save(paint, "workflow", (8.6, 2.3), file, kind)


def draw_geometry(illustration: GeometryIllustration, file: IO[bytes], kind: str) -> None:
    """Left: an oblique view of both components. Right: the angle within the conditional plane."""

    def paint(figure: Any) -> None:
        left, right = figure.subplots(1, 2, width_ratios=(4.8, 4.1))
        _paint_oblique(left, illustration.oblique)
        _paint_plane(right, illustration)
        for axes in (left, right):
            axes.set_aspect("equal")
            axes.axis("off")

    _save(paint, "geometry", (9.4, 3.0), file, kind)


def _paint_oblique(axes: Any, at: dict[str, tuple[float, ...]]) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((-0.35, -0.30), 4.1, 0.83, facecolor="#f1f3f6", edgecolor="#d5dae1"))
    axes.text(-0.32, -0.36, "conditional plane $\\mathcal{L}_y$", va="top", color="#555c67", fontsize=10)
    origin = (0.0, 0.0)
    _arrow(axes, origin, at["u"], INK)
    _arrow(axes, origin, at["d"], BLUE)
    _arrow(axes, origin, at["l a_0"], RUST)
    _arrow(axes, at["l a_0"], at["d"], BLUE)
    for start, end in ((origin, at["w_cond"]), (at["w_cond"], at["d"]), (at["d"], at["u"])):
        axes.plot(*zip(start, end, strict=True), color=GREY, linewidth=1, linestyle="--")
    axes.text(at["u"][0] + 0.08, at["u"][1], "$u$", va="center")
    axes.text(at["d"][0] + 0.05, at["d"][1] + 0.06, "$d$", color=BLUE)
    axes.text(-0.1, at["l a_0"][1] / 2 + 0.1, "$\\ell a_0$", color=RUST, ha="right")
    axes.text(at["d"][0] / 2, (at["l a_0"][1] + at["d"][1]) / 2 + 0.1, "$w_{\\mathrm{cond}}$", color=BLUE, ha="center")
    middle = [(a + b) / 2 for a, b in zip(at["d"], at["u"], strict=True)]
    axes.text(middle[0] + 0.1, middle[1], "$u - d$", color="#555c67")
    axes.set(xlim=(-0.75, 4.05), ylim=(-0.95, 1.65))
    axes.text(1.7, -0.92, "(a)  $d = \\ell a_0 + w_{\\mathrm{cond}}$", ha="center")


def _paint_plane(axes: Any, illustration: GeometryIllustration) -> None:
    from matplotlib.patches import Arc

    at, angle = illustration.plane, illustration.numbers["angle_degrees"]
    _arrow(axes, (0.0, 0.0), at["u"], INK)
    _arrow(axes, (0.0, 0.0), at["w_cond"], BLUE)
    axes.add_patch(Arc((0, 0), 2.6, 2.6, theta1=0, theta2=angle, color=RUST, linewidth=1.4))
    axes.text(1.38, 0.13, f"${angle:.2f}^\\circ$", color=RUST, va="center", fontsize=10)
    axes.text(at["u"][0] + 0.08, 0, "$u$", va="center")
    axes.text(at["w_cond"][0] + 0.08, at["w_cond"][1] + 0.04, "$w_{\\mathrm{cond}}$", color=BLUE)
    axes.set(xlim=(-0.2, 3.9), ylim=(-0.95, 1.65))
    axes.text(1.65, -0.92, "(b)  view within $\\mathcal{L}_y$", ha="center")


def _arrow(axes: Any, start: Any, end: Any, color: str) -> None:
    arrow = {"arrowstyle": "-|>", "color": color, "linewidth": 1.8, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", tuple(end), tuple(start), arrowprops=arrow)


def _save(paint: Any, name: str, size: Size, file: IO[bytes], kind: str) -> None:
    """The same bytes for the same data: no date, no random ids."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**_MATHS, "svg.hashsalt": name, "axes.grid": False}):
        figure = Figure(figsize=size, layout="constrained")
        paint(figure)
        metadata = {"Date": None, "Title": f"TPKD: {name}"} if kind == "svg" else {"Title": f"TPKD: {name}"}
        figure.savefig(file, format=kind, dpi=180, metadata=metadata)
