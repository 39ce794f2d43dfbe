// Two students: answers lost and won, with the gallery behind every number.
const flips = (() => {
  "use strict";
  const { html, numbers } = tpkd;
  const MOST_CLASSES = 500;
  const points = (value) => `${value < 0 ? "-" : "+"}${Math.abs(100 * value).toFixed(2)}`;
  const chance = (value) => (value < 0.0001 ? "<\u00a00.0001" : `=\u00a0${value.toFixed(value < 0.01 ? 4 : 3)}`);

  const find = (record, before, after) => {
    const place = record.flips.findIndex((pair) => pair.before === before && pair.after === after);
    return place < 0 ? null : { pair: record.flips[place], path: `flips.${place}` };
  };
  const draw = (context) => {
    const { record, state, link, defaults } = context;
    const after = Number(state.student);
    const before = Number(state.before);
    const content = document.getElementById("flips-content");
    const found = find(record, before, after);
    if (!found) {
      content.replaceChildren(html("p", {}, "Choose an earlier student to compare with: students are compared in the order in which they were given."));
      return;
    }
    const { pair, path } = found;
    const exact = (value, text, key) => html("data", { value, "data-path": `${path}.${key}` }, text);
    const cell = (key, flip, label = "") => {
      const place = key.split(".").reduce((part, each) => part[each], pair);
      const number = exact(place, numbers.count(place), key);
      const chosen = { ...defaults, student: state.student, before: state.before, flip, label };
      return place ? html("a", { href: link(chosen) }, number) : number;
    };
    const names = [record.students[before].name, record.students[after].name].map((name) => html("bdi", {}, name));
    const margin = pair.margin_change_low === null ? [] : ["\u00a0", exact(pair.margin_change_low, numbers.signedNats(pair.margin_change_low), "margin_change_low"), " to ", exact(pair.margin_change_high, numbers.signedNats(pair.margin_change_high), "margin_change_high")];
    const tile = (value, ...what) => html("div", { class: "tile" }, html("p", { class: "value" }, value), html("p", { class: "what" }, what));
    const tiles = html("div", { class: "tiles" },
      tile(exact(pair.accuracy_change, points(pair.accuracy_change), "accuracy_change"), "percentage points of accuracy", html("span", {}, "95 % interval ", exact(pair.accuracy_low, points(pair.accuracy_low), "accuracy_low"), " to ", exact(pair.accuracy_high, points(pair.accuracy_high), "accuracy_high"))),
      tile([cell("lost", "lost"), " / ", cell("won", "won")], "answers lost / won", html("span", {}, "McNemar's exact test: p\u00a0", exact(pair.p_value, chance(pair.p_value), "p_value"))),
      tile(exact(pair.margin_change, numbers.signedNats(pair.margin_change), "margin_change"), "nats: mean change of the least margin", html("span", {}, "95 % interval", margin)),
      tile(exact(pair.margins_lowered, numbers.share(pair.margins_lowered), "margins_lowered"), "of all margins are lower than before", html("span", {}, cell("least_margins_lowered", "margin-lower"), " examples have a smaller least margin")));
    const head = (text) => html("th", { scope: "col" }, text);
    const wrong = pair.missed_alike + pair.missed_differently;
    const matrix = html("div", { class: "scroll narrow", tabindex: 0, role: "region", "aria-label": "Table of transitions" }, html("table", { class: "matrix" }, html("caption", {}, "From ", names[0].cloneNode(true), " (rows) to ", names[1].cloneNode(true), " (columns); every number leads to its examples"),
      html("thead", {}, html("tr", {}, html("td", {}), head("right"), head("wrong, same answer"), head("wrong, another answer"))),
      html("tbody", {},
        html("tr", {}, html("th", { scope: "row" }, "right"), html("td", { class: "kept" }, cell("kept", "kept")), html("td", { class: "never" }, "–"), html("td", { class: "lost" }, cell("lost", "lost"))),
        html("tr", {}, html("th", { scope: "row" }, "wrong"), html("td", { class: "won" }, cell("won", "won")), html("td", {}, cell("missed_alike", "missed-alike")), html("td", {}, cell("missed_differently", "missed-differently"))))));
    const moved = pair.classes.map((each, place) => [each, place]).filter(([each]) => each.examples > 0)
      .sort(([a], [b]) => b.lost + b.won - a.lost - a.won || a.label - b.label);
    const lines = moved.slice(0, MOST_CLASSES).map(([each, place]) => html("tr", {}, html("th", { scope: "row" }, html("bdi", {}, record.class_names[each.label])),
      html("td", {}, exact(each.examples, numbers.count(each.examples), `classes.${place}.examples`)),
      ["kept", "lost", "won", "missed"].map((name) => html("td", {}, cell(`classes.${place}.${name}`, name, String(each.label)))),
      html("td", { "data-sort": each.won - each.lost }, each.won === each.lost ? "0" : `${each.won > each.lost ? "+" : "-"}${Math.abs(each.won - each.lost)}`),
      html("td", {}, exact(each.margin_change, numbers.signedNats(each.margin_change), `classes.${place}.margin_change`))));
    const table = html("table", { class: "sortable" }, html("caption", {}, moved.length > MOST_CLASSES ? `The ${MOST_CLASSES} classes of ${moved.length} with most lost and won answers` : "By class, most lost and won answers first"),
      html("thead", {}, html("tr", {}, html("th", { scope: "col", class: "text" }, "class"), ["examples", "right in both", "lost", "won", "wrong in both", "net", "change of margin (nats)"].map(head))), html("tbody", {}, lines));
    content.replaceChildren(tiles,
      html("p", { class: "lead" }, "From ", names[0], " to ", names[1], ": ", `${numbers.count(pair.lost)} answers lost, ${numbers.count(pair.won)} won, ${numbers.count(wrong)} wrong in both.`, " ",
        `If losing and winning were equally likely, a split at least as uneven would come in ${numbers.share(pair.p_value)} of cases.`),
      matrix, html("div", { class: "scroll tall block", tabindex: 0, role: "region", "aria-label": "Table of classes" }, table));
    makeSortable(table);
  };
  return { draw };
})();
