// What the browser keeps. It may refuse to (private windows, full quotas): then things hold for this visit.

/** The stored value of a key, or `fallback` when there is none that can be read. */
export function load(store, key, fallback) {
  try {
    const text = store().getItem(key);
    return text === null ? fallback : JSON.parse(text);
  } catch {
    return fallback;
  }
}

/** Store a value; null removes the key. */
export function save(store, key, value) {
  try {
    if (value === null) store().removeItem(key);
    else store().setItem(key, JSON.stringify(value));
  } catch {
    // nothing to do about it
  }
}

// Functions, since even naming the store may throw.
export const forever = () => localStorage;
export const thisTab = () => sessionStorage;
