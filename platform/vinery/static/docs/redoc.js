// Shows the OpenAPI document of the page in Redoc. Without its search, which needs a worker that
// the content security policy forbids.

// Redoc's menu has a logo of its maker, on another server. This page loads nothing from there.
const setAttribute = Element.prototype.setAttribute;
Element.prototype.setAttribute = function (name, value) {
  const isElsewhere = this instanceof HTMLImageElement && name === "src" && /^https?:/.test(value);
  if (!isElsewhere) setAttribute.call(this, name, value);
};

const shown = document.getElementById("document");
Redoc.init(shown.dataset.url, { disableSearch: true, hideHostname: true, nativeScrollbars: true }, shown);
