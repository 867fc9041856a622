// Shows the OpenAPI document of the page in Redoc. Without its search, which needs a worker that
// the content security policy forbids.

// Redoc's menu has a logo of its maker, on another server. This page loads nothing from there.
const isElsewhere = (value) => /^https?:/.test(value);
const image = HTMLImageElement.prototype;
const source = Object.getOwnPropertyDescriptor(image, "src");
Object.defineProperty(image, "src", {
  ...source,
  set(value) {
    if (!isElsewhere(value)) source.set.call(this, value);
  },
});
image.setAttribute = function (name, value) {
  if (name !== "src" || !isElsewhere(value)) Element.prototype.setAttribute.call(this, name, value);
};

const DARK = {
  colors: { primary: { main: "#c8a6f5" }, text: { primary: "#ece9f1", secondary: "#b3adbd" }, border: { dark: "#4a4456", light: "#35303f" } },
  schema: { nestedBackground: "#1c1a21", typeNameColor: "#b3adbd", typeTitleColor: "#b3adbd" },
  sidebar: { backgroundColor: "#1c1a21", textColor: "#ece9f1" },
  rightPanel: { backgroundColor: "#1c1a21" },
  typography: { code: { backgroundColor: "#2a2632", color: "#ff9d9d" }, links: { color: "#c8a6f5" } },
};
const theme = document.documentElement.classList.contains("dark-mode") ? DARK : {};
const shown = document.getElementById("document");
Redoc.init(shown.dataset.url, { disableSearch: true, hideHostname: true, nativeScrollbars: true, theme }, shown);
