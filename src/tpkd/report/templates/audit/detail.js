// One example: its two distributions, what is left at each price, and the protected step.
const detail = (() => {
  "use strict";
  const { html, svg, numbers, lineChart, drawing, label } = tpkd;
  const SCALARS = ["confidence", "teacher_confidence", "label_loss", "imitation_loss", "conditional_loss", "transfer_cost",
    "min_confidence", "compensation", "retention", "update_cosine", "margin", "teacher_margin"];
  const FIELDS = ["log_student", "log_teacher", "student_share", "teacher_share", "log_ratio", "conditional", "safe", "clipped", "update"];

  // The numbers of the example at `place` of its chunk.
  const read = (data, place, rows) => {
    const shown = data.classes.length / rows;
    const points = data.frontier.length / rows;
    const example = { classes: [...data.classes.slice(place * shown, (place + 1) * shown)] };
    SCALARS.forEach((name, index) => { example[name] = data.scalars[place * SCALARS.length + index]; });
    FIELDS.forEach((name, index) => {
      const start = (place * FIELDS.length + index) * shown;
      example[name] = [...data.fields.slice(start, start + shown)];
    });
    example.frontier = [...data.frontier.slice(place * points, (place + 1) * points)]
      .map((value, index) => [example.transfer_cost * (index / (points - 1)) ** 2, value]);
    return example;
  };
  const data = (value, kind, path) => html("data", { value, "data-path": path }, numbers[kind](value));

  const bars = (left, right, most) => {
    const bar = (value, side) => svg("svg", { viewBox: "0 0 100 14", preserveAspectRatio: "none", class: `bar ${side}`, "aria-hidden": "true" },
      svg("rect", { x: side === "left" ? 100 - (100 * value) / most : 0, y: 0, width: (100 * value) / most, height: 14 }));
    return [bar(left, "left"), bar(right, "right")];
  };
  // Student to the left, teacher to the right; of the incorrect classes their share of what the label leaves.
  const distributions = (example, names) => {
    const row = (name, left, right, most, kind = "") => {
      const [one, other] = bars(left, right, most);
      return html("tr", { class: kind }, html("td", { class: "number" }, data(left, "probability")), html("td", { class: "bar-cell" }, one),
        html("th", { scope: "row" }, html("bdi", {}, name)), html("td", { class: "bar-cell" }, other), html("td", { class: "number" }, data(right, "probability")));
    };
    const others = example.classes.map((_, place) => place).slice(1);
    const share = (place, side) => (side ? example.teacher_share : example.student_share)[place];
    const most = Math.max(...others.flatMap((place) => [share(place, 0), share(place, 1)]), 1e-9);
    const head = (text) => html("tr", { class: "part" }, html("th", { colspan: 5, scope: "colgroup" }, text));
    return html("table", { class: "butterfly" }, html("caption", { class: "hidden-label" }, "Probabilities of student and teacher"),
      html("colgroup", {}, ["number", "bar-cell", "name", "bar-cell", "number"].map((name) => html("col", { class: name }))),
      html("thead", {}, html("tr", {}, html("th", { colspan: 2, scope: "col", class: "student" }, "student"), html("td", {}), html("th", { colspan: 2, scope: "col", class: "teacher" }, "teacher"))),
      html("tbody", {}, head("probability of the label"), row(names[example.classes[0]], Math.exp(example.log_student[0]), Math.exp(example.log_teacher[0]), 1, "correct"),
        head("shares of what is left for the incorrect classes"),
        others.sort((a, b) => share(b, 1) - share(a, 1)).map((place) => row(names[example.classes[place]], share(place, 0), share(place, 1), most,
          example.log_ratio[place] === Math.max(...example.log_ratio.slice(1)) && example.transfer_cost > 0 ? "setter" : ""))));
  };

  const frontierChart = (example) => {
    const price = example.transfer_cost;
    const marks = price > 0 ? [{ x: price, y: 0, name: `price ${numbers.nats(price)}` }] : [];
    const points = [...example.frontier, [price * 1.2 || 1, 0]];
    return lineChart({
      title: "What is left to learn at each price",
      description: `With nothing paid ${numbers.nats(example.conditional_loss)} nats are left; at a price of ${numbers.nats(price)} nats of log-odds nothing is.`,
      lines: [{ name: "V(B)", points, dash: null }], marks, height: 210,
      x: { name: "budget B: rise in log-odds of the label (nats)", low: 0 }, y: { name: "left, V(B) (nats)", low: 0 },
    });
  };

  // Steps go against the directions: what is drawn is the push on each logit.
  const stepChart = (example, names) => {
    const rows = example.classes.map((index, place) => ({
      name: names[index], wanted: 0 - example.conditional[place], allowed: 0 - example.safe[place], clipped: example.clipped[place], correct: place === 0,
    })).sort((a, b) => b.correct - a.correct || b.clipped - a.clipped || b.wanted - a.wanted);
    const reach = Math.max(...rows.flatMap((row) => [Math.abs(row.wanted), Math.abs(row.allowed)]), 1e-12);
    const [width, line, top] = [400, 25, 20];
    const height = top + rows.length * line + 8;
    const longest = Math.max(...rows.map((row) => Math.min(20, [...row.name].length)));
    const [left, right] = [24 + 7 * longest, width - 60];
    const middle = (left + right) / 2;
    const at = (value) => middle + (value / reach) * ((right - left) / 2);
    const shortened = (name) => ([...name].length > 20 ? `${[...name].slice(0, 19).join("")}…` : name);
    const drawn = rows.flatMap((row, place) => {
      const y = top + place * line;
      const rect = (value, className, thick, offset) => svg("rect", { class: className, x: Math.min(at(0), at(value)), width: Math.abs(at(value) - at(0)), y: y + offset, height: thick });
      return [
        label(left - 8, y + 16, shortened(row.name), { "text-anchor": "end", class: row.correct ? "mark" : null }),
        rect(row.wanted, "wanted", 16, 4), rect(row.allowed, "allowed", 8, 8),
        row.clipped > 0 ? label(right + 4, y + 16, `−${numbers.probability(row.clipped)}`, { class: "clipped" }) : null,
      ];
    });
    const ceiling = at(example.compensation);
    return drawing(width, height, "The protected step", `Push on each class: what conditional knowledge asks for, and what protection leaves of it. No class is raised by more than the label, ${numbers.probability(example.compensation)}.`,
      svg("line", { x1: middle, x2: middle, y1: top, y2: height - 4, class: "axis-line" }), drawn,
      example.compensation > 0 ? [svg("line", { x1: ceiling, x2: ceiling, y1: top - 4, y2: height - 4, class: "drop-line" }), label(ceiling, 12, "label's push", { "text-anchor": "middle", class: "axis-name" })] : null,
      label(right + 4, 12, "cut by", { class: "axis-name" }));
  };

  const FACTS = [
    ["transfer_cost", "nats", "price", "rise in the label's log-odds that pays for all of it"],
    ["conditional_loss", "nats", "conditional loss", "left to learn about the incorrect classes"],
    ["margin", "signedNats", "margin", "lead of the label over its nearest competitor"],
    ["teacher_margin", "signedNats", "teacher's margin", "the same in the teacher"],
    ["imitation_loss", "nats", "teacher KL", "how far the student is from the teacher"],
    ["confidence", "probability", "student's confidence", "probability of the label"],
    ["teacher_confidence", "probability", "teacher's confidence", "probability of the label"],
    ["min_confidence", "probability", "least confidence", "where all is learned and no margin is lower"],
    ["retention", "share", "retention", "share of conditional descent that protection keeps"],
  ];
  const facts = (example) => html("dl", { class: "facts-list" }, FACTS.map(([name, kind, title, meaning]) =>
    html("div", {}, html("dt", {}, title, html("span", {}, meaning)), html("dd", {}, data(example[name], kind, name)))));

  // The competitors that are closest to the label, for either network.
  const nearest = (example, names) => {
    const pairs = (logs) => example.classes.slice(1).map((index, place) => [names[index], logs[0] - logs[place + 1]]).sort((a, b) => a[1] - b[1]).slice(0, 3);
    const list = (who, found) => html("div", {}, html("dt", {}, who), found.map(([name, margin]) =>
      html("dd", {}, html("bdi", {}, name), " ", data(margin, "signedNats"))));
    return html("dl", { class: "nearest" }, list("for the student", pairs(example.log_student)), list("for the teacher", pairs(example.log_teacher)));
  };

  const numbersTable = (example, names) => {
    const heads = ["class", "student p", "teacher t", "student's margin", "teacher's margin", "log(q/r)", "wanted −u", "protected −d", "cut λ", "whole step −v"];
    const body = example.classes.map((index, place) => {
      const incorrect = place > 0;
      const cell = (value, kind) => html("td", {}, value === null ? "" : data(value, kind));
      return html("tr", {}, html("th", { scope: "row" }, html("bdi", {}, names[index])),
        cell(Math.exp(example.log_student[place]), "probability"), cell(Math.exp(example.log_teacher[place]), "probability"),
        cell(incorrect ? example.log_student[0] - example.log_student[place] : null, "signedNats"), cell(incorrect ? example.log_teacher[0] - example.log_teacher[place] : null, "signedNats"),
        cell(incorrect ? example.log_ratio[place] : null, "signedNats"), cell(0 - example.conditional[place], "signedNats"), cell(0 - example.safe[place], "signedNats"),
        cell(incorrect ? example.clipped[place] : null, "probability"), cell(0 - example.update[place], "signedNats"));
    });
    return html("details", {}, html("summary", {}, "Numbers of these classes"),
      html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Numbers of the classes" },
        html("table", {}, html("thead", {}, html("tr", {}, heads.map((text, place) => html("th", { scope: "col", class: place ? null : "text" }, text)))), html("tbody", {}, body))));
  };

  const sentence = (example, blocked) => {
    if (example.transfer_cost === 0 && example.conditional_loss === 0) return "Nothing is left to learn about the incorrect classes.";
    const price = `The teacher's relations among the incorrect classes cost ${numbers.nats(example.transfer_cost)} nats of log-odds.`;
    const first = blocked
      ? "Blocked: no prediction that keeps every margin is closer to the whole teacher."
      : "Open: some prediction that keeps every margin is closer to the whole teacher.";
    return `${first} ${price}`;
  };

  return { read, distributions, frontierChart, stepChart, facts, nearest, numbersTable, sentence };
})();
