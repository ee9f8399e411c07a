// Small things that all cases use.

/** Seconds after which something hangs; a busy machine is slow, and nothing else depends on them. */
export const PATIENCE = 150;

let last = 0;

/** Return a name that no other case has, in this run or another. */
export function unique(name) {
  last += 1;
  return `${name}_${last}x${Math.random().toString(36).slice(2, 10)}`;
}

export function check(condition, what = "it") {
  if (!condition) throw new Error(`not so: ${what}`);
}

function alike(one, other) {
  if (Object.is(one, other)) return true;
  if (typeof one !== "object" || typeof other !== "object" || one === null || other === null) return false;
  if (Object.prototype.toString.call(one) !== Object.prototype.toString.call(other)) return false;
  const keys = Object.keys(one);
  return keys.length === Object.keys(other).length && keys.every((key) => Object.hasOwn(other, key) && alike(one[key], other[key]));
}

const shown = (value) => {
  const odd = (_, each) => (typeof each === "bigint" ? `${each}n` : Number.isNaN(each) ? "NaN" : each);
  return String(JSON.stringify(value, odd)).slice(0, 500);
};

/** Complain unless both are the same value, looked at in depth. */
export function same(found, wanted) {
  if (!alike(found, wanted)) throw new Error(`found ${shown(found)}, wanted ${shown(wanted)}`);
}

/** Return what a promise is rejected with; an error if it is not. */
export async function rejected(promise) {
  let value;
  try {
    value = await promise;
  } catch (error) {
    return error;
  }
  throw new Error(`it succeeded with ${shown(value)}`);
}

export const numbers = (count) => Array.from({ length: count }, (_, at) => at);

export async function gather(iterable) {
  const all = [];
  for await (const each of iterable) all.push(each);
  return all;
}

/** Return a promise, and the function that resolves it. */
export function deferred() {
  let resolve;
  const promise = new Promise((go) => (resolve = go));
  return { promise, resolve };
}

/** Wait until something is so. */
export async function soon(isSo) {
  for (let at = 0; at < 2000; at += 1) {
    if (await isSo()) return;
    await new Promise((go) => setTimeout(go, 10));
  }
  throw new Error("it never came about");
}
