// The viewers of the API documents are dark where the console is; Redoc after a reload.
"use strict";

{
  const root = document.documentElement;
  const wish = matchMedia("(prefers-color-scheme: dark)");
  const show = () => root.classList.toggle("dark-mode", root.dataset.theme === "dark" || (root.dataset.theme === "auto" && wish.matches));
  show();
  wish.addEventListener("change", show);
  new MutationObserver(show).observe(root, { attributeFilter: ["data-theme"] });
}
