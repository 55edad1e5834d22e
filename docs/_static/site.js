// The theme's two side columns get names, and boxes that scroll can be reached by keyboard.
function improveAccess() {
  for (const [column, name] of [[".sidebar-drawer", "Site"], [".toc-drawer", "On this page"]]) {
    document.querySelector(column)?.setAttribute("aria-label", name);
  }
  for (const box of document.querySelectorAll("pre, .table-wrapper, figure.drawn")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
}
document.addEventListener("DOMContentLoaded", improveAccess);
window.addEventListener("resize", improveAccess);
