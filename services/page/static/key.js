// The dialog for an API key.

import { key, setKey } from "./api.js";
import { byId } from "./dom.js";

/** Wires the dialog; `onKey` is called with a new key in place. */
export function keyDialog(onKey) {
  const dialog = byId("key");
  byId("open-key").addEventListener("click", askForKey);
  dialog.querySelector("[data-close]").addEventListener("click", () => dialog.close());
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    setKey(byId("key-input").value.trim());
    dialog.close();
    onKey();
  });
}

/** Open it. */
export function askForKey() {
  byId("key-input").value = key();
  if (!byId("key").open) byId("key").showModal();
}
