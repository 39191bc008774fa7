// The latest cycles, one a row: what was committed, and all that was rejected.

import { byId, element } from "./dom.js";
import { visible } from "./transcript.js";

const ROWS = 60;
const RECENT = 8; // rows that may still be added to: the lanes of a race take turns

/** Adds a commit to the list; `lane` names the runner of a race. */
export function showCycle(commit, lane = "") {
  const list = byId("cycles");
  const id = `${lane}${commit.cycle}`;
  let row = [...list.children].slice(0, RECENT).find(({ dataset }) => dataset.id === id);
  if (!row) {
    row = element("li", {}, element("b", { textContent: id }), element("span", { className: "cells" }));
    row.dataset.id = id;
    list.prepend(row);
    while (list.childElementCount > ROWS) list.lastElementChild.remove();
  }
  const cells = row.lastElementChild;
  for (const token of commit.tokens) cells.append(cell(token.text, `cell ${token.kind}`, token.position));
  for (const text of commit.rejected) cells.append(element("s", { className: "cell", textContent: visible(text) || "▯" }));
}

/** Start over. */
export function clearCycles() {
  byId("cycles").replaceChildren();
}

function cell(text, className, position) {
  const made = element("span", { className, textContent: visible(text) || "▯" });
  made.style.setProperty("--position", position);
  return made;
}
