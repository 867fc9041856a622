// The command palette and the switch of what all pages show: a dialog with a field and what the server
// finds. The keys / and Ctrl K open the palette; arrows move, Enter opens, Escape closes.
"use strict";

{
  const palette = document.getElementById("palette");
  const words = document.getElementById("words");
  const found = document.getElementById("found");
  const PAUSE_MS = 150;
  let address = "";
  let asked = new AbortController();
  let timer = 0;

  async function find() {
    asked.abort();
    asked = new AbortController();
    const url = new URL(address, location.href);
    url.searchParams.set("q", words.value);
    try {
      const signal = AbortSignal.any([asked.signal, AbortSignal.timeout(10000)]);
      const response = await fetch(url, { headers: { "X-Live": "1" }, redirect: "error", signal });
      if (!response.ok) throw new Error(`status ${response.status}`);
      found.innerHTML = await response.text();
    } catch (error) {
      if (error.name !== "AbortError") found.textContent = "The server does not answer. Try again.";
    }
  }

  function openPalette(link) {
    address = link.getAttribute("href");
    palette.querySelector("label").textContent = link.dataset.finds;
    words.value = "";
    found.replaceChildren();
    if (!palette.open) palette.showModal();
    words.focus();
    find();
  }

  function move(step) {
    const all = [words, ...found.querySelectorAll("a, li button")];
    const next = all.indexOf(document.activeElement) + step;
    all.at(next % all.length).focus();
  }

  const isTyping = (element) => element.matches("input, select, textarea, [contenteditable]");

  document.addEventListener("keydown", (event) => {
    const isPalette = event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey);
    const isSlash = event.key === "/" && !event.ctrlKey && !event.metaKey && !isTyping(event.target);
    if (!(isPalette || isSlash) || (document.querySelector("dialog[open]") && !palette.open)) return;
    event.preventDefault();
    openPalette(document.querySelector("a[data-finds]:not(.scope)"));
  });

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-finds]");
    if (event.target === palette) palette.close();
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    openPalette(link);
  });

  words.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(find, PAUSE_MS);
  });

  palette.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      move(event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key === "Escape") {
      palette.close(); // a field of a search would be emptied first
    } else if (event.key === "Enter" && event.target === words) {
      event.preventDefault();
      clearTimeout(timer);
      find().then(() => found.querySelector("a, li button")?.click()); // of these words
    } else if (event.key.length === 1 && event.target !== words && !event.ctrlKey && !event.metaKey) {
      words.focus(); // the letter is written there
    }
  });
}
