"use strict";
// Load the page again after a while, unless somebody is typing, or has gone somewhere on it with the keyboard.
(function () {
  const seconds = Number(document.documentElement.dataset.refresh);
  if (!seconds) return;
  const reload = () => {
    if (document.querySelector(":focus-visible")) setTimeout(reload, 1000);
    else location.reload();
  };
  setTimeout(reload, seconds * 1000);
})();
// Inside of Airflow's frame: follow its theme, and let links to its own pages leave the frame.
(function () {
  if (window.parent === window) return;
  let airflow;
  try {
    airflow = window.parent.document;
  } catch {
    return;
  }
  const root = document.documentElement;
  root.classList.add("framed");
  const follow = () => {
    root.dataset.theme = airflow.documentElement.classList.contains("dark") ? "dark" : "light";
  };
  follow();
  new MutationObserver(follow).observe(airflow.documentElement, { attributes: true, attributeFilter: ["class"] });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-airflow]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    // The frame may not navigate the page around it; a link of that page may.
    const outer = airflow.createElement("a");
    outer.href = link.href;
    airflow.body.append(outer);
    outer.click();
    outer.remove();
  });
})();
