// Small helpers over the DOM. Text only ever goes in as text.

export const byId = (id) => document.getElementById(id);

/** An element with properties, and children that are elements or text. */
export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

/** An SVG element with attributes. */
export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Tell a screen reader, once. */
export function announce(text) {
  byId("announce").textContent = text;
}

/** Runs `work` inside `scroller` and keeps its end in view if it was. */
export function following(scroller, work) {
  const atEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 48;
  const result = work();
  if (atEnd) scroller.scrollTop = scroller.scrollHeight;
  return result;
}
