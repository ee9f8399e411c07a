// Carries out commands of a test: begins a case, waits for what it says, tells it something, waits for its end.

import { PATIENCE } from "./kit.mjs";

function within(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: nothing for ${PATIENCE} s`)), PATIENCE * 1000);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** A place for words that may be waited for before or after they come. */
class Words {
  #words = new Map();

  #of(word) {
    if (!this.#words.has(word)) {
      const made = {};
      made.promise = new Promise((resolve) => Object.assign(made, { resolve }));
      this.#words.set(word, made);
    }
    return this.#words.get(word);
  }

  put(word, value = null) {
    this.#of(word).resolve(value);
  }

  get(word) {
    return this.#of(word).promise;
  }
}

const shown = (error) => `${error?.name}: ${error?.message} (${error?.reason ?? ""})\n${error?.stack ?? error}`;

/** Return the function that carries out commands with these cases; `lib` is what every case gets. */
export function driver(cases, lib) {
  const stories = new Map();

  async function carryOut({ do: what, story: name, case: key, world, word, value }) {
    if (what === "start") {
      const story = { said: new Words(), told: new Words() };
      const say = (...given) => story.said.put(...given);
      const told = (each) => within(story.told.get(each), `waiting to be told ${each}`);
      story.end = within(cases[key]({ ...lib, ...world, say, told }), key);
      story.end.catch(() => {}); // it is told when somebody asks for the end
      stories.set(name, story);
      return null;
    }
    const story = stories.get(name);
    if (what === "tell") return story.told.put(word, value);
    if (what === "said") {
      const failed = story.end.then(() => Promise.reject(new Error(`it ended without saying ${word}`)));
      return (await Promise.race([within(story.said.get(word), `waiting for ${word}`), failed])) ?? null;
    }
    stories.delete(name);
    return (await story.end) ?? null;
  }

  return async function drive(command) {
    try {
      return { ok: true, value: (await carryOut(command)) ?? null };
    } catch (error) {
      return { ok: false, error: shown(error) };
    }
  };
}
