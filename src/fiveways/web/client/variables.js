// Variables of the session, and those that the hub sets at the client.

import { LIMITS } from "./tables.js";

/** A request that sets a variable of the session. */
export const setVariableRequest = (name, value) => (conversation, id) => {
  conversation.call(id, "hub.set", { name, value }, {});
};

export class VariableStore {
  /** Variables that the hub has set at this client. */
  fromHub = new Map();
  #own = new Map();

  set(name, value) {
    this.#own.set(name, value);
  }

  unset(name) {
    this.#own.delete(name);
  }

  /** Note a variable that the hub has set, or unset if the value is undefined. */
  changedByHub(name, value) {
    if (value === undefined) this.fromHub.delete(name);
    else if (this.fromHub.size < LIMITS.maxVariables || this.fromHub.has(name)) this.fromHub.set(name, value);
  }

  /** Return the requests that restore the variables of the session. */
  requests() {
    return Array.from(this.#own, ([name, value]) => ({ request: setVariableRequest(name, value) }));
  }
}
