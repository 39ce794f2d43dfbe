// The state of the page is its address: every view, filter and example has a link.
(() => {
  "use strict";
  const { html, numbers } = tpkd;
  const record = tpkdAudit.get("record");
  const notice = document.getElementById("problem");
  const fail = (error) => { notice.hidden = false; notice.textContent = error.message; };
  if (!record) {
    fail(new Error("data/record.js cannot be read: the page needs the folder data beside it"));
    return;
  }
  const last = record.students.length - 1;
  const DEFAULTS = { view: "gallery", student: String(last), answers: "", blocked: "", label: "", answer: "", before: "0", flip: "", sort: "price", order: "down", id: "" };
  const KNOWN = {
    view: ["gallery", "flips"], blocked: ["", "yes", "no"], order: ["up", "down"], answers: Object.keys(examples.ANSWERS), flip: Object.keys(examples.FLIPS),
    sort: Object.keys(examples.SORTS), student: record.students.map((_, index) => String(index)), before: record.students.map((_, index) => String(index)),
    label: ["", ...record.class_names.map((_, index) => String(index))], answer: ["", ...record.class_names.map((_, index) => String(index))],
  };
  const read = () => {
    const given = new URLSearchParams(location.hash.slice(1));
    const state = { ...DEFAULTS };
    for (const key of Object.keys(DEFAULTS)) {
      const value = given.get(key);
      if (value !== null && (key === "id" || KNOWN[key].includes(value))) state[key] = value;
    }
    return state;
  };
  const link = (state) => {
    const given = Object.entries(state).filter(([key, value]) => value !== DEFAULTS[key]);
    return `#${new URLSearchParams(given)}`;
  };
  const go = (next) => { history.replaceState(null, "", link(next)); refresh(); };
  const controls = [...document.querySelectorAll("[data-state]")];
  const options = (key, entries) => document.querySelectorAll(`select[data-state="${key}"]`).forEach((select) =>
    select.replaceChildren(...entries.map(([value, text]) => html("option", { value }, text))));
  const named = record.class_names.map((name, index) => [String(index), name.length > 60 ? `${name.slice(0, 59)}…` : name]);
  options("student", record.students.map((student, index) => [String(index), student.name]));
  options("before", record.students.map((student, index) => [String(index), student.name]));
  options("answers", Object.entries(examples.ANSWERS).map(([value, [text]]) => [value, text]));
  options("flip", Object.entries(examples.FLIPS).map(([value, [text]]) => [value, text]));
  options("sort", Object.entries(examples.SORTS).map(([value, [text]]) => [value, text]));
  options("blocked", [["", "blocked or open"], ["yes", "blocked"], ["no", "open"]]);
  options("label", [["", "any label"], ...named]);
  options("answer", [["", "any answer"], ...named]);

  for (const control of controls) {
    if (control.tagName !== "SELECT") continue;
    control.addEventListener("change", () => {
      const next = { ...read(), [control.dataset.state]: control.value, id: "" };
      if (control.dataset.state === "sort") next.order = examples.SORTS[control.value][2] ? "down" : "up";
      go(next);
    });
  }
  document.getElementById("order").addEventListener("click", () => go({ ...read(), order: read().order === "down" ? "up" : "down" }));
  document.getElementById("reset").addEventListener("click", () => go({ ...DEFAULTS, student: read().student, before: read().before }));

  const tiles = (current) => {
    const number = Number(current.student);
    const student = record.students[number];
    const path = `students.${number}`;
    const data = (key, kind, value = student[key]) => html("data", { value: student[key], "data-path": `${path}.${key}` }, numbers[kind](value));
    const share = (key) => data(key, "share", student[key] / record.examples);
    const filter = (change) => link({ ...DEFAULTS, student: current.student, before: current.before, ...change });
    const tile = (value, text, more, change) => html("a", { class: "tile", href: filter(change), "aria-current": !change.sort && Object.entries(change).every(([key, wanted]) => current[key] === wanted) ? "true" : null },
      html("span", { class: "value" }, value), html("span", { class: "what" }, text, html("span", {}, more)));
    document.getElementById("tiles").replaceChildren(
      tile(share("right"), "right answers", ["teacher: ", html("data", { value: record.teacher_right, "data-path": "teacher_right" }, numbers.share(record.teacher_right / record.examples))], { answers: "right" }),
      tile(share("blocked"), "blocked for full imitation", [data("blocked", "count"), " examples"], { blocked: "yes" }),
      tile(data("teacher_only", "count"), "teacher right, student wrong", [data("student_only", "count"), " the other way round"], { answers: "teacher-only" }),
      tile(html("data", { value: record.examples - student.same_answer }, numbers.count(record.examples - student.same_answer)), "answers differ", [share("same_answer"), " are the same"], { answers: "different" }),
      tile(data("transfer_cost", "nats"), "nats: mean price", [data("conditional_loss", "nats"), " nats of conditional loss"], { sort: "price" }));
  };

  if (window.matchMedia("(max-width: 480px)").matches) document.getElementById("filters").open = false;
  let turn = 0;
  const update = async () => {
    turn += 1;
    const mine = turn;
    const current = read();
    for (const control of controls) if (control.tagName === "SELECT") control.value = current[control.dataset.state];
    document.getElementById("order").textContent = current.order === "down" ? "largest first ↓" : "smallest first ↑";
    document.querySelectorAll("[data-view]").forEach((tab) => {
      tab.href = link({ ...current, id: "", view: tab.dataset.view });
      tab.setAttribute("aria-current", String(tab.dataset.view === current.view));
    });
    document.getElementById("gallery").hidden = current.view !== "gallery";
    document.getElementById("flips").hidden = current.view !== "flips";
    const wanted = record.students.map((_, index) => index).filter((index) => String(index) === current.student || (current.flip && String(index) === current.before) || current.id);
    const [shared, ...loaded] = await Promise.all([tpkdAudit.load("index"), ...wanted.map((index) => tpkdAudit.load(`index-${index}`))]);
    if (mine !== turn) return;
    const students = record.students.map((_, index) => loaded[wanted.indexOf(index)] ?? null);
    const own = students[Number(current.student)];
    const before = current.flip ? students[Number(current.before)] : null;
    const closed = () => go({ ...read(), id: "" });
    const context = { record, shared, own, students, state: current, defaults: DEFAULTS, link, go, fail, closed };
    tiles(current);
    if (current.view === "flips") flips.draw(context);
    const signature = JSON.stringify({ ...current, id: "" });
    if (signature !== update.signature) {
      const chosen = examples.sort(examples.choose(current, shared, own, before), current, shared, own);
      const shown = gallery.show(chosen, context);
      const cut = shown < chosen.length ? `; the first ${numbers.count(shown)} are listed, a filter shows others` : "";
      document.getElementById("count").textContent = `${numbers.count(chosen.length)} of ${numbers.count(record.examples)} examples by ${examples.SORTS[current.sort][0]}${cut}`;
      document.getElementById("empty").hidden = chosen.length > 0;
      update.signature = signature;
    }
    if (!current.id) {
      dialog.close();
      return;
    }
    const at = examples.placeOf(shared, current.id);
    if (at === undefined) fail(new Error(`No example is called ${JSON.stringify(current.id)}.`));
    else await dialog.open(at, context);
  };
  const refresh = () => update().catch(fail);
  document.getElementById("go").addEventListener("submit", (event) => {
    event.preventDefault();
    const id = document.getElementById("go-id").value.trim();
    notice.hidden = true;
    if (id) location.hash = link({ ...read(), id });
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.closest("input, select, textarea, dialog")) return;
    event.preventDefault();
    document.getElementById("go-id").focus();
  });
  window.addEventListener("hashchange", refresh);
  refresh();
})();
