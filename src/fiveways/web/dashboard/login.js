// Who one is. A token is kept for this tab alone, and never becomes part of an address. Whoever becomes somebody else
// gets a new page: what one identity saw is not for the next one.

import { byId, say, show } from "./dom.js";

const KEPT = "fiveways.token";

export class Login {
  constructor() {
    this.form = byId("login");
    this.field = byId("token");
    this.button = byId("sign");
    this.isWrong = false;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#become(this.field.value);
    });
    this.button.addEventListener("click", () => (this.token ? this.#become("") : this.ask("")));
    byId("login-leave").addEventListener("click", () => {
      if (this.isWrong) this.#become("");
      else this.leave();
    });
  }

  get token() {
    return sessionStorage.getItem(KEPT) ?? "";
  }

  #keep(token) {
    if (token) sessionStorage.setItem(KEPT, token);
    else sessionStorage.removeItem(KEPT);
  }

  #become(token) {
    this.#keep(token);
    location.reload();
  }

  /** Ask for a token; `why` is what the hub said when it let nobody in, or nothing. */
  ask(why) {
    this.isWrong = Boolean(why && this.token);
    if (this.isWrong) this.#keep("");
    say(byId("login-title"), why ? "Sign-in required" : "Sign in");
    say(byId("login-why"), this.isWrong ? "This token is not valid." : why && "This hub requires a token.");
    show(byId("login-leave"), why === "" || this.isWrong);
    show(this.button, false);
    show(this.form, true);
    this.field.focus();
  }

  /** Ask no longer. */
  leave() {
    show(this.form, false);
    show(this.button, true);
  }

  /** Say as whom we were let in. */
  known(identity) {
    say(byId("who"), identity ? `Signed in as ${identity}` : "Not signed in");
    say(this.button, this.token ? "Sign out" : "Sign in");
  }
}
