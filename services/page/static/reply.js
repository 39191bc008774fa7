// One reply under way: reads the stream, draws it, measures it.

import { chat } from "./api.js";
import { showCycle } from "./cycles.js";
import { element, following } from "./dom.js";
import { duration, Measure } from "./measure.js";
import { Transcript } from "./transcript.js";

/**
 * Streams a reply into `container` (inside `scroller`). `onCommit` is called with the measure after each commit.
 * Resolves to {text, measure, reason}; an abort ends it with reason "stopped". Throws what the API throws, with the
 * text so far as `error.text`.
 */
export async function stream({ fields, container, scroller, signal, onCommit, lane }) {
  const transcript = new Transcript(container);
  const measure = new Measure(performance.now());
  let reason = null;
  try {
    for await (const chunk of chat(fields, signal)) {
      const choice = chunk.choices[0];
      if (!choice) {
        measure.report = chunk.metrics?.speculative_decoding ?? null;
        continue;
      }
      reason = choice.finish_reason ?? reason;
      following(scroller, () => {
        if (choice.decoding) {
          measure.add(choice.decoding, performance.now());
          transcript.commit(choice.decoding);
          showCycle(choice.decoding, lane);
        } else if (choice.delta.content) {
          transcript.plain(choice.delta.content);
        }
      });
      if (choice.decoding) onCommit(measure);
    }
  } catch (error) {
    if (error.name !== "AbortError") throw Object.assign(error, { text: transcript.text });
    reason = "stopped";
  }
  measure.finish(performance.now());
  return { text: transcript.text, measure, reason };
}

/** The line under a reply. */
export function facts(measure, reason) {
  const now = performance.now();
  const acceptance = measure.acceptance();
  const parts = [
    ["tokens", measure.tokens],
    ["tokens/s", measure.rate(now).toFixed(1)],
    ["tokens/cycle", measure.perCycle().toFixed(2)],
    ["accepted", acceptance === null ? null : `${Math.round(100 * acceptance)} %`],
    ["first", duration(measure.firstToken())],
    ["total", duration(measure.total(now))],
    ["degraded", measure.report?.degraded ? `from token ${measure.report.degraded_from_token}` : null],
    ["end", reason === "stop" ? null : (reason ?? null)],
  ];
  const line = element("dl", { className: "facts" });
  for (const [name, value] of parts) {
    if (value === null) continue;
    const pair = element("div", {}, element("dt", { textContent: name }), element("dd", { textContent: value }));
    pair.dataset.name = name;
    line.append(pair);
  }
  return line;
}
