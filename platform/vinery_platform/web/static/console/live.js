// Keeps the parts of a page with an id and `data-live` as the server has them. htmx fetches the page
// again when the stream of events says so. A page that is not seen has no stream, since a browser has
// few connections to a host. Other scripts may change what the server sent, and hear of new content by
// the event `replaced`. A page that could not be fetched for a while says so.
"use strict";

{
  const parts = [...document.querySelectorAll("[data-live]")];
  const lost = document.getElementById("lost");
  const QUIET_MS = 20000; // an event comes every two seconds
  let timer = 0;
  const served = new Map(parts.map((part) => [part, part.innerHTML]));

  function isInUse(part) {
    const selection = getSelection();
    const isSelected = !selection.isCollapsed && part.contains(selection.anchorNode);
    return isSelected || part.querySelector(":is(input, select, textarea):focus") !== null;
  }

  function listen() {
    const events = document.getElementById("follow").content.firstElementChild.cloneNode(true);
    events.setAttribute("hx-select-oob", parts.map((part) => `#${part.id}:innerHTML`).join());
    document.body.append(events);
    htmx.process(events);
  }

  function note(isLost) {
    lost.hidden = !isLost;
    clearTimeout(timer);
    if (!isLost && !document.hidden) timer = setTimeout(note, QUIET_MS, true);
  }

  function leave() {
    clearTimeout(timer);
    if (document.getElementById("events")) htmx.swap("#events", "", { swapStyle: "delete" });
  }

  document.addEventListener("htmx:oobBeforeSwap", ({ detail }) => {
    const fresh = detail.fragment.innerHTML;
    detail.shouldSwap = fresh !== served.get(detail.target) && !isInUse(detail.target);
    if (detail.shouldSwap) served.set(detail.target, fresh);
  });
  document.addEventListener("htmx:sseError", () => note(true));
  document.addEventListener("htmx:afterRequest", ({ detail }) => {
    // Whoever was signed out is redirected.
    note(!detail.successful || detail.xhr.responseURL !== location.href.split("#")[0]);
    document.dispatchEvent(new Event("replaced"));
  });
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : listen()));
  if (!document.hidden) listen();
}
