// The theme that the reader has chosen, before anything is drawn. Django's admin has the same key.
"use strict";

document.documentElement.dataset.theme = localStorage.getItem("theme") || "auto";
