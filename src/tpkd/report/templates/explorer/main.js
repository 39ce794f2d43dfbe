// The page: one state, the form that changes it, and everything that follows from it.
(() => {
  "use strict";
  const { html } = tpkd;
  const { LIMITS, MIN_CLASSES, MAX_CLASSES, clamp, correctOf, withClass, withConfidence, withLabel, withNumClasses } = tpkdState;
  const theory = tpkdTheory;
  const { cases } = tpkd.data("explorer-record");
  const TOLERANCE = 1e-9; // probabilities in an address are rounded: equal ones count as equal
  const ADDRESS_DELAY = 250; // browsers refuse many changes of the address in a row
  const find = (selector) => document.querySelector(selector);
  const form = find(".settings");
  let state = tpkdState.ofCase(cases[0]);
  let chosen = cases[0].name;
  let waiting = null;

  function viewOf(state) {
    const [studentLogits, teacherLogits] = [state.student, state.teacher].map((values) => values.map(Math.log));
    const { labels, beta, temperature } = state;
    const numbers = theory.diagnose(studentLogits, teacherLogits, labels, { beta, temperature, tolerance: TOLERANCE });
    return {
      state, studentLogits, teacherLogits, numbers, pair: numbers.pair, step: numbers.step,
      best: theory.frontier(numbers.pair, state.budget),
      bound: theory.retentionBound(labels.length, correctOf(state).length),
      safeImitation: theory.projectSafeCone(theory.imitationDirection(studentLogits, teacherLogits), labels),
      wide: (logConditional) => theory.insertTarget(theory.exp(logConditional), null, labels),
    };
  }

  const setPrediction = (which, probabilities) => change({ ...state, [which]: probabilities });

  // Arrow keys: up and down change the confidence, left and right the relations of three classes.
  function nudge(which, right, up) {
    const { labels } = state, parts = theory.split(state[which].map(Math.log), labels);
    let probabilities = state[which];
    if (up) probabilities = withConfidence(probabilities, labels, theory.sigmoid(clamp(parts.logOdds + 0.1 * up, -4.5, 9)));
    if (right && labels.length === 3) {
      const [left, other] = theory.incorrectClasses(labels), rest = probabilities[left] + probabilities[other];
      const share = clamp(probabilities[other] / rest + 0.02 * right, 0.01, 0.99);
      probabilities = tpkdState.normalised(probabilities.map((value, j) => (j === left ? rest * (1 - share) : j === other ? rest * share : value)));
    }
    setPrediction(which, probabilities);
  }

  const pictures = [
    tpkdPictures.triangle(find("#triangle"), setPrediction, nudge), tpkdPictures.map(find("#map"), setPrediction, nudge),
    tpkdPictures.step(find("#step")), tpkdPictures.frontier(find("#frontier")), tpkdPictures.losses(find("#losses")),
  ];

  const range = (name, text, low, high, step, attributes = {}) => {
    const output = html("output", {});
    const input = html("input", { type: "range", min: low, max: high, step, name, ...attributes });
    return { input, output, field: html("label", { class: "field" }, html("span", {}, text, output), input) };
  };
  const select = (name, text) => {
    const input = html("select", { name });
    return { input, field: html("label", { class: "field" }, html("span", {}, text), input) };
  };
  const options = (input, entries, value) => input.replaceChildren(...entries.map(([key, text]) => html("option", { value: key, selected: String(key) === String(value) }, text)));

  const controls = {
    count: select("count", "Classes"), label: select("label", "Correct class"), mixed: select("mixed", "Mixed with"), share: range("share", "Its share", 0.05, 0.95, 0.05),
    beta: range("beta", "β, weight of the safe part", ...LIMITS.beta, 0.05), temperature: range("temperature", "T, temperature of the relations", ...LIMITS.temperature, 0.25),
    position: range("position", "s, position on the path", ...LIMITS.position, 0.01), budget: range("budget", "B, rise in log-odds", ...LIMITS.budget, 0.01),
  };
  const group = (title, ...children) => html("fieldset", {}, html("legend", {}, title), children);
  const sliders = { student: html("div", {}), teacher: html("div", {}) };
  form.append(
    group("Label", html("div", { class: "pair" }, controls.count.field, controls.label.field), html("div", { class: "pair" }, controls.mixed.field, controls.share.field)),
    group("Student", sliders.student), group("Teacher", sliders.teacher),
    group("Step", controls.beta.field, controls.temperature.field), group("Path and frontier", controls.position.field, controls.budget.field),
  );
  form.addEventListener("submit", (event) => event.preventDefault());
  controls.count.input.addEventListener("change", (event) => change(withNumClasses(state, Number(event.target.value))));
  const relabel = () => {
    const mixed = controls.mixed.input.value;
    change(withLabel(state, Number(controls.label.input.value), mixed === "" ? null : Number(mixed), 1 - Number(controls.share.input.value)));
  };
  for (const name of ["label", "mixed"]) controls[name].input.addEventListener("change", relabel);
  controls.share.input.addEventListener("input", relabel);
  for (const name of Object.keys(LIMITS)) controls[name].input.addEventListener("input", (event) => change({ ...state, [name]: Number(event.target.value) }));

  // Sliders stay the same elements while one is moved; only another number of classes makes new ones.
  function fillSliders() {
    for (const which of ["student", "teacher"]) {
      const place = sliders[which];
      if (place.childElementCount !== state.labels.length) {
        place.replaceChildren(...state.labels.map((_, j) => {
          const made = range(`${which}-${j}`, `class ${j + 1}`, 0.001, 0.999, 0.001, { class: `of-${which}`, "aria-label": `${which}, class ${j + 1}` });
          made.input.addEventListener("input", (event) => setPrediction(which, withClass(state[which], j, Number(event.target.value))));
          return made.field;
        }));
      }
      [...place.children].forEach((field, j) => {
        field.querySelector("input").value = state[which][j];
        field.querySelector("output").value = tpkd.numbers.probability(state[which][j]);
      });
    }
  }

  function fillForm() {
    const count = state.labels.length, [first, second = ""] = correctOf(state), classes = state.labels.map((_, j) => [j, `class ${j + 1}`]);
    options(controls.count.input, Array.from({ length: MAX_CLASSES - MIN_CLASSES + 1 }, (_, index) => [index + MIN_CLASSES, String(index + MIN_CLASSES)]), count);
    options(controls.label.input, classes, first);
    options(controls.mixed.input, [["", "no other"], ...classes.filter(([j]) => j !== first)], second);
    controls.mixed.input.disabled = count === 3;
    controls.share.input.disabled = second === "";
    controls.share.input.value = second === "" ? 0.3 : state.labels[second];
    controls.share.output.value = second === "" ? "" : tpkd.numbers.share(state.labels[second]);
    for (const name of Object.keys(LIMITS)) {
      controls[name].input.value = state[name];
      controls[name].output.value = String(state[name]);
    }
    fillSliders();
  }

  const buttons = cases.map((each) => html("button", { type: "button", class: "button", "aria-pressed": "false", onclick: () => choose(each) }, each.title));
  find(".presets").append(...buttons);

  function render() {
    const view = viewOf(state);
    pictures.forEach((draw) => draw(view));
    tpkdWords.verdict(find("#verdict"), view);
    tpkdWords.numbersTable(find("#numbers tbody"), view);
    tpkdWords.classesTable(find("#classes table"), view);
    fillForm();
    buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(cases[index].name === chosen)));
    find(".preset-text").textContent = cases.find((each) => each.name === chosen)?.text ?? "";
  }

  // Room for the longest text above the pictures: nothing may move under a pointer that drags.
  function reserve() {
    const [words, text] = [find("#verdict"), find(".preset-text")];
    for (const element of [words, text]) element.style.minHeight = "";
    const heights = cases.map((each) => {
      tpkdWords.verdict(words, viewOf(tpkdState.ofCase(each)));
      text.textContent = each.text;
      return [words.offsetHeight, text.offsetHeight];
    });
    [words, text].forEach((element, index) => { element.style.minHeight = `${Math.max(...heights.map((pair) => pair[index]))}px`; });
    render();
  }

  const addressOf = () => `#${chosen ?? tpkdState.toAddress(state)}`;
  function show(next, name) {
    [state, chosen] = [next, name];
    render();
  }
  function change(next, name = null) {
    show(next, name);
    clearTimeout(waiting);
    waiting = setTimeout(() => history.replaceState(null, "", addressOf()), ADDRESS_DELAY);
  }
  const choose = (each) => change(tpkdState.ofCase(each), each.name);

  // The address says a case by its name, or a whole state; what it says otherwise is not ours.
  function follow() {
    const text = decodeURIComponent(location.hash.slice(1)), known = cases.find((each) => each.name === text);
    const found = known ? tpkdState.ofCase(known) : tpkdState.fromAddress(text);
    if (found) show(found, known?.name ?? null);
  }
  window.addEventListener("hashchange", follow);

  find(".copy").addEventListener("click", async () => {
    const address = `${location.href.split("#")[0]}${addressOf()}`;
    history.replaceState(null, "", addressOf());
    try {
      await navigator.clipboard.writeText(address);
      find(".copied").textContent = "Copied.";
    } catch {
      find(".copied").textContent = "The address of this page has it.";
    }
  });

  const wrong = cases.filter((each) => tpkdCases.firstDifference(tpkdCases.numbersOf(each), each.numbers));
  find(".checked").textContent = wrong.length
    ? `This browser computes other numbers than tpkd for: ${wrong.map((each) => each.title).join("; ")}.`
    : `Checked when this page was opened: its numbers for all ${cases.length} examples are those of tpkd.`;
  window.addEventListener("resize", reserve);
  reserve();
  follow();
})();
