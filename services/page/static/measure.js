// What a reply's commits came to. Pure: times come in, numbers come out.

/** Counts of one reply. Times in milliseconds since any fixed moment. */
export class Measure {
  constructor(start) {
    this.start = start;
    this.end = null;
    this.first = null;
    this.tokens = 0;
    this.cycles = 0;
    this.drafted = []; // [i]: drafts that had a candidate i + 1
    this.accepted = []; // [i]: drafts whose candidate i + 1 was committed
    this.commits = 0; // that brought tokens
    this.latest = null;
    this.report = null; // the server's own, once the reply is complete
  }

  /** One commit that arrived at `now`. */
  add(commit, now) {
    this.cycles = Math.max(this.cycles, commit.cycle);
    for (let i = 0; i < commit.drafted; i++) {
      this.drafted[i] = (this.drafted[i] ?? 0) + 1;
      this.accepted[i] = (this.accepted[i] ?? 0) + (i < commit.accepted);
    }
    if (!commit.tokens.length) return;
    this.tokens += commit.tokens.length;
    this.first ??= now;
    this.commits += 1;
    this.latest = now;
  }

  /** The reply is over. */
  finish(now) {
    this.end = now;
  }

  firstToken() {
    return this.first === null ? null : this.first - this.start;
  }

  /** On average: several commits may arrive at once. */
  betweenCommits() {
    return this.commits > 1 ? (this.latest - this.first) / (this.commits - 1) : null;
  }

  total(now) {
    return (this.end ?? now) - this.start;
  }

  /** Tokens per second in flight. */
  rate(now) {
    const seconds = this.total(now) / 1000;
    return seconds > 0 ? this.tokens / seconds : 0;
  }

  perCycle() {
    return this.cycles ? this.tokens / this.cycles : 0;
  }

  acceptance() {
    const drafted = sum(this.drafted);
    return drafted ? sum(this.accepted) / drafted : null;
  }
}

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

/** "84 ms", "2.31 s", "·" of nothing. */
export function duration(ms) {
  if (ms === null) return "·";
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`;
}
