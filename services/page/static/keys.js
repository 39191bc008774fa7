// Keyboard shortcuts, and the list of them.

import { byId, element } from "./dom.js";

/** Listens to the keyboard. `actions` maps names to functions; see SHORTCUTS for the names. */
export function listen(actions) {
  document.addEventListener("keydown", (event) => {
    if (document.querySelector("dialog[open]")) return; // Esc and Enter are the dialog's
    const found = SHORTCUTS.find(({ matches }) => matches?.(event));
    if (!found || event.isComposing) return;
    event.preventDefault();
    actions[found.action](event);
  });
  const rows = SHORTCUTS.flatMap(({ keys, does }) => [
    element("dt", {}, ...keys.map((name) => element("kbd", { textContent: name }))),
    element("dd", { textContent: does }),
  ]);
  byId("shortcuts").replaceChildren(...rows);
}

// By code: with Alt held, some layouts type other characters.
const alt = (code) => (event) => event.altKey && !event.ctrlKey && !event.metaKey && event.code === code;
const typing = (event) => event.target.matches("input:not([type=radio], [type=range]), textarea, select");
const bare = (key) => (event) => event.key === key && !typing(event) && !event.ctrlKey && !event.metaKey && !event.altKey;

const SHORTCUTS = [
  { keys: ["Enter"], does: "send", action: "send", matches: enter },
  { keys: ["Shift", "Enter"], does: "new line" },
  { keys: ["Esc"], does: "stop", action: "stop", matches: (event) => event.key === "Escape" },
  { keys: ["/"], does: "to the message", action: "focus", matches: bare("/") },
  { keys: ["Alt", "1…7"], does: "mode", action: "mode", matches: (event) => event.altKey && /^Digit[1-7]$/.test(event.code) },
  { keys: ["Alt", "R"], does: "chat or race", action: "race", matches: alt("KeyR") },
  { keys: ["Alt", "N"], does: "new chat", action: "fresh", matches: alt("KeyN") },
  { keys: ["Alt", "H"], does: "chats", action: "history", matches: alt("KeyH") },
  { keys: ["Alt", "K"], does: "keep rejected candidates in the text", action: "rejected", matches: alt("KeyK") },
  { keys: ["Alt", "T"], does: "light or dark", action: "theme", matches: alt("KeyT") },
  { keys: ["?"], does: "this list", action: "help", matches: bare("?") },
];

function enter(event) {
  return event.key === "Enter" && !event.shiftKey && !event.altKey && event.target === byId("message");
}
