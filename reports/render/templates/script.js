// Filter and sort the table of verdicts. Without this script all rows are visible.
(() => {
  const form = document.querySelector(".filters");
  const table = document.querySelector("table.verdicts");
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const text = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));

  function apply() {
    const words = form.elements.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const approach = form.elements.approach.value;
    const boxes = Array.from(form.querySelectorAll("[name=kind]"));
    const kinds = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    let shown = 0;
    for (const row of rows) {
      const fits = kinds.has(row.dataset.kind) && (!approach || row.dataset.approach === approach)
        && words.every((word) => text.get(row).includes(word));
      row.hidden = !fits;
      shown += fits;
    }
    form.querySelector("output").textContent = `${shown} of ${rows.length}`;
  }

  function sort(index, heading) {
    const down = heading.getAttribute("aria-sort") === "ascending";
    const numeric = "numeric" in heading.dataset;
    const key = (row) => row.cells[index].dataset.order ?? row.cells[index].textContent.trim();
    const number = (value) => { const n = parseFloat(value.replace(/,/g, "")); return Number.isNaN(n) ? -1 : n; };
    const compare = (a, b) => numeric || row0Ordered(index) ? number(key(a)) - number(key(b)) : key(a).localeCompare(key(b));
    rows.sort((a, b) => (down ? -compare(a, b) : compare(a, b)));
    body.append(...rows);
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  }
  const row0Ordered = (index) => rows.length > 0 && "order" in rows[0].cells[index].dataset;

  Array.from(table.tHead.rows[0].cells).forEach((heading, index) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => sort(index, heading));
  });
  form.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(apply));
  document.addEventListener("click", (event) => {
    const cell = event.target.closest("a[data-search]");
    if (cell) {
      form.reset();
      form.elements.search.value = cell.dataset.search;
      form.elements.approach.value = cell.dataset.approach;
    }
    const link = event.target.closest("a[href^='#verdict-']");
    if (link) {
      form.reset();
      const details = document.querySelector(`${link.getAttribute("href")} details`);
      if (details) details.open = true;
    }
    if (cell || link) apply();
  });
  // Unfold all details, since paper cannot.
  window.addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  });
  apply();
})();
