// Sorting is an extra: every table is complete and in a useful order without it.
const makeSortable = (table) => {
  const body = table.tBodies[0];
  const headers = [...table.tHead.rows[0].cells];
  const key = (row, column) => {
    const cell = row.cells[column];
    if (cell.dataset.sort !== undefined) return cell.dataset.sort === "" ? null : Number(cell.dataset.sort);
    const data = cell.childElementCount === 1 ? cell.querySelector(":scope > data, :scope > a > data") : null;
    if (data) return data.value === "" ? null : Number(data.value);
    const text = cell.textContent.trim();
    if (text === "") return null;
    return Number.isNaN(Number(text)) ? text : Number(text);
  };
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  headers.forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const first = header.classList.contains("text") ? "ascending" : "descending";
      const other = first === "ascending" ? "descending" : "ascending";
      const direction = header.getAttribute("aria-sort") === first ? other : first;
      headers.forEach((each) => each.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", direction);
      const sign = direction === "ascending" ? 1 : -1;
      const rows = [...body.rows].map((row) => [key(row, column), row]);
      // What has no value stays last in either direction.
      rows.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : sign * compare(a, b)));
      body.append(...rows.map(([, row]) => row));
    });
  });
};
document.querySelectorAll("table.sortable").forEach(makeSortable);
