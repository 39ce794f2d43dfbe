// The live page: it loads scripts with data from beside it, the curves only of cells that are shown, and again when new.
const tpkdWatch = (() => {
  "use strict";
  const { html } = tpkd;
  const ORDER = ["failed", "running", "started", "stopped", "not finished", "finished", "waiting"];
  const FIRST = ["tpkd", "kd", "ce"];
  const SHOWN_AT_FIRST = 6, MOST_SHOWN = 20, ROWS = 200, LATE = 5;
  const find = (selector) => document.querySelector(selector);
  const known = new Map(); // number of a cell -> its curves
  let settings = null, record = null, chosen = null, view = "together", timer = null, failures = 0, waiting = false, isChosenByHand = false, drawn = null;

  function load(name, version) {
    const script = html("script", { src: `${settings.folder}/${name}?v=${version}` });
    script.addEventListener("load", () => script.remove());
    script.addEventListener("error", () => { script.remove(); if (name === settings.index) missed(); });
    document.head.append(script);
  }

  const shownCells = () => record.cells.filter((cell) => chosen.has(cell.name)).slice(0, MOST_SHOWN);
  const isNew = (cell) => cell.version > 0 && known.get(cell.number)?.version !== cell.version;
  const byState = (a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || a.name.localeCompare(b.name, "en", { numeric: true });
  const stateChip = (cell) => html("span", { class: `state-chip state-${cell.state.replace(" ", "-")}` }, cell.state);

  // What is drawn before anybody has chosen: one cell of each objective, those that run first.
  function firstCells() {
    const objective = (cell) => cell.name.replace(/-\d+$/, "");
    const place = (cell) => (FIRST.includes(objective(cell)) ? FIRST.indexOf(objective(cell)) : FIRST.length);
    const sorted = record.cells.filter((cell) => cell.version > 0).sort((a, b) => place(a) - place(b) || byState(a, b));
    const first = sorted.filter((cell, index) => sorted.findIndex((other) => objective(other) === objective(cell)) === index);
    return first.slice(0, SHOWN_AT_FIRST).map((cell) => cell.name);
  }

  // What the address says: cells by their names, and the view.
  function readAddress() {
    const fields = new URLSearchParams(location.hash.slice(1));
    if (fields.get("view") === "apart") view = "apart";
    isChosenByHand = fields.has("cells");
    if (isChosenByHand) chosen = new Set(fields.getAll("cells"));
  }
  function writeAddress() {
    const fields = new URLSearchParams([...chosen].map((name) => ["cells", name]));
    fields.append("view", view);
    history.replaceState(null, "", `#${fields}`);
  }

  // A new index: choose cells at first, load curves that are new, and draw.
  function cells(found) {
    record = found;
    [failures, waiting] = [0, false];
    if (!chosen?.size && !isChosenByHand) chosen = new Set(firstCells());
    shownCells().filter(isNew).forEach((cell) => load(`curves-${cell.number}.js`, cell.version));
    draw();
    clearTimeout(timer);
    if (record.every !== null) timer = setTimeout(ask, 1000 * record.every);
  }
  function curves(found) {
    known.set(found.number, found);
    draw();
  }
  // A window that nobody sees asks for nothing.
  function ask() {
    if (document.hidden) { waiting = true; return; }
    load(settings.index, Date.now());
  }
  function missed() {
    failures += 1;
    drawState();
    clearTimeout(timer);
    timer = setTimeout(ask, 1000 * (record?.every ?? 2) * Math.min(failures, LATE));
  }

  function ago(seconds) {
    if (seconds < 60) return `${Math.max(0, Math.round(seconds))} s ago`;
    return seconds < 3600 ? `${Math.floor(seconds / 60)} min ago` : `${Math.floor(seconds / 3600)} h ago`;
  }

  function drawState() {
    const counts = ORDER.map((state) => [record?.cells.filter((cell) => cell.state === state).length, state]).filter(([count]) => count);
    find(".counts").textContent = record ? `${record.is_grid ? `${record.cells.length} cells: ` : ""}${counts.map(([count, state]) => (record.is_grid ? `${count} ${state}` : state)).join(", ")}.` : "";
    const age = find(".age");
    age.classList.toggle("late", failures > 0);
    if (failures) age.textContent = "No answer: nobody may be watching any more.";
    else if (record?.every === null) age.textContent = `As of ${new Date(1000 * record.written).toLocaleString()}; the watch has ended.`;
    else age.textContent = "Reloads by itself.";
  }

  function drawPictures() {
    const shown = shownCells().map((cell, place) => ({ cell, place, curves: known.get(cell.number) }));
    const ready = shown.filter(({ curves: found }) => found);
    const now = JSON.stringify([view, record.cells.length, ready.map(({ cell, curves: found }) => [cell.name, cell.state, cell.version, found.version])]);
    if (now === drawn) return; // what has not changed stays as it is
    drawn = now;
    const text = record.cells.some((cell) => cell.version) ? "Choose cells in the table below." : "No run has written anything yet.";
    find("#pictures").replaceChildren(...(ready.length ? (view === "apart" ? tpkdCurves.apart(record.panels, ready, stateChip) : tpkdCurves.together(record.panels, ready)).flat().filter(Boolean) : [html("p", { class: "empty" }, text)]));
  }

  function drawTable() {
    const words = find(".filter").value.trim().toLowerCase();
    const matching = [...record.cells].sort(byState).filter((cell) => cell.name.toLowerCase().includes(words));
    const seen = record.panels.filter((panel) => record.cells.some((cell) => cell.latest[panel.name] !== null));
    const focused = document.activeElement?.dataset?.cell;
    find("#cells thead").replaceChildren(html("tr", {}, html("th", { scope: "col", class: "text" }, "Cell"), html("th", { scope: "col", class: "text" }, "State"), html("th", { scope: "col" }, "Step"), seen.map((panel) => html("th", { scope: "col" }, panel.title)), html("th", { scope: "col" }, "Last line")));
    find("#cells tbody").replaceChildren(...matching.slice(0, ROWS).map((cell) => {
      const box = html("input", { type: "checkbox", "data-cell": cell.name, disabled: cell.version === 0, onchange: (event) => choose(cell.name, event.target.checked) });
      box.checked = chosen.has(cell.name);
      const steps = cell.num_steps ? `${tpkd.numbers.count(cell.step)} of ${tpkd.numbers.count(cell.num_steps)}` : tpkd.numbers.count(cell.step);
      return html("tr", {}, html("th", { scope: "row" }, html("label", {}, box, html("bdi", {}, cell.name))), html("td", { class: "text" }, stateChip(cell), cell.problem && html("span", { class: "problem" }, cell.problem)), html("td", {}, steps),
        seen.map((panel) => html("td", {}, cell.latest[panel.name] === null ? "" : html("data", { value: String(cell.latest[panel.name]), "data-name": `${cell.name}/${panel.name}` }, tpkdCurves.formats[panel.unit].written(cell.latest[panel.name])))),
        html("td", {}, cell.changed === null ? "" : ago(record.written - cell.changed), cell.unreadable > 0 && html("span", { class: "meaning" }, `${cell.unreadable} lines not readable`)));
    }));
    if (focused !== undefined) [...document.querySelectorAll("#cells input")].find((box) => box.dataset.cell === focused)?.focus({ preventScroll: true });
    const cut = matching.length > ROWS ? ` The first ${ROWS} of ${tpkd.numbers.count(matching.length)} are listed.` : "";
    find(".hint").textContent = `Ticked cells are drawn, up to ${MOST_SHOWN}.${cut}`;
    find("#cells").hidden = !record.is_grid;
    document.querySelector(".controls").hidden = !record.is_grid;
  }

  function draw() {
    if (!record) return;
    drawState();
    drawPictures();
    drawTable();
    for (const button of document.querySelectorAll("[data-view]")) button.setAttribute("aria-pressed", String(button.dataset.view === view));
  }

  function choose(name, wanted) {
    isChosenByHand = true;
    if (wanted) chosen.add(name);
    else chosen.delete(name);
    writeAddress();
    shownCells().filter(isNew).forEach((cell) => load(`curves-${cell.number}.js`, cell.version));
    draw();
  }

  function start(given) {
    settings = given;
    readAddress();
    find(".filter").addEventListener("input", () => record && drawTable());
    find(".controls").addEventListener("submit", (event) => event.preventDefault());
    for (const button of document.querySelectorAll("[data-view]")) {
      button.addEventListener("click", () => {
        view = button.dataset.view;
        if (chosen) writeAddress();
        draw();
      });
    }
    document.addEventListener("visibilitychange", () => { if (!document.hidden && waiting) { waiting = false; ask(); } });
  }

  return { cells, curves, start };
})();
