// Conversations that this browser has had with the server.

import { byId, element } from "./dom.js";
import { forever, load, save } from "./storage.js";

const STORED = "prove.chats";
const MOST = 30;
const TITLE = 60;
const fresh = () => `${Date.now()}-${Math.random()}`; // randomUUID exists on secure origins only

export class History {
  /** `leave` ends what the present chat is doing; `onOpen` gets the messages of the one chosen, or none for a new one. */
  constructor({ leave, onOpen }) {
    Object.assign(this, { leave, onOpen });
    this.current = fresh();
    this.dialog = byId("history");
    byId("open-history").addEventListener("click", () => this.show());
    byId("new-chat").addEventListener("click", () => this.open(null));
    byId("forget").addEventListener("click", () => this.forget());
  }

  get chats() {
    return load(forever, STORED, []);
  }

  show() {
    this.#list();
    if (!this.dialog.open) this.dialog.showModal();
  }

  /** Keep the conversation as it is now. */
  keep(messages) {
    if (!messages.length) return;
    const title = messages[0].content.slice(0, TITLE);
    const others = this.chats.filter(({ id }) => id !== this.current);
    save(forever, STORED, [{ id: this.current, title, when: Date.now(), messages }, ...others].slice(0, MOST));
  }

  /** Go to a chat of the list; null begins a new one. */
  async open(chat) {
    await this.leave();
    this.current = chat?.id ?? fresh();
    this.dialog.close();
    this.onOpen(chat?.messages ?? []);
  }

  async forget() {
    await this.open(null);
    save(forever, STORED, null);
  }

  #list() {
    const chats = this.chats;
    const rows = chats.map((chat) => {
      const open = element("button", { type: "button", className: "quiet", textContent: chat.title });
      open.addEventListener("click", () => this.open(chat));
      if (chat.id === this.current) open.setAttribute("aria-current", "true");
      const when = new Date(chat.when).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
      return element("li", {}, open, element("time", { textContent: when }));
    });
    const none = element("li", { className: "fine", textContent: "None yet." });
    byId("chats").replaceChildren(...(rows.length ? rows : [none]));
  }
}
