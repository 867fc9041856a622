// Keeps the parts of a page with an id and `data-live` as the server has them. htmx fetches the page
// again when the stream of events says so. A page that is not seen has no stream, since a browser has
// few connections to a host.
"use strict";

function isInUse(part) {
  const selection = getSelection();
  const isSelected = !selection.isCollapsed && part.contains(selection.anchorNode);
  return isSelected || part.querySelector(":is(input, select, textarea):focus") !== null;
}

function follow() {
  const events = document.getElementById("follow").content.firstElementChild.cloneNode(true);
  const parts = [...document.querySelectorAll("[data-live]")].map((part) => `#${part.id}:innerHTML`);
  events.setAttribute("hx-select-oob", parts.join());
  document.body.append(events);
  htmx.process(events);
}

function leave() {
  if (document.getElementById("events")) htmx.swap("#events", "", { swapStyle: "delete" });
}

document.addEventListener("htmx:oobBeforeSwap", ({ detail }) => {
  const isSame = detail.fragment.innerHTML === detail.target.innerHTML;
  if (isSame || isInUse(detail.target)) detail.shouldSwap = false;
});
document.addEventListener("visibilitychange", () => (document.hidden ? leave() : follow()));
if (!document.hidden) follow();
