// Follows a log: asks for the lines after those that the page has while it is seen, less often
// while the server does not answer. The page keeps a bounded number of lines.
"use strict";

const LOG_EVERY_MS = 1000;
const LOG_SLOWEST_MS = 60000;
const LOG_WITHIN_MS = 15000;
const LOG_MOST_CHARACTERS = 400000;

const log = document.getElementById("log");
const logState = document.getElementById("log-state");

async function fetchLines() {
  const address = `?after=${encodeURIComponent(log.dataset.position)}`;
  const response = await fetch(address, {
    redirect: "error",
    signal: AbortSignal.timeout(LOG_WITHIN_MS),
  });
  if (!response.ok) throw new Error(`status ${response.status}`);
  return response.json();
}

function append(lines) {
  const isAtEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 20;
  log.append(lines.map((line) => `${line}\n`).join(""));
  if (log.textContent.length > LOG_MOST_CHARACTERS) {
    const rest = log.textContent.slice(-LOG_MOST_CHARACTERS / 2);
    log.textContent = rest.slice(rest.indexOf("\n") + 1);
  }
  if (isAtEnd) log.scrollTop = log.scrollHeight;
  document.getElementById("no-log")?.remove();
}

async function follow(pauseMs) {
  let nextMs = LOG_EVERY_MS;
  if (!document.hidden) {
    try {
      const found = await fetchLines();
      log.dataset.position = found.position;
      if (found.lines.length) append(found.lines);
      logState.textContent = "New lines appear by themselves.";
    } catch {
      nextMs = Math.min(2 * pauseMs, LOG_SLOWEST_MS);
      logState.textContent = "The server does not answer; it is asked again.";
    }
  }
  setTimeout(follow, nextMs, nextMs);
}

log.scrollTop = log.scrollHeight;
follow(LOG_EVERY_MS);
