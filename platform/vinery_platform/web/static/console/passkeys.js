// A button that asks the browser for a passkey. Allauth's scripts talk to the browser; this one
// tells them which form is on the page, and says in words what went wrong.
"use strict";

const form = document.getElementById("passkey-form");
const failed = document.getElementById("passkey-error");

const say = (text) => {
  failed.textContent = text;
  failed.hidden = false;
};

if (!window.PublicKeyCredential) {
  document.getElementById("passkey-button").disabled = true;
  say("This browser has no passkeys here: they need https, or the address localhost.");
} else {
  const ids = { credential: "passkey-answer", data: "passkey-data", passwordless: "id_passwordless" };
  for (const name of ["add", "login", "authenticate"]) ids[name] = "passkey-button";
  window.allauth.webauthn.forms[form.dataset.kind]({ ids });
}

document.addEventListener("allauth.error", (event) => {
  event.preventDefault();
  const words = {
    NotAllowedError: "The browser was not given a passkey: it was cancelled, or took too long.",
    InvalidStateError: "This device has a passkey of your account already.",
    SecurityError: "The address of this page does not fit the server's. Open the server by its usual name.",
  };
  say(words[event.detail.exception.name] || "It did not work. Reload the page, and try again.");
});
