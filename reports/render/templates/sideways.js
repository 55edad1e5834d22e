"use strict";
// Label tables and charts that are wider than the page. Without this script only a shadow shows it.
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
