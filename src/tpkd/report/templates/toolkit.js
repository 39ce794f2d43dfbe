// What all interactive pages share: elements, number formats and small charts. Text enters as text, never as markup.
const tpkd = (() => {
  "use strict";
  const fill = (element, attributes, children) => {
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
    return element;
  };
  const html = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
  const svg = (name, attributes = {}, ...children) =>
    fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

  // Data that Python's `json_element` wrote into the page.
  const data = (id) => JSON.parse(document.getElementById(id).textContent);

  // A typed array from base64, as Python's `packed_column` writes it; little-endian, as every browser's machine is.
  const unpack = (text, Type) => {
    const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
    return new Type(bytes.buffer);
  };

  // The formats of `tpkd.report.numbers`; a browser test compares them.
  const NONE = "none";
  const grouped = (value, digits) =>
    value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const missing = (value) => value === null || value === undefined || Number.isNaN(value);
  const rounded = (value) => {
    if (value > 0 && value < 0.0005) return "<0.001";
    return value >= 0.9995 && value < 1 ? ">0.999" : value.toFixed(3);
  };
  const exponent = (text) => text.replace(/e([+-])(\d)$/, "e$10$2");
  const numbers = {
    nats: (value) => {
      if (missing(value)) return NONE;
      if (value > 0 && value < 0.0005) return "<0.001";
      return value < 1e6 ? grouped(value, 3) : exponent(Number(value.toPrecision(3)).toExponential());
    },
    share: (value) => {
      if (missing(value)) return NONE;
      if (value > 0 && value < 0.0005) return "<0.1 %";
      return value >= 0.9995 && value < 1 ? ">99.9 %" : `${(100 * value).toFixed(1)} %`;
    },
    probability: (value) => (missing(value) ? NONE : rounded(value)),
    count: (value) => (missing(value) ? NONE : grouped(value, 0)),
    signedNats: (value) => (missing(value) ? NONE : `${value < 0 ? "" : "+"}${value.toFixed(3)}`),
  };

  // Round numbers from `low` to `high`, about `count` of them.
  const ticks = (low, high, count = 4) => {
    if (!(high > low)) return [low];
    const power = 10 ** Math.floor(Math.log10((high - low) / count));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => (high - low) / each <= count);
    const found = [];
    for (let at = Math.ceil(low / step - 1e-9); at * step <= high + 1e-9 * step; at += 1) found.push(Number((at * step).toPrecision(12)));
    return found;
  };

  const COLOURS = ["blue", "rust", "green", "purple", "ink", "grey"].map((name) => `var(--chart-${name})`);
  const DASHES = [null, "6 3", "2 3", "8 3 2 3"];

  let charts = 0;
  // An SVG that is sized by the page, with its title and description for screen readers.
  const drawing = (width, height, title, description, ...children) => {
    charts += 1;
    const id = `chart-${charts}`;
    const labels = [svg("title", { id: `${id}-title` }, title), svg("desc", { id: `${id}-desc` }, description)];
    const attributes = { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-labelledby": `${id}-title ${id}-desc`, class: "chart" };
    return svg("svg", attributes, labels, children);
  };

  const label = (x, y, text, attributes = {}) => svg("text", { x, y, ...attributes }, text);

  // Lines over a numeric axis. lines: [{name, points: [[x, y], ...], colour, dash}], a point of null y leaves a gap;
  // marks: [{x, y, name}] are dots with a dropped line; x and y: {name, low, high, format}.
  const lineChart = ({ title, description, lines, marks = [], x = {}, y = {}, width = 440, height = 250 }) => {
    const points = lines.flatMap((line) => line.points).filter(([, at]) => !missing(at));
    const range = (axis, values) => {
      const low = axis.low ?? Math.min(...values, Infinity);
      const high = axis.high ?? Math.max(...values, -Infinity);
      if (!(low <= high)) return [0, 1];
      return high > low ? [low, high] : [low, low + (Math.abs(low) || 1)];
    };
    const [xLow, xHigh] = range(x, [...points.map(([at]) => at), ...marks.map((mark) => mark.x)]);
    const [yLow, yHigh] = range(y, [...points.map(([, at]) => at), ...marks.map((mark) => mark.y)]);
    const [left, right, top, bottom] = [54, width - 12, 12, height - 42];
    const atX = (value) => left + ((value - xLow) / (xHigh - xLow)) * (right - left);
    const atY = (value) => bottom - ((value - yLow) / (yHigh - yLow)) * (bottom - top);
    const plain = (value) => String(value);
    const grid = ticks(yLow, yHigh).flatMap((value) => [
      svg("line", { x1: left, x2: right, y1: atY(value), y2: atY(value), class: "grid-line" }),
      label(left - 7, atY(value) + 4, (y.format ?? plain)(value), { "text-anchor": "end" }),
    ]);
    const below = ticks(xLow, xHigh, 6).map((value) =>
      label(atX(value), bottom + 17, (x.format ?? plain)(value), { "text-anchor": "middle" }));
    const names = [
      label((left + right) / 2, height - 6, x.name ?? "", { "text-anchor": "middle", class: "axis-name" }),
      label(0, 0, y.name ?? "", { "text-anchor": "middle", class: "axis-name", transform: `translate(13 ${(top + bottom) / 2}) rotate(-90)` }),
    ];
    const drawn = lines.map((line, place) => {
      let pen = "M";
      const path = line.points.map(([at, value]) => {
        if (missing(value)) { pen = "M"; return ""; }
        const step = `${pen}${atX(at).toFixed(2)} ${atY(value).toFixed(2)}`;
        pen = "L";
        return step;
      });
      const dash = line.dash === undefined ? DASHES[place % DASHES.length] : line.dash;
      return svg("path", { d: path.join(""), class: "line", stroke: line.colour ?? COLOURS[place % COLOURS.length], "stroke-dasharray": dash });
    });
    const dots = marks.flatMap((mark) => [
      svg("line", { x1: atX(mark.x), x2: atX(mark.x), y1: atY(mark.y), y2: bottom, class: "drop-line" }),
      svg("circle", { cx: atX(mark.x), cy: atY(mark.y), r: 4.5, fill: mark.colour ?? COLOURS[1] }),
      label(atX(mark.x) + (atX(mark.x) > width / 2 ? -8 : 8), atY(mark.y) - 9, mark.name, { "text-anchor": atX(mark.x) > width / 2 ? "end" : "start", class: "mark" }),
    ]);
    const axis = svg("line", { x1: left, x2: right, y1: bottom, y2: bottom, class: "axis-line" });
    return drawing(width, height, title, description, grid, below, axis, names, drawn, dots);
  };

  // Names and looks of the lines of a chart, as a list beside it.
  const legend = (entries) => html("ul", { class: "legend" }, entries.map(({ name, colour, dash }, place) =>
    html("li", {}, svg("svg", { viewBox: "0 0 26 10", class: "key", "aria-hidden": "true" },
      svg("line", { x1: 1, x2: 25, y1: 5, y2: 5, stroke: colour ?? COLOURS[place % COLOURS.length], "stroke-width": 3, "stroke-dasharray": dash === undefined ? DASHES[place % DASHES.length] : dash })), html("bdi", {}, name))));

  return { html, svg, data, unpack, numbers, ticks, drawing, label, lineChart, legend, COLOURS, DASHES };
})();
