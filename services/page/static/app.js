// Puts the page together: which view is shown, what runs, and who hears of it.

import { fetchCard } from "./api.js";
import { Chat } from "./chat.js";
import { Controls } from "./controls.js";
import { clearCycles } from "./cycles.js";
import { byId, element } from "./dom.js";
import { Gauges } from "./gauges.js";
import { History } from "./history.js";
import { askForKey, keyDialog } from "./key.js";
import { listen } from "./keys.js";
import { Race } from "./race.js";
import { probe } from "./transcript.js";

const message = byId("message");
let running = null; // what runs: its AbortController, and the promise of its end
let app = null; // what needs the model's card; null until it is there

function show(view) {
  document.body.dataset.view = view;
  for (const button of document.querySelectorAll(".views button")) {
    button.setAttribute("aria-pressed", `${button.dataset.view === view}`);
  }
  if (view === "gauges") return; // on a narrow screen, over the view that was there
  byId("chat").hidden = view !== "chat";
  byId("race").hidden = view !== "race";
  app?.controls.show(view === "race" ? app.race.modes : [app.controls.mode], view === "race");
}

const racing = () => !byId("race").hidden;

async function send(text = message.value) {
  if (!app || running || !text.trim()) return;
  const controller = new AbortController();
  const ended = (racing() ? app.race : app.chat).send(text.trim(), controller.signal);
  running = { controller, ended };
  message.value = "";
  grow();
  if (document.body.dataset.view === "gauges") show(racing() ? "race" : "chat");
  setRunning(true);
  try {
    await ended;
  } catch (error) {
    if (error.status === 401) askForKey();
    if (!message.value) message.value = text;
  } finally {
    running = null;
    setRunning(false);
  }
}

/** End what runs, and wait until it has. */
async function stop() {
  running?.controller.abort();
  await running?.ended.catch(() => {}); // `send` tells of failures
}

function setRunning(on) {
  byId("stop").hidden = !on;
  byId("send").hidden = on;
  document.body.classList.toggle("running", on);
  focusMessage();
}

// Where there is a real keyboard: elsewhere it would bring up one that covers half of the page.
function focusMessage() {
  if (matchMedia("(hover: hover)").matches) message.focus({ preventScroll: true });
}

function grow() {
  message.style.height = "auto";
  message.style.height = `${message.scrollHeight}px`;
}

async function fresh() {
  await app?.history.open(null);
  show("chat");
  focusMessage();
}

/** Build what depends on the model; again when a key is given. */
async function start() {
  byId("model").classList.remove("missing");
  byId("model").textContent = "…";
  try {
    const card = await fetchCard();
    byId("model").textContent = card.id;
    app ??= build(card);
    show(racing() ? "race" : "chat");
  } catch (error) {
    byId("model").classList.add("missing");
    const retry = element("button", { type: "button", className: "quiet", textContent: "Retry" });
    retry.addEventListener("click", start);
    byId("model").replaceChildren(error.message, " ", retry);
    if (error.status === 401) askForKey();
  }
}

function build(card) {
  const gauges = new Gauges();
  const onOpen = (messages) => {
    clearCycles();
    chat.restore(messages);
  };
  const history = new History({ leave: stop, onOpen });
  const controls = new Controls(byId("controls"), card, () => {});
  const shared = { model: card.id, controls, gauges };
  const chat = new Chat({ ...shared, onTurn: (messages) => history.keep(messages), onSample: (text) => send(text) });
  const race = new Race({ ...shared, onModes: () => controls.show(race.modes, true) });
  return { controls, chat, race, history };
}

function keepRejected(keep = !document.body.classList.contains("keep-rejected")) {
  document.body.classList.toggle("keep-rejected", keep);
  byId("rejected").setAttribute("aria-pressed", `${keep}`);
}

function wire() {
  for (const ramp of document.querySelectorAll("[data-ramp]")) {
    ramp.append(
      ..."accepted".split("").map((letter, index) => {
        const span = element("span", { className: "token accepted", textContent: letter });
        span.style.setProperty("--position", index + 1);
        return span;
      }),
    );
  }
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  byId("stop").addEventListener("click", stop);
  byId("open-help").addEventListener("click", () => byId("help").showModal());
  byId("rejected").addEventListener("click", () => keepRejected());
  message.addEventListener("input", grow);
  for (const button of document.querySelectorAll(".views button")) {
    button.addEventListener("click", () => show(button.dataset.view));
  }
  probe(byId("chat"), byId("probe"));
  probe(byId("race"), byId("probe"));
  keyDialog(start);
  listen({
    send: () => send(),
    stop,
    focus: () => message.focus(),
    mode: (event) => app?.controls.choose(app.controls.modes[Number(event.code.slice(5)) - 1]),
    race: () => show(racing() ? "chat" : "race"),
    fresh,
    history: () => app?.history.show(),
    rejected: () => keepRejected(),
    theme: () => byId("theme").click(),
    help: () => byId("help").showModal(),
  });
}

wire();
start();
focusMessage();
