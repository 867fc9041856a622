// Keeps the parts of a page with an id and `data-live` as the server has them. The page is fetched
// again while it is seen, less often while the server does not answer. Other scripts may change what
// the server sent, and hear of new content by the event `replaced`.
"use strict";

const EVERY_MS = 2000;
const SLOWEST_MS = 60000;
const WITHIN_MS = 15000;
const parts = [...document.querySelectorAll("[data-live]")];
const served = new Map(parts.map((part) => [part, part.innerHTML]));

function isSelected(part) {
  const selection = getSelection();
  return !selection.isCollapsed && part.contains(selection.anchorNode);
}

function replace(part, fresh) {
  const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
  served.set(part, fresh.innerHTML);
  part.replaceChildren(...fresh.childNodes);
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

async function fetchPage() {
  const response = await fetch(location.href, {
    headers: { "X-Live": "1" },
    redirect: "error",
    signal: AbortSignal.timeout(WITHIN_MS),
  });
  if (!response.ok) throw new Error(`status ${response.status}`);
  return new DOMParser().parseFromString(await response.text(), "text/html");
}

async function refresh(pauseMs) {
  let nextMs = EVERY_MS;
  if (!document.hidden) {
    try {
      const page = await fetchPage();
      for (const part of parts) {
        const fresh = page.getElementById(part.id);
        if (fresh && fresh.innerHTML !== served.get(part) && !isSelected(part)) replace(part, fresh);
      }
      document.dispatchEvent(new Event("replaced"));
    } catch {
      nextMs = Math.min(2 * pauseMs, SLOWEST_MS);
    }
  }
  setTimeout(refresh, nextMs, nextMs);
}

setTimeout(refresh, EVERY_MS, EVERY_MS);
