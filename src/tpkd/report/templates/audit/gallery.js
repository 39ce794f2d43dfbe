// A list of any length of which only the visible part exists.
const gallery = (() => {
  "use strict";
  const { html, numbers } = tpkd;
  const TALLEST = 15e6; // pixels; browsers draw nothing beyond a limit that is a little higher
  const list = document.getElementById("examples");
  const window_ = document.getElementById("visible");
  const SIZES = { image: [136, 214, 10], text: [330, 142, 12], none: [210, 104, 10] };
  let shown = { chosen: [], first: -1, last: -1 };
  let context = null;

  const columns = () => {
    const [width, , gap] = SIZES[context.record.kind];
    return Math.max(1, Math.floor((list.clientWidth + gap) / (width + gap)));
  };
  const limit = () => {
    const [, height, gap] = SIZES[context.record.kind];
    return Math.floor(TALLEST / (height + gap)) * columns();
  };
  const picture = (data, place, name) => {
    const value = data?.shown[place];
    if (context.record.kind === "text") return html("span", { class: "excerpt", dir: "auto" }, value ?? "");
    if (context.record.kind === "none") return null;
    const inside = typeof value === "string" ? html("img", { src: value, alt: "" }) : html("span", { class: "no-picture" }, data ? "no picture" : "");
    return html("span", { class: "picture" }, inside);
  };
  const card = (at, order) => {
    const { record, shared, own, state } = context;
    const rows = record.chunk_rows;
    const chunk = tpkdAudit.get(`inputs/${Math.floor(at / rows)}`);
    const label = record.class_names[shared.label[at]];
    const answer = record.class_names[own.answer[at]];
    const right = own.answer[at] === shared.label[at];
    const taught = shared.teacher_answer[at] === shared.label[at];
    const id = examples.idOf(shared, at);
    const [named, column, , kind] = examples.SORTS[state.sort === "row" ? "price" : state.sort];
    const value = (own[column] ?? shared[column])[at];
    const facts = [
      html("span", { class: own.blocked[at] ? "badge blocked" : "badge" }, own.blocked[at] ? "blocked" : "open"),
      html("span", { title: named }, html("span", { class: record.kind === "text" ? null : "hidden-label" }, `${named} `), html("data", { value }, numbers[kind](value))),
    ];
    const link = html("a", { class: "example", href: context.link({ ...state, id }), "data-at": at, "data-order": order },
      picture(chunk, at % rows, label),
      html("span", { class: "named" },
        html("bdi", { class: "label", title: label }, label),
        html("span", { class: right ? "verdict" : "verdict wrong" },
          right ? "✓ " : "✗ ", html("span", { class: "hidden-label" }, right ? "student right: " : "student answers "), html("bdi", {}, right ? "right" : answer)),
        taught ? null : html("span", { class: "verdict soft" }, "teacher: ", html("bdi", {}, record.class_names[shared.teacher_answer[at]]))),
      html("span", { class: "facts" }, facts));
    return html("li", { "aria-posinset": order + 1, "aria-setsize": shown.chosen.length }, link);
  };

  const draw = (force = false) => {
    if (!context || !list.clientWidth) return; // nothing to show, or another view is open
    const [, height, gap] = SIZES[context.record.kind];
    const across = columns();
    const total = Math.min(shown.chosen.length, limit());
    const lines = Math.ceil(total / across);
    list.style.height = `${Math.max(0, lines * (height + gap) - gap)}px`;
    const top = -list.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(top / (height + gap)) - 1) * across;
    const last = Math.min(total, Math.max(1, Math.ceil((top + window.innerHeight) / (height + gap)) + 1) * across);
    if (!force && first === shown.first && last === shown.last) return;
    Object.assign(shown, { first, last });
    const focused = document.activeElement?.dataset?.order;
    window_.style.setProperty("--across", across);
    window_.style.setProperty("--height", `${height}px`);
    window_.style.setProperty("--gap", `${gap}px`);
    window_.style.transform = `translateY(${(first / across) * (height + gap)}px)`;
    const places = shown.chosen.slice(first, last);
    window_.replaceChildren(...places.map((at, offset) => card(at, first + offset)));
    if (focused !== undefined) window_.querySelector(`[data-order="${Number(focused)}"]`)?.focus({ preventScroll: true });
    fetchVisible(places);
  };
  // Pictures come later than the cards, once scrolling rests: what only flew by is never loaded.
  let rest = null;
  const fetchVisible = (places) => {
    clearTimeout(rest);
    const rows = context.record.chunk_rows;
    const missing = new Set(places.map((at) => `inputs/${Math.floor(at / rows)}`).filter((name) => !tpkdAudit.get(name)));
    if (context.record.kind === "none" || !missing.size) return;
    const load = () => Promise.all([...missing].map(tpkdAudit.load)).then(() => draw(true), context.fail);
    rest = setTimeout(load, moving ? 90 : 0);
  };
  let asked = false;
  let moving = false;
  const later = () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; moving = true; draw(); moving = false; });
  };
  const show = (chosen, next) => {
    context = next;
    list.dataset.kind = next.record.kind;
    shown = { chosen, first: -1, last: -1 };
    draw(true);
    return Math.min(chosen.length, limit());
  };
  const focus = (order) => {
    const [, height, gap] = SIZES[context.record.kind];
    const total = Math.min(shown.chosen.length, limit());
    const wanted = Math.max(0, Math.min(total - 1, order));
    const top = list.getBoundingClientRect().top + window.scrollY + Math.floor(wanted / columns()) * (height + gap);
    const room = 16 + (document.querySelector(".toolbar")?.getBoundingClientRect().height ?? 0);
    if (top - room < window.scrollY) window.scrollTo({ top: top - room });
    if (top + height + 16 > window.scrollY + window.innerHeight) window.scrollTo({ top: top + height + 16 - window.innerHeight });
    draw();
    window_.querySelector(`[data-order="${wanted}"]`)?.focus({ preventScroll: true });
  };
  list.addEventListener("keydown", (event) => {
    const order = Number(event.target.dataset?.order);
    const page = columns() * 3;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns(), ArrowUp: -columns(), PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (Number.isNaN(order) || !(event.key in steps) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    focus(order + steps[event.key]);
  });
  window.addEventListener("scroll", later, { passive: true });
  let width = 0;
  new ResizeObserver(() => {
    if (list.clientWidth === width) return;
    width = list.clientWidth;
    shown.first = -1;
    later();
  }).observe(list);
  return { show, focus, orderOf: (at) => shown.chosen.indexOf(at), at: (order) => shown.chosen[order], size: () => shown.chosen.length };
})();
