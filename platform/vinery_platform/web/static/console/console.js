// What all pages share: the switch of the theme, and buttons that copy.
"use strict";

const themes = ["auto", "light", "dark"];
for (const button of document.querySelectorAll("[data-theme-switch]")) {
  const words = button.querySelector("span");
  const show = () => { words.textContent = `Theme: ${document.documentElement.dataset.theme}`; };
  button.hidden = false;
  button.addEventListener("click", () => {
    const root = document.documentElement.dataset;
    root.theme = themes[(themes.indexOf(root.theme) + 1) % themes.length];
    localStorage.setItem("theme", root.theme);
    show();
  });
  show();
}

// Copies what a button names by `data-copy`, the id of an element. Without scripts the text can
// still be selected by a click.

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copy);
  const usual = button.textContent;
  try {
    await navigator.clipboard.writeText(source.textContent.trim());
    button.textContent = "Copied";
  } catch {
    // Browsers have a clipboard for scripts over TLS and on this machine only.
    getSelection().selectAllChildren(source);
    button.textContent = "Selected: press Ctrl+C";
  }
  setTimeout(() => { button.textContent = usual; }, 2500);
});
