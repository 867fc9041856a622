// The theme that the reader has chosen, before anything is drawn. Django's admin has the same key.
// And the zone of the browser, in which pages show times.
"use strict";

{
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone) document.cookie = `zone=${zone}; path=/; max-age=31536000; samesite=lax`;
}

document.documentElement.dataset.theme = localStorage.getItem("theme") || "auto";
