// The dialog that shows one example, and the keys that walk through the others.
const dialog = (() => {
  "use strict";
  const { html, numbers } = tpkd;
  const element = document.getElementById("example");
  const content = document.getElementById("example-content");
  let context = null;
  let current = -1;

  const pictureOf = (record, value) => {
    if (record.kind === "text") return html("blockquote", { class: "whole-text", dir: "auto", tabindex: 0 }, value ?? "");
    if (record.kind === "none") return null;
    return typeof value === "string" ? html("img", { class: "large", src: value, alt: "" }) : html("p", { class: "no-picture" }, "This image could not be decoded.");
  };
  const figure = (title, note, ...children) => html("figure", { class: "card" }, html("figcaption", {}, title), children, note ? html("p", { class: "note" }, note) : null);

  // A long name breaks after an underscore rather than within a word.
  const breakable = (name) => name.split(/(?<=_)/).flatMap((part) => [part, html("wbr")]);
  const answersTable = (at, example) => {
    const { record, shared, students, state } = context;
    const right = (answer) => answer === shared.label[at];
    const line = (who, answer, margin, chosen) => html("tr", { class: chosen ? "strong" : null }, html("th", { scope: "row" }, html("bdi", {}, who)),
      html("td", { class: "text" }, html("span", { class: right(answer) ? "verdict" : "verdict wrong" }, right(answer) ? "✓\u00a0" : "✗\u00a0", html("bdi", {}, breakable(record.class_names[answer])))),
      html("td", {}, html("data", { value: margin }, numbers.signedNats(margin))));
    return html("table", { class: "answers" }, html("caption", { class: "hidden-label" }, "Answers"), html("thead", {}, html("tr", {}, ["", "answer", "margin"].map((text) => html("th", { scope: "col", class: text === "answer" ? "text" : null }, text)))),
      html("tbody", {}, line("teacher", shared.teacher_answer[at], example.teacher_margin, false),
        record.students.map((student, index) => (students[index] ? line(student.name, students[index].answer[at], students[index].margin[at], index === Number(state.student)) : null))));
  };

  const draw = (at, example, value) => {
    const { record, shared, own, state } = context;
    const names = record.class_names;
    const id = examples.idOf(shared, at);
    document.getElementById("example-title").replaceChildren(html("bdi", {}, names[shared.label[at]]), html("span", { class: "id" }, " · ", html("bdi", {}, id)));
    const order = gallery.orderOf(at);
    document.getElementById("place").textContent = order < 0 ? "not in this selection" : `${numbers.count(order + 1)} of ${numbers.count(gallery.size())}`;
    document.getElementById("previous").disabled = order <= 0;
    document.getElementById("next").disabled = order < 0 || order >= gallery.size() - 1;
    document.getElementById("permalink").href = context.link({ ...context.defaults, student: state.student, id });
    content.replaceChildren(
      html("div", { class: "sample" }, pictureOf(record, value), answersTable(at, example), figure("Nearest class pairs", "Margins of the label over a class; below zero the class is ahead.", detail.nearest(example, names))),
      html("div", { class: "story" },
        html("p", { class: own.blocked[at] ? "lead blocked" : "lead" }, detail.sentence(example, own.blocked[at] === 1)),
        detail.facts(example),
        figure("Two distributions", "The marked class sets the price: the student underestimates it most.", detail.distributions(example, names)),
        html("div", { class: "grid" },
          figure("What is left at each price", "The least conditional loss that a rise of the label's log-odds can buy while every margin is kept.", detail.frontierChart(example)),
          figure("The protected step", "Pale: the push that conditional knowledge asks for. Solid: what is left of it when no class may be raised by more than the label.", detail.stepChart(example, names))),
        detail.numbersTable(example, names)));
  };
  const open = async (at, next) => {
    context = next;
    current = at;
    const { record, state } = context;
    const rows = record.chunk_rows;
    const chunk = Math.floor(at / rows);
    const [numbersOf, inputs] = await Promise.all([tpkdAudit.load(`details-${state.student}/${chunk}`), tpkdAudit.load(`inputs/${chunk}`)]);
    if (current !== at) return;
    const count = Math.min(rows, context.shared.label.length - chunk * rows);
    draw(at, detail.read(numbersOf, at % rows, count), inputs.shown[at % rows]);
    if (!element.open) {
      element.showModal();
      document.getElementById(document.getElementById("next").disabled ? "close" : "next").focus();
    }
    element.scrollTop = 0;
    element.dataset.at = at;
  };
  const close = () => {
    current = -1;
    if (element.open) element.close();
  };
  const step = (by) => {
    const order = gallery.orderOf(current) + by;
    if (gallery.orderOf(current) < 0 || order < 0 || order >= gallery.size()) return;
    context.go({ ...context.state, id: examples.idOf(context.shared, gallery.at(order)) });
  };
  document.getElementById("previous").addEventListener("click", () => step(-1));
  document.getElementById("next").addEventListener("click", () => step(1));
  document.getElementById("close").addEventListener("click", () => element.close());
  element.addEventListener("close", () => { if (current >= 0) { const at = current; context.closed(); if (gallery.orderOf(at) >= 0) gallery.focus(gallery.orderOf(at)); } });
  element.addEventListener("click", (event) => { if (event.target === element) element.close(); });
  element.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1, j: 1, k: -1 }[event.key];
    const inside = event.target.closest(".scroll, .whole-text");
    if (!by || event.altKey || event.ctrlKey || event.metaKey || (inside && event.key.startsWith("Arrow"))) return;
    event.preventDefault();
    step(by);
  });
  return { open, close };
})();
