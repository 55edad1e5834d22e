// Filter the table of approaches. Without this script all rows are visible, and links filter.
(() => {
  const form = document.querySelector(".filters");
  const rows = Array.from(document.querySelectorAll("#main tbody tr"));

  function apply() {
    const words = form.elements.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const state = form.elements.state.value;
    const keras = form.elements.keras.value;
    let shown = 0;
    for (const row of rows) {
      const cells = Array.from(row.querySelectorAll("td"));
      for (const cell of cells) cell.classList.toggle("faded", !fits(cell));
      const name = row.querySelector("th").textContent.toLowerCase();
      row.hidden = !words.every((word) => name.includes(word)) || !cells.some(fits);
      shown += !row.hidden;
    }
    form.querySelector("output").textContent = `${shown} of ${rows.length}`;

    function fits(cell) {
      return (!state || cell.dataset.state === state) && (!keras || cell.dataset.keras === keras);
    }
  }

  form.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(apply));
  apply();
})();
