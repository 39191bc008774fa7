// A reply as it is decoded: a span per token, grouped by commit, with what was rejected above its place.

import { element } from "./dom.js";

const KINDS = { ar: "AR token", accepted: "accepted", corrected: "corrected", bonus: "after a whole block" };
const LONGEST_MARK = 14; // characters of a rejected candidate
const MARK_GAP = 4; // pixels

/** Draws commits into `container`. */
export class Transcript {
  constructor(container) {
    this.container = container;
    this.text = "";
    this.latest = null; // mark
  }

  /** One commit of the trace. */
  commit(commit) {
    const group = element("span", { className: "commit" });
    const mark = markOf(commit.rejected);
    commit.tokens.forEach((token, index) => {
      const corrects = index === commit.accepted ? mark : null;
      if (token.text || corrects) group.append(drawn(token, commit, corrects));
      this.text += token.text;
    });
    if (mark && commit.accepted === commit.tokens.length) group.append(mark);
    if (!group.childNodes.length) return;
    this.container.append(group);
    if (mark) this.#makeRoom(mark.firstChild);
  }

  // Marks are wider than what stands below them: the one before gives way.
  #makeRoom(mark) {
    const [before, now] = [this.latest?.getBoundingClientRect(), mark.getBoundingClientRect()];
    const overlaps = before && Math.abs(before.top - now.top) < 4 && before.right > now.left - MARK_GAP;
    if (overlaps) this.latest.style.maxWidth = `${Math.max(0, now.left - MARK_GAP - before.left)}px`;
    this.latest = mark;
  }

  /** Text that no commit brings: what had been held back. */
  plain(text) {
    this.container.append(text);
    this.text += text;
  }
}

function drawn(token, commit, mark) {
  const span = element("span", { className: `token ${token.kind}` });
  const space = token.text.match(/^\s*/)[0]; // stays on the line before where the text wraps; the mark does not
  span.append(space, ...(mark ? [mark] : []), token.text.slice(space.length));
  span.style.setProperty("--position", token.position);
  const place = token.position ? ` · position ${token.position} of ${commit.drafted}` : "";
  const instead = mark ? ` instead of “${visible(commit.rejected[0])}”` : "";
  span.facts = `cycle ${commit.cycle}${place} · ${KINDS[token.kind]}${instead} · ${commit.pass_ms.toFixed(1)} ms in passes`;
  return span;
}

// Like a proofreader's mark: it takes no room in the line, so that nothing moves when it fades.
function markOf(rejected) {
  const text = visible(rejected[0] ?? "").slice(0, LONGEST_MARK);
  return text ? element("span", { className: "rejected", ariaHidden: "true" }, element("s", {}, text)) : null;
}

/** A token's text where spaces and line breaks would not show. */
export function visible(text) {
  return text.trim().replace(/\s*\n\s*/g, "↵") || (text.includes("\n") ? "↵" : text && "␣");
}

/** Shows the facts of the token under the pointer in `line`. */
export function probe(scroller, line) {
  scroller.addEventListener("pointerover", (event) => {
    line.textContent = event.target.facts ?? "";
  });
  scroller.addEventListener("pointerleave", () => {
    line.textContent = "";
  });
}
