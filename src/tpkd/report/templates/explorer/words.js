// What the explorer says in words and numbers: the verdict, the table of numbers and the table of classes.
const tpkdWords = (() => {
  "use strict";
  const { html, numbers: write } = tpkd;
  const theory = tpkdTheory;
  const lengthOf = (vector) => {
    const found = Math.sqrt(theory.inner(vector, vector));
    return found < 1e-12 ? 0 : found; // what rounding leaves of nothing
  };
  const signed = (value) => `${value < 0 ? "−" : ""}${Math.abs(value).toFixed(3)}`;
  const yesNo = (value) => (value ? "yes" : "no");

  const NUMBERS = [
    ["blocked", "Blocked", "", yesNo, (view) => view.numbers.blocked, "no prediction that keeps every margin is closer to the teacher (theorem 1)"],
    ["confidence", "Student's confidence", "ρ", write.probability, (view) => view.numbers.confidence, "its probability of the correct class, or of all correct classes"],
    ["teacher_confidence", "Teacher's confidence", "τ", write.probability, (view) => view.numbers.teacherConfidence, "the same of the teacher"],
    ["label_loss", "Label loss", "L_CE", write.nats, (view) => view.numbers.labelLoss, "cross-entropy of the student with the label"],
    ["imitation_loss", "Teacher KL", "L_T", write.nats, (view) => view.numbers.imitationLoss, "what full imitation minimises, KL(t ‖ p)"],
    ["conditional_loss", "Conditional loss", "L_cond", write.nats, (view) => view.numbers.conditionalLoss, "what is left to learn about the wrong classes, KL(q ‖ r)"],
    ["transfer_cost", "Price", "D∞(q ‖ r)", write.nats, (view) => view.numbers.transferCost, "the rise in log-odds that pays for learning all of it (theorem 2)"],
    ["min_confidence", "Least confidence", "a_min", write.probability, (view) => view.numbers.minConfidence, "the confidence after that rise, at p*"],
    ["frontier_value", "Left at budget B", "V(B)", write.nats, (view) => view.best.value, "the least conditional loss for the chosen rise B"],
    ["compensation", "Compensation", "ℓ", write.probability, (view) => view.numbers.compensation, "push of the safe part on the correct class"],
    ["retention", "Retention", "u·d / ‖u‖²", write.share, (view) => view.numbers.retention, "share of conditional descent that the projection keeps (theorem 3)"],
    ["retention_bound", "Its bound", "γ", write.share, (view) => view.bound, "no prediction of as many classes keeps less"],
    ["update_cosine", "Update cosine", "cos(g, v)", write.probability, (view) => view.numbers.updateCosine, "how well the step serves both goals (theorem 4)"],
    ["safe_imitation", "Safe imitation", "‖Π(p − t)‖", write.probability, (view) => lengthOf(view.safeImitation), "what protection leaves of full imitation: nothing where it is blocked"],
  ];
  const COLUMNS = [
    ["p", "student", (view) => view.state.student], ["t", "teacher", (view) => view.state.teacher],
    ["s", "label", (view) => view.state.labels],
    ["r", "student's relations", (view) => view.wide(view.pair.student.logConditional)],
    ["q", "teacher's relations", (view) => view.wide(view.pair.teacher.logConditional)],
    ["M", "margin", (view) => theory.margins(view.studentLogits, view.state.labels).map((value) => (Number.isFinite(value) ? value : null))],
    ["h", "label direction", (view) => view.step.label], ["u", "conditional direction", (view) => view.step.conditional],
    ["d", "safe part", (view) => view.step.safe], ["v", "update", (view) => view.step.update],
    ["λ", "clipped mass", (view) => view.step.clippedMass], ["p*", "exact transfer", (view) => theory.exp(theory.transferEndpoint(view.pair))],
  ];

  const symbol = (text) => {
    const [base, below] = text.split("_");
    return html("span", { class: "symbol" }, base, below && html("sub", {}, below));
  };

  function numbersTable(body, view) {
    body.replaceChildren(...NUMBERS.map(([key, title, sign, format, value, meaning]) => {
      const found = value(view);
      return html("tr", {}, html("th", { scope: "row" }, title, sign && " ", sign && symbol(sign)), html("td", {}, html("data", { value: String(found), "data-name": key }, format(found))), html("td", { class: "text" }, meaning));
    }));
  }

  function classesTable(table, view) {
    const head = COLUMNS.map(([sign, meaning]) => html("th", { scope: "col" }, symbol(sign), html("span", { class: "meaning" }, meaning)));
    table.tHead.replaceChildren(html("tr", {}, html("th", { scope: "col", class: "text" }, "Class"), head));
    const columns = COLUMNS.map(([sign, , values]) => [sign, values(view)]);
    table.tBodies[0].replaceChildren(...view.state.labels.map((share, j) => html("tr", {}, html("th", { scope: "row" }, `class ${j + 1}`, share > 0 && " (correct)"),
      columns.map(([sign, values]) => html("td", {}, values[j] === null ? "" : html("data", { value: String(values[j]), "data-name": `${sign}.${j}` }, signed(values[j])))))));
  }

  function verdict(element, view) {
    const { numbers, state } = view, several = theory.correctClasses(state.labels).length > 1;
    const nothing = numbers.conditionalLoss < 1e-6;
    const first = numbers.blocked
      ? [html("span", { class: "verdict-blocked" }, "Blocked."), " No prediction that keeps every margin is closer to this teacher: imitation must give something back."]
      : [html("span", { class: "verdict-open" }, "Not blocked."), " The student can still come closer to this teacher and keep every margin."];
    const second = nothing
      ? "The student's relations among the wrong classes are the teacher's: there is nothing left to learn from it but confidence."
      : `${write.nats(numbers.conditionalLoss)} nats are left to learn about the wrong classes. All of it can be had for a rise of ${write.nats(numbers.transferCost)} nats in log-odds, from confidence ${write.probability(numbers.confidence)} to ${write.probability(numbers.minConfidence)}, with no margin lowered.`;
    const third = several ? "With two correct classes the promise of a step is: no margin ends lower than after the step of the mixed label alone." : `The next protected step keeps ${write.share(numbers.retention)} of the teacher's signal (never below ${write.share(view.bound)}).`;
    element.replaceChildren(html("p", {}, first), html("p", {}, second), html("p", {}, third));
  }

  return { classesTable, numbersTable, verdict };
})();
