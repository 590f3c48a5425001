"""`release/model.svg`: the model behind the rows in one picture, what each column adds to the risk on one scale.

The same figures as on the page (`report.html`), side by side, in a file of its own with its style inside: it loads
nothing, and shows the same wherever it is opened or pasted. Its colours are those of the page in daylight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

from distcondense.report.canvas import WIDTH, Canvas
from distcondense.report.svg import draw
from distcondense.report.text import clean, fitted, width_of, wrapped
from distcondense.runs.figures import Figure
from distcondense.runs.result import Result

ACROSS = 3  # panels side by side
GAP, HEAD, LINE = 24.0, 64.0, 16.0
TITLE = 20.0  # above each panel
BOLD = 0.85  # bold letters are wider than they are taken to be
ABOUT = (
    "Each panel: what one column adds, all else being equal, with 95% bands of the noise and of chance. All panels are "
    "on one scale. Darker strips under an axis: where most patients are."
)
STYLE = """
svg{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","Liberation Sans",Arial,sans-serif}
text{fill:#1b232e}.head{font-size:17px;font-weight:650}.panel{font-weight:600;font-size:13px}
.tick,.label,.soft{fill:#4b5666}.label{font-style:italic}.name{paint-order:stroke;stroke:#fff;stroke-width:4px}
.s0{color:#0072b2}.s1{color:#d55e00}.s2{color:#009e73}.s3{color:#cc79a7}.s4{color:#e69f00}.s5{color:#56b4e9}
.s6{color:#4b5666}.s7{color:#b8a800}
.bar,.mark{fill:currentcolor;stroke:#1b232e;stroke-width:.5}.hatched{stroke:#1b232e;stroke-width:.5}
.ground{fill:currentcolor;fill-opacity:.3}.hatch{fill:none;stroke:currentcolor;stroke-width:2.4}
.line{fill:none;stroke:currentcolor;stroke-width:2.2;stroke-linejoin:round}.shade{fill:currentcolor;fill-opacity:.2}
.whisker{fill:none;stroke:currentcolor;stroke-width:1.5}.whisker.over{stroke:#1b232e;stroke-width:1.2}
.grid{fill:none;stroke:#d3d9e1}.axis{fill:none;stroke:#4b5666}.level{fill:none;stroke:#1b232e;stroke-width:1.5}
.there{fill:#4b5666}
"""


def picture(sets: Mapping[str, Result]) -> str | None:
    """Of a run's sets, which share one model; nothing where its method has no model to show."""
    first = next(iter(sets.values()))
    figures = first.covered.get("model", ())
    names = " and ".join(first.kind.names)
    return panels(figures, f"The model behind the rows: {names}", first.privacy.short()) if figures else None


def panels(figures: Sequence[Figure], title: str, under: str, about: str = ABOUT, *, one_legend: bool = False) -> str:
    """Figures side by side under one heading; each stands where its column has most room left.

    With `one_legend` there is one above them all, for series that look the same wherever they are.
    """
    across = min(ACROSS, len(figures))
    width = across * WIDTH + (across + 1) * GAP
    lines = wrapped(about, width - 2 * GAP, lines=3)
    top, parts = HEAD + LINE * len(lines), []
    if one_legend:
        legend = Canvas("legend")
        samples = {name: sample for one in figures for sample, name in legend.samples(one, values=False)}
        legend.entries([(sample, name) for name, sample in samples.items()], width - 2 * GAP)
        parts.append(f'<g transform="translate({GAP:g} {top:g})">{"".join(legend.parts)}</g>')
        top += legend.y + GAP / 2
    filled = [top] * across
    for number, figure in enumerate(figures):
        column = min(range(across), key=lambda k: (filled[k], k))
        x, y = GAP + column * (WIDTH + GAP), filled[column]
        drawing = draw(figure, f"panel-{number}", legend=not one_legend)
        inside = str(drawing)  # as plain text: what is put in is escaped already
        parts.append(f'<text class="panel" x="{x:g}" y="{y + 12:g}">{_text(figure.title, BOLD * WIDTH)}</text>')
        parts.append(inside.replace("<svg ", f'<svg x="{x:g}" y="{y + TITLE:g}" ', 1))
        filled[column] = y + TITLE + _height(inside) + GAP
    height = max(filled)
    head = [
        f'<text class="head" x="{GAP:g}" y="30">{_text(title, 0.7 * width)}</text>',
        f'<text class="soft" x="{GAP:g}" y="50">{_text(under, width - 2 * GAP)}</text>',
    ]
    head += [
        f'<text class="soft" x="{GAP:g}" y="{HEAD + LINE * k + 4:g}">{escape(line)}</text>'
        for k, line in enumerate(lines)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:.0f}" width="{width:g}" '
        f'height="{height:.0f}" role="img"><title>{escape(clean(title))}</title><style>{STYLE}</style>'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join([*head, *parts])}</svg>\n'
    )


def alone(drawing: str) -> str:
    """One drawing as a file of its own, with its style inside: without the name space no browser takes it for one."""
    opening, rest = drawing.split(">", 1)
    ground = f'<style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>'
    return f'{opening} xmlns="http://www.w3.org/2000/svg">{ground}{rest}\n'


def _text(words: str, room: float) -> Markup:
    return escape(fitted(clean(words), room) if width_of(words) > room else clean(words))


def _height(drawing: str) -> float:
    """Of a drawing, from its own frame."""
    return float(drawing.split('viewBox="', 1)[1].split('"', 1)[0].split()[3])
