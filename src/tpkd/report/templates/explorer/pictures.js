// The five pictures of the explorer. A view is a state with all that the theory says about it.
const tpkdPictures = (() => {
  "use strict";
  const { svg, label, lineChart } = tpkd;
  const { arrow, dot, legend, line, name, plane, polygon } = tpkdPlanes;
  const theory = tpkdTheory;
  const { clamp } = tpkdState;
  const [BLUE, RUST, GREEN, PURPLE, INK] = ["blue", "rust", "green", "purple", "ink"].map((colour) => `var(--chart-${colour})`);
  const SAMPLES = 80;
  const SIZES = [0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1, 1.5, 2]; // scales of the step, so that it does not jitter
  const ZOOM = 6;
  const grid = Array.from({ length: SAMPLES + 1 }, (_, index) => index / SAMPLES);
  const logit = (probability) => Math.log(probability / (1 - probability));
  const classWord = (j) => `class ${j + 1}`;

  const KEY = {
    safe: ["safe set: every margin kept", svg("rect", { x: 1, y: 1, width: 24, height: 12, class: "safe-area safe-key" })],
    path: ["path p(s) to p*", svg("line", { x1: 1, x2: 25, y1: 7, y2: 7, class: "path" })],
    frontier: ["best for a rise B", svg("line", { x1: 1, x2: 25, y1: 7, y2: 7, class: "frontier-path" })],
  };
  const blockedKey = (plane) => ["blocked region: imitation gives back", svg("rect", { x: 1, y: 1, width: 24, height: 12, class: "blocked-area", style: `fill: url(#hatch-${plane})` })];

  function wordsOf(probabilities, labels) {
    const confidence = theory.sum(probabilities.filter((_, j) => labels[j] > 0));
    const classes = probabilities.map((value, j) => `${classWord(j)} ${(100 * value).toFixed(1)} %`);
    return `confidence ${(100 * confidence).toFixed(1)} %; ${classes.join(", ")}`;
  }

  const confidenceOf = (probabilities, labels) => theory.sum(probabilities.filter((_, j) => labels[j] > 0));

  function moveHandles(picture, view, place) {
    for (const which of ["student", "teacher"]) {
      const probabilities = view.state[which], { labels } = view.state;
      picture.move(which, place(probabilities), confidenceOf(probabilities, labels), wordsOf(probabilities, labels));
    }
  }

  // The triangle of all predictions of three classes, the correct one on top.
  function triangle(figure, onChange, onNudge) {
    const corners = [[220, 34], [26, 370], [414, 370]];
    const order = (labels) => [...theory.correctClasses(labels), ...theory.incorrectClasses(labels)];
    let labels = [1, 0, 0], zoom = 1, shown = null;
    const place = (probabilities) => {
      const weights = theory.take(probabilities, order(labels));
      return [0, 1].map((axis) => corners[0][axis] + zoom * theory.sum(weights.map((weight, corner) => weight * (corners[corner][axis] - corners[0][axis]))));
    };
    const probabilitiesAt = (x, y) => {
      const top = 1 - (y - 34) / (336 * zoom), right = (x - 220) / (388 * zoom) + (1 - top) / 2;
      const weights = [top, 1 - top - right, right].map((weight) => clamp(weight, 0, 1));
      const found = [0, 0, 0];
      order(labels).forEach((j, corner) => { found[j] = weights[corner]; });
      return tpkdState.normalised(found);
    };
    const isShown = ([, y]) => y <= corners[1][1] + 1;
    const onMove = (which, x, y) => onChange(which, probabilitiesAt(x, y));
    const picture = plane(figure.querySelector(".plane"), { name: "triangle", width: 440, height: 400, title: "Triangle of predictions", onMove, onNudge });
    legend(figure.querySelector(".legend"), [KEY.safe, blockedKey("triangle"), KEY.path, KEY.frontier]);
    const button = figure.querySelector(".zoom");
    button.addEventListener("click", () => {
      zoom = zoom === 1 ? ZOOM : 1;
      button.setAttribute("aria-pressed", String(zoom > 1));
      draw(shown);
    });

    return draw;

    function draw(view) {
      figure.hidden = view.state.labels.length !== 3;
      shown = view;
      if (figure.hidden) return;
      ({ labels } = view.state);
      const [y, left, right] = order(labels), { student: p, teacher: t } = view.state;
      const at = (entries) => place(labels.map((_, j) => entries[j] ?? 0));
      const edge = (j) => at({ [y]: p[y] / (p[y] + p[j]), [j]: p[j] / (p[y] + p[j]) });
      const safe = [at({ [y]: 1 }), edge(left), place(p), edge(right)];
      const blocked = [at({ [y]: 1 }), at({ [y]: 1 - t[left], [left]: t[left] }), place(t), at({ [y]: 1 - t[right], [right]: t[right] })];
      const end = place(theory.exp(theory.transferEndpoint(view.pair)));
      const path = grid.map((s) => place(theory.exp(theory.logTransferPath(view.pair, s))));
      const bought = grid.map((share) => place(theory.exp(predictionFor(view.pair, share * view.numbers.transferCost))));
      const words = view.numbers.blocked ? "The student lies in the blocked region." : "The student lies outside the blocked region.";
      picture.paint(
        `Triangle with ${classWord(y)}, the correct class, on top. ${words}`,
        svg("clipPath", { id: "triangle-window" }, polygon(corners, {})),
        svg("g", { "clip-path": "url(#triangle-window)" },
          polygon(blocked, { class: "blocked-area", style: "fill: url(#hatch-triangle)" }),
          polygon(safe, { class: "safe-area" }), polygon(safe, { class: "safe-border" }),
          line(path, { class: "path" }), line(bought, { class: "frontier-path" }), dot(end, { fill: BLUE }),
          dot(place(theory.exp(theory.logTransferPath(view.pair, view.state.position))), { class: "position", fill: "var(--chart-paper)", stroke: BLUE, "stroke-width": 2 })),
        polygon(corners, { class: "outline" }),
        label(220, 20, `${classWord(y)} (correct)`, { "text-anchor": "middle", class: "class-name" }),
        label(26, 392, zoom > 1 ? `← ${classWord(left)}` : classWord(left), { "text-anchor": zoom > 1 ? "start" : "middle", class: "class-name" }),
        label(414, 392, zoom > 1 ? `${classWord(right)} →` : classWord(right), { "text-anchor": zoom > 1 ? "end" : "middle", class: "class-name" }),
        zoom > 1 && label(220, 392, `confidence above ${tpkd.numbers.probability(1 - 1 / zoom)}`, { "text-anchor": "middle", class: "axis-name" }),
        isShown(place(p)) && besides(place(p), "student", place(t), INK), isShown(place(t)) && besides(place(t), "teacher", place(p), RUST),
      );
      moveHandles(picture, view, place);
    }
  }

  // A name beside a point, on the side away from another where there is room.
  function besides([x, y], text, [otherX], colour) {
    const side = x > 350 ? -1 : x < 90 || x >= otherX ? 1 : -1;
    return name([x + 15 * side, y + 5], text, { "text-anchor": side > 0 ? "start" : "end", style: `fill: ${colour}` });
  }

  // The prediction that the frontier recommends for a rise of the log-odds by B.
  function predictionFor(pair, budget) {
    return theory.join(pair.student.logOdds + budget, theory.frontier(pair, budget).logConditional, pair.inside.student, pair.labels);
  }

  // Log-odds of the correct classes over the relations of the others: for three classes all of them, else those from r to q.
  function map(figure, onChange, onNudge) {
    const [left, right, top, bottom, low, high] = [74, 430, 14, 346, -4.6, 9.25];
    const atY = (logOdds) => clamp(bottom - ((logOdds - low) / (high - low)) * (bottom - top), top, bottom);
    let current = null;
    const isWhole = () => current.labels.length === 3;
    const [xLow, xHigh] = [-0.06, 1.06];
    const atX = (x) => left + ((x - xLow) / (xHigh - xLow)) * (right - left);
    // The relations at a horizontal place, and the place of given relations.
    const relationsAt = (view, x) => (isWhole() ? [1 - x, x] : theory.exp(view.pair.student.logConditional).map((r, j) => (1 - x) * r + x * Math.exp(view.pair.teacher.logConditional[j])));
    const placeOfRelations = (logConditional, otherwise) => (isWhole() ? Math.exp(logConditional[1]) : otherwise);
    const onMove = (which, x, y) => {
      const logOdds = clamp(low + ((bottom - y) / (bottom - top)) * (high - low), -4.2, 8.8);
      let probabilities = tpkdState.withConfidence(current[which], current.labels, theory.sigmoid(logOdds));
      if (isWhole()) {
        const share = clamp(xLow + ((x - left) / (right - left)) * (xHigh - xLow), 0.01, 0.99), rest = theory.sigmoid(-logOdds);
        const others = theory.incorrectClasses(current.labels);
        probabilities = tpkdState.normalised(current.labels.map((correct, j) => (correct > 0 ? 1 - rest : rest * (j === others[1] ? share : 1 - share))));
      }
      onChange(which, probabilities);
    };
    const picture = plane(figure.querySelector(".plane"), { name: "map", width: 440, height: 400, title: "Confidence over relations", onMove, onNudge });

    return (view) => {
      current = view.state;
      const { pair, numbers } = view, others = theory.incorrectClasses(current.labels);
      const own = [placeOfRelations(pair.student.logConditional, 0), placeOfRelations(pair.teacher.logConditional, 1)];
      const xs = isWhole() ? grid.map((x) => 0.003 + 0.994 * x) : grid;
      const border = (x) => {
        const logX = relationsAt(view, x).map(Math.log);
        const student = { ...pair.student, logConditional: logX };
        return { safe: Math.max(...logX.map((value, j) => value - pair.student.logConditional[j])), blocked: theory.strictBlockingLogOdds({ ...pair, student, logRatio: pair.teacher.logConditional.map((value, j) => value - logX[j]) }) };
      };
      const borders = xs.map((x) => [x, border(x)]);
      const above = (edge) => [...edge, [edge.at(-1)[0], top], [edge[0][0], top]];
      const safe = borders.map(([x, found]) => [atX(x), atY(pair.student.logOdds + found.safe)]);
      const blocked = borders.map(([x, found]) => [atX(x), atY(found.blocked)]);
      const pathPlace = (s) => {
        const found = theory.split(theory.logTransferPath(pair, s), current.labels);
        return [atX(placeOfRelations(found.logConditional, s)), atY(found.logOdds)];
      };
      const end = pathPlace(1), start = atY(pair.student.logOdds);
      const ticks = [0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999].flatMap((share) => [
        svg("line", { x1: left, x2: right, y1: atY(logit(share)), y2: atY(logit(share)), class: "grid-line" }),
        label(left - 7, atY(logit(share)) + 4, `${Number((100 * share).toFixed(2))} %`, { "text-anchor": "end" }),
      ]);
      const below = isWhole() ? [[0, "0 %"], [0.5, "50 %"], [1, "100 %"]] : [[0, "r, student"], [1, "q, teacher"]];
      const anchors = isWhole() ? ["middle", "middle", "middle"] : ["start", "end"];
      // On a cut both are at its ends: their names go below them, where no line runs.
      const beside = (at, text, other, colour) => (isWhole() ? besides(at, text, other, colour) : besides([at[0] - (at[0] > 220 ? -16 : 16), at[1] + 20], text, other, colour));
      const bought = grid.map((share) => theory.split(predictionFor(pair, share * numbers.transferCost), current.labels));
      const price = numbers.transferCost > 1e-9 && [
        line([[end[0], start], end], { class: "price-line" }),
        line([[end[0] - 5, start], [end[0] + 5, start]], { class: "price-line" }),
        name([end[0] + (end[0] > 330 ? -9 : 9), (start + end[1]) / 2 + 4], `price ${tpkd.numbers.nats(numbers.transferCost)}`, { "text-anchor": end[0] > 330 ? "end" : "start", style: `fill: ${BLUE}` }),
      ];
      picture.paint(
        `Log-odds of the correct class over the relations of the others. The student has confidence ${tpkd.numbers.probability(numbers.confidence)}, the teacher ${tpkd.numbers.probability(numbers.teacherConfidence)}; exact transfer needs ${tpkd.numbers.probability(numbers.minConfidence)}.`,
        ticks,
        polygon(above(blocked), { class: "blocked-area", style: "fill: url(#hatch-map)" }),
        polygon(above(safe), { class: "safe-area" }), line(safe, { class: "safe-border" }),
        line(xs.map(pathPlace), { class: "path" }),
        isWhole() && line(bought.map((found) => [atX(Math.exp(found.logConditional[1])), atY(found.logOdds)]), { class: "frontier-path" }),
        price, dot(end, { fill: BLUE }), name([end[0], end[1] - 10], "p*", { "text-anchor": "middle", style: `fill: ${BLUE}` }),
        dot(pathPlace(current.position), { class: "position", fill: "var(--chart-paper)", stroke: BLUE, "stroke-width": 2 }),
        svg("line", { x1: left, x2: right, y1: bottom, y2: bottom, class: "axis-line" }),
        below.map(([x, text], index) => label(atX(x), bottom + 17, text, { "text-anchor": anchors[index] })),
        label((left + right) / 2, 388, isWhole() ? `share of ${classWord(others[1])} among the wrong classes` : "relations of the wrong classes", { "text-anchor": "middle", class: "axis-name" }),
        label(0, 0, "confidence", { "text-anchor": "middle", class: "axis-name", transform: `translate(12 ${(top + bottom) / 2}) rotate(-90)` }),
        beside([atX(own[0]), start], "student", [atX(own[1])], INK),
        beside([atX(own[1]), atY(pair.teacher.logOdds)], "teacher", [atX(own[0])], RUST),
      );
      legend(figure.querySelector(".legend"), [KEY.safe, blockedKey("map"), KEY.path, ...(isWhole() ? [KEY.frontier] : [])]);
      figure.querySelector(".note").textContent = isWhole()
        ? "The same predictions as in the triangle, on the scale of log-odds, as in Figure 1 of the paper: there is as much room for 99.9 % as for 50 %."
        : "A cut through all predictions: those whose relations lie between the student's and the teacher's. Drag up and down; the sliders change the relations.";
      const across = (probabilities) => (probabilities === current.student ? own[0] : own[1]);
      moveHandles(picture, view, (probabilities) => [atX(across(probabilities)), atY(logit(confidenceOf(probabilities, current.labels)))]);
    };
  }

  // h, u, d and v in the plane of the confidence axis and of what the projection keeps of u. A step subtracts them.
  function step(figure) {
    const picture = plane(figure.querySelector(".plane"), { name: "step", width: 440, height: 330, title: "The step in logit space" });
    const arrowKey = (colour, dash) => svg("line", { x1: 1, x2: 25, y1: 7, y2: 7, stroke: colour, "stroke-width": 3, "stroke-dasharray": dash });
    legend(figure.querySelector(".legend"), [
      ["−h, label", arrowKey(GREEN)], ["−u, teacher's relations", arrowKey(INK, "5 3")], ["−d, their safe part", arrowKey(BLUE)], ["−v = −(h + βd), the step", arrowKey(PURPLE)],
      ["steps that lower no margin", svg("rect", { x: 1, y: 1, width: 24, height: 12, class: "safe-area" })],
    ]);
    return (view) => {
      const { labels, beta, temperature } = view.state, found = view.step;
      const incorrect = theory.incorrectClasses(labels), n = incorrect.length, m = labels.length - n;
      const axis = labels.map((share) => (share > 0 ? -1 : m / n)), up = Math.sqrt((m * labels.length) / n);
      const side = horizontal(found.pureConditional, incorrect, labels.length);
      const drawn = (direction) => [-theory.inner(direction, side), theory.inner(direction, axis) / up];
      const arrows = { h: drawn(found.label), u: drawn(found.conditional), d: drawn(found.safe), v: drawn(found.update) };
      const reach = Math.max(0.02, ...Object.values(arrows).map(([x, y]) => Math.max(Math.abs(x) / 185, y / 225, -y / 60)) .map((value) => 185 * value));
      const size = SIZES.find((each) => each >= reach) ?? 1.05 * reach;
      const origin = [220, 252], scale = 185 / size;
      const at = ([x, y]) => [origin[0] + scale * x, origin[1] - scale * y];
      const slope = (sign) => (Math.max(...incorrect.map((j) => sign * side[j])) * n / labels.length) * up;
      const far = 2 * size, cone = [at([0, 0]), at([-far, far * slope(-1)]), at([-far, 3 * far]), at([far, 3 * far]), at([far, far * slope(1)])];
      const tip = (key, text, colour, dx, dy) => name([at(arrows[key])[0] + dx, at(arrows[key])[1] + dy], text, { "text-anchor": "middle", style: `fill: ${colour}` });
      const right = arrows.u[0] >= 0 ? 1 : -1;
      const clip = svg("clipPath", { id: "step-window" }, svg("rect", { x: 8, y: 6, width: 424, height: 318 }));
      const scaleBar = [0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005].find((each) => each <= size / 3);
      picture.paint(
        `The label step, the teacher's step, its safe part and the complete step. Compensation ${view.numbers.compensation.toFixed(3)}, retention ${view.numbers.retention.toFixed(3)}.`,
        clip,
        svg("g", { "clip-path": "url(#step-window)" }, polygon(cone, { class: "safe-area" }), line([cone[1], cone[0], cone[4]], { class: "safe-border" })),
        svg("line", { x1: 8, x2: 432, y1: origin[1], y2: origin[1], class: "grid-line" }), svg("line", { x1: origin[0], x2: origin[0], y1: 8, y2: 322, class: "grid-line" }),
        line([at(arrows.u), at(arrows.d)], { class: "dashed projection" }), line([at(arrows.h), at(arrows.v)], { class: "dashed" }),
        arrow(origin, at(arrows.u), INK, { "stroke-dasharray": "6 3" }), arrow(origin, at(arrows.d), BLUE), arrow(origin, at(arrows.h), GREEN), arrow(origin, at(arrows.v), PURPLE),
        tip("u", "−u", INK, 10 * right, 18), tip("d", "−d", BLUE, 14 * right, -4), tip("h", "−h", GREEN, -16 * right, 2), tip("v", "−v", PURPLE, 0, -9),
        label(origin[0] + 6, 20, "correct class rises", { class: "axis-name halo" }),
        label(428, origin[1] - 6, labels.length === 3 ? `${classWord(incorrect[1])} rises` : "towards the teacher", { class: "axis-name halo", "text-anchor": "end" }),
        line([[20, 312], [20 + scale * scaleBar, 312]], { class: "axis-line", "stroke-width": 2 }), label(26 + scale * scaleBar, 316, String(scaleBar)),
      );
      const cut = labels.length === 3 ? "" : " More than three classes need more than a plane: the picture is the plane in which d lies, with the shadows of h, u and v in it.";
      const soft = temperature === 1 ? "" : ` u is taken at temperature ${temperature}; h has none.`;
      figure.querySelector(".note").textContent = `The projection takes −u to −d, the nearest step that lowers no margin, and v adds β = ${beta} of it to the label step.${soft}${cut}`;
    };
  }

  // The unit vector to the right: for three classes always the same, else along w_cond.
  function horizontal(pure, incorrect, count) {
    const found = Array(count).fill(0), length = Math.sqrt(theory.inner(pure, pure));
    if (incorrect.length > 2 && length > 0) return pure.map((value) => -value / length);
    found[incorrect[0]] = -Math.SQRT1_2;
    found[incorrect[1]] = Math.SQRT1_2;
    return found;
  }

  function frontier(figure) {
    return (view) => {
      const { pair, numbers, state } = view, cost = numbers.transferCost;
      const high = Math.max(1.15 * cost, 0.1), value = (budget) => theory.frontier(pair, budget).value;
      const marks = cost > 1e-9 ? [{ x: cost, y: 0, name: `price ${tpkd.numbers.nats(cost)}`, colour: BLUE }] : [];
      if (state.budget <= high) marks.push({ x: state.budget, y: value(state.budget), name: `V(${Number(state.budget.toFixed(2))}) = ${tpkd.numbers.nats(value(state.budget))}`, colour: GREEN });
      const chart = lineChart({
        title: "Frontier", description: `V falls from ${tpkd.numbers.nats(numbers.conditionalLoss)} at B = 0 to 0 at the price ${tpkd.numbers.nats(cost)}.`,
        lines: [{ name: "V(B)", points: grid.map((share) => [share * high, value(share * high)]), colour: GREEN, dash: null }], marks,
        x: { name: "B, rise in the log-odds of the correct class (nats)", low: 0, high }, y: { name: "V(B), nats left", low: 0, high: Math.max(1.15 * numbers.conditionalLoss, 0.01) },
      });
      figure.querySelector(".plane").replaceChildren(chart);
    };
  }

  function losses(figure) {
    const lines = [["teacher KL", "imitationLoss", RUST, "6 3"], ["label loss", "labelLoss", INK, "8 3 2 3"], ["conditional loss", "conditionalLoss", BLUE, null]];
    tpkd.legend(lines.map(([text, , colour, dash]) => ({ name: text, colour, dash }))).childNodes.forEach((entry) => figure.querySelector(".legend").append(entry.cloneNode(true)));
    return (view) => {
      const at = (s) => {
        const logits = theory.logTransferPath(view.pair, s), pair = theory.splitPair(logits, view.teacherLogits, view.state.labels);
        return { labelLoss: theory.labelLoss(logits, view.state.labels), imitationLoss: theory.imitationLoss(pair), conditionalLoss: theory.conditionalLoss(pair) };
      };
      const start = at(0), points = grid.map((s) => [s, at(s)]), now = at(view.state.position);
      const share = (found, key) => (start[key] > 1e-9 ? found[key] / start[key] : null);
      const chart = lineChart({
        title: "Losses along the path", description: `From the student to p*: teacher KL from ${tpkd.numbers.nats(start.imitationLoss)} to ${tpkd.numbers.nats(at(1).imitationLoss)}, label loss from ${tpkd.numbers.nats(start.labelLoss)} to ${tpkd.numbers.nats(at(1).labelLoss)}, conditional loss from ${tpkd.numbers.nats(start.conditionalLoss)} to 0.`,
        lines: lines.map(([text, key, colour, dash]) => ({ name: text, colour, dash, points: points.map(([s, found]) => [s, share(found, key)]) })),
        marks: start.conditionalLoss > 1e-9 ? [{ x: view.state.position, y: share(now, "conditionalLoss"), name: `s = ${view.state.position}`, colour: BLUE }] : [],
        x: { name: "s, position on the path", low: 0, high: 1 }, y: { name: "loss / its start", low: 0 },
      });
      figure.querySelector(".plane").replaceChildren(chart);
    };
  }

  return { frontier, losses, map, step, triangle };
})();
