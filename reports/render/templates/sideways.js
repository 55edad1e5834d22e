"use strict";
// Says which tables and charts are wider than their place; without it only a shadow at their edge does.
(() => {
  function mark() {
    for (const box of document.querySelectorAll(".wide, .chart")) {
      box.classList.toggle("more", box.scrollWidth > box.clientWidth + 1);
    }
  }
  window.addEventListener("resize", mark);
  document.addEventListener("toggle", mark, true);
  mark();
})();
