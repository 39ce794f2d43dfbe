// Drawings in which the student and the teacher can be moved, by mouse, by finger and by arrow keys.
const tpkdPlanes = (() => {
  "use strict";
  const { svg, html } = tpkd;
  const KEYS = { ArrowUp: [0, 1], ArrowDown: [0, -1], ArrowRight: [1, 0], ArrowLeft: [-1, 0] };
  const FAST = 5;
  const NAMES = { student: "Student", teacher: "Teacher" };

  function mark(which) {
    if (which === "student") return svg("circle", { r: 8, class: "student-mark" });
    return svg("rect", { x: -7.5, y: -7.5, width: 15, height: 15, class: "teacher-mark" });
  }

  // `onMove(which, x, y)` gets a place in the drawing, `onNudge(which, right, up)` a number of key steps.
  function handle(which, root, onMove, onNudge) {
    const parts = [svg("circle", { r: 20, class: "reach" }), svg("circle", { r: 13, class: "ring" }), mark(which)];
    const attributes = { class: `handle ${which}`, role: "slider", tabindex: 0, "aria-label": NAMES[which], "aria-valuemin": 0, "aria-valuemax": 100 };
    const element = svg("g", attributes, parts);
    const offset = { x: 0, y: 0 };
    const placeOf = (event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(root.getScreenCTM().inverse());
    element.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      event.preventDefault();
      element.setPointerCapture(event.pointerId);
      element.focus({ preventScroll: true });
      const place = placeOf(event), at = element.transform.baseVal.consolidate().matrix;
      Object.assign(offset, { x: at.e - place.x, y: at.f - place.y });
    });
    // A finger on a handle drags it and does not scroll; browsers do not heed `touch-action` inside a drawing.
    element.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false });
    element.addEventListener("pointermove", (event) => {
      if (!element.hasPointerCapture(event.pointerId)) return;
      const place = placeOf(event);
      onMove(which, place.x + offset.x, place.y + offset.y);
    });
    element.addEventListener("keydown", (event) => {
      const step = KEYS[event.key];
      if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      const size = event.shiftKey ? FAST : 1;
      onNudge(which, size * step[0], size * step[1]);
    });
    return element;
  }

  // A drawing with both handles above a scene that is painted anew for every state.
  function plane(place, { name, width, height, title, onMove, onNudge }) {
    const hatch = svg("pattern", { id: `hatch-${name}`, width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      svg("line", { x1: 0, x2: 0, y1: 0, y2: 7, class: "hatch-line" }));
    const scene = svg("g", { role: "img" });
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "group", "aria-label": title }, svg("defs", {}, hatch), scene);
    const handles = onMove ? { teacher: handle("teacher", root, onMove, onNudge), student: handle("student", root, onMove, onNudge) } : {};
    root.append(...Object.values(handles));
    place.append(root);
    return {
      paint(description, ...children) {
        scene.setAttribute("aria-label", description);
        scene.replaceChildren(...children.flat(Infinity).filter(Boolean));
      },
      // One that lies outside the drawing is not to be had there.
      move(which, [x, y], confidence, words) {
        handles[which].setAttribute("visibility", y > height ? "hidden" : "visible");
        handles[which].setAttribute("transform", `translate(${x.toFixed(2)} ${y.toFixed(2)})`);
        handles[which].setAttribute("aria-valuenow", (100 * confidence).toFixed(1));
        handles[which].setAttribute("aria-valuetext", words);
      },
    };
  }

  const polygon = (points, attributes) => svg("polygon", { points: points.map(([x, y]) => `${x.toFixed(2)},${y.toFixed(2)}`).join(" "), ...attributes });
  const line = (points, attributes) => svg("polyline", { points: points.map(([x, y]) => `${x.toFixed(2)},${y.toFixed(2)}`).join(" "), ...attributes });
  const name = ([x, y], text, attributes = {}) => svg("text", { x, y, class: "halo point-name", ...attributes }, text);
  const dot = ([cx, cy], attributes) => svg("circle", { cx, cy, r: 5, ...attributes });

  // An arrow from one place to another, with its head drawn as part of the line.
  function arrow([x1, y1], [x2, y2], colour, attributes = {}) {
    const length = Math.hypot(x2 - x1, y2 - y1);
    if (length < 1) return dot([x2, y2], { r: 3, fill: colour });
    const [ux, uy] = [(x2 - x1) / length, (y2 - y1) / length], size = Math.min(10, length / 2);
    const head = [-1, 1].map((side) => [x2 - size * ux - side * 0.45 * size * uy, y2 - size * uy + side * 0.45 * size * ux]);
    return [line([[x1, y1], [x2 - size * 0.6 * ux, y2 - size * 0.6 * uy]], { class: "arrow", stroke: colour, ...attributes }), polygon([[x2, y2], ...head], { fill: colour })];
  }

  // A list of what a drawing shows: `look` draws a key 26 wide and 14 high.
  function legend(list, entries) {
    list.replaceChildren(...entries.map(([text, ...look]) => html("li", {}, svg("svg", { viewBox: "0 0 26 14", class: "key", "aria-hidden": "true" }, look.map((part) => part.cloneNode(true))), text)));
  }

  return { arrow, dot, legend, line, name, plane, polygon };
})();
