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

const shown = document.getElementById("document");
Redoc.init(shown.dataset.url, { disableSearch: true, hideHostname: true, nativeScrollbars: true }, shown);
