// The public API: the model's card, and a streamed reply.

import { events } from "./sse.js";
import { load, save, thisTab } from "./storage.js";

const KEY = "prove.key";

/** A refusal, in the words of the server. */
class ApiError extends Error {
  constructor(status, error, retryAfter) {
    const wait = retryAfter ? ` Try again in ${retryAfter} s.` : "";
    super(`${error?.message ?? `The server answered ${status}.`}${wait}`);
    this.status = status;
    this.param = error?.param ?? null;
  }
}

export const key = () => load(thisTab, KEY, "");
export const setKey = (value) => save(thisTab, KEY, value || null);

/** The card of the model that is served. */
export async function fetchCard() {
  const reply = await ask("v1/models");
  const { data } = await reply.json();
  if (!data?.length) throw new Error("The server names no model.");
  return data[0];
}

/** Chunks of a streamed reply. Throws `ApiError`, or what the network throws; `signal` aborts it. */
export async function* chat(fields, signal) {
  const body = JSON.stringify({ ...fields, stream: true, stream_options: { include_usage: true } });
  const reply = await ask("v1/chat/completions", { method: "POST", body, signal });
  for await (const data of events(reply.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiError(chunk.error.code, chunk.error);
    yield chunk;
  }
  throw new Error("The connection ended before the reply did.");
}

async function ask(path, options = {}) {
  const headers = { "Content-Type": "application/json" };
  if (key()) headers.Authorization = `Bearer ${key()}`;
  let reply;
  try {
    reply = await fetch(new URL(path, document.baseURI), { ...options, headers });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Error("The server cannot be reached.");
  }
  if (reply.ok) return reply;
  const told = await reply.json().catch(() => null);
  throw new ApiError(reply.status, told?.error, reply.headers.get("Retry-After"));
}
