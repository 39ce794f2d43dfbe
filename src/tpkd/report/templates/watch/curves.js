// The pictures of the live page: every panel with the curves of all chosen cells, or every cell with all panels.
const tpkdCurves = (() => {
  "use strict";
  const { html, lineChart, numbers } = tpkd;
  const SHARE_DIGITS = 3;
  const formats = {
    share: { written: numbers.share, tick: (value) => `${Number((100 * value).toPrecision(SHARE_DIGITS))} %`, low: undefined },
    nats: { written: numbers.nats, tick: (value) => String(Number(value.toPrecision(SHARE_DIGITS))), low: 0 },
  };
  const COLOURS = ["blue", "rust", "green", "purple", "ink"].map((name) => `var(--chart-${name})`);
  const DASHES = [null, "7 3", "2 3", "9 3 2 3"];
  // No two of twenty cells look alike, and neighbours differ in colour and in dash.
  const look = (place) => ({ colour: COLOURS[place % COLOURS.length], dash: DASHES[(place + Math.floor(place / COLOURS.length)) % DASHES.length] });
  const tick = (value) => (value >= 10000 ? `${Number((value / 1000).toPrecision(4))}k` : String(value));

  const pointsOf = (curves, panel) => (curves?.steps[panel.name] ?? []).map((step, index) => [step, curves.values[panel.name][index]]);
  const shows = (panel, chosen) => chosen.some(({ curves }) => curves?.steps[panel.name]);

  // Axes that all pictures of a panel share, so that cells side by side can be compared.
  function axes(panel, chosen) {
    const points = chosen.flatMap(({ curves }) => pointsOf(curves, panel)), values = points.map(([, value]) => value);
    const low = formats[panel.unit].low ?? Math.max(0, Math.min(...values) - 0.02), top = Math.max(...values, low);
    const reach = panel.unit === "share" ? Math.min(1, top + 0.02) : 1.05 * top;
    return { x: { name: "step", low: 0, high: Math.max(1, ...points.map(([step]) => step)), format: tick }, y: { low, high: reach > low ? reach : low + 1, format: formats[panel.unit].tick } };
  }

  function picture(panel, chosen, axis) {
    const { written } = formats[panel.unit];
    const newest = chosen.map(({ cell }) => `${cell.name} ${written(cell.latest[panel.name])}`).join(", ");
    const lines = chosen.map(({ cell, curves, place }) => ({ name: cell.name, points: pointsOf(curves, panel), ...look(place) }));
    const only = chosen.length === 1 ? chosen[0].cell : null;
    const marks = lines.filter((line) => line.points.length === 1).map((line) => ({ x: line.points[0][0], y: line.points[0][1], name: "", colour: line.colour }));
    return html("figure", { class: "card", "data-panel": panel.name },
      html("figcaption", {}, html("span", {}, panel.title), only && html("data", { value: String(only.latest[panel.name] ?? ""), "data-name": panel.name }, written(only.latest[panel.name]))),
      lineChart({ title: panel.title, description: `${panel.meaning}. Newest: ${newest}.`, lines, marks, ...axis, height: 230 }),
      html("p", { class: "note" }, panel.meaning));
  }

  function together(panels, chosen) {
    const seen = panels.filter((panel) => shows(panel, chosen));
    const legend = chosen.length > 1 && tpkd.legend(chosen.map(({ cell, place }) => ({ name: cell.name, ...look(place) })));
    return [legend, html("div", { class: "panels" }, seen.map((panel) => picture(panel, chosen, axes(panel, chosen))))];
  }

  function apart(panels, chosen, stateChip) {
    const seen = panels.filter((panel) => shows(panel, chosen)), shared = seen.map((panel) => axes(panel, chosen));
    return chosen.map((each) => html("section", { "aria-label": each.cell.name },
      html("div", { class: "cell-head" }, html("h2", {}, html("bdi", {}, each.cell.name)), stateChip(each.cell)),
      html("div", { class: "panels" }, seen.map((panel, index) => picture(panel, [each], shared[index])))));
  }

  return { apart, formats, look, together };
})();
