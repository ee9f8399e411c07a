// What happens when the hub goes, comes back, is another one, or says what makes no sense.

import { PATIENCE, check, deferred, gather, rejected, same, soon, unique } from "./kit.mjs";

const isNq = (peer) => peer.protocol === "nq";

/** Connect so that nobody waits long for the next try, and note down how the connection is. */
async function watched(connect, url, options = {}) {
  const peer = await connect(url, { timeout: PATIENCE, backoff: [0.05, 0.2], ...options });
  const states = [];
  peer.addEventListener("state", (event) => states.push(event.detail));
  return { peer, states };
}

export const trouble = {
  /** All that a connection had is there again on the next one. */
  async restored({ connect, url, say, told }) {
    const { peer, states } = await watched(connect, url);
    const [method, topic] = [unique("shop.buy"), unique("news")];
    await peer.register(method, (body) => body + 1);
    const events = await peer.subscribe(`${topic}.*`);
    await peer.vars.set("language", "cs");
    say("ready");
    await told("restarted");
    // What is asked while there is no connection waits for one.
    same(await peer.call(method, 1), 2);
    same(await peer.vars.get("language"), "cs");
    await peer.publish(`${topic}.a`, "again");
    same((await events.next()).value.data, "again");
    same(events.restored, 1);
    same(peer.state, "open");
    const names = states.map(({ state }) => state);
    same([names[0], names[1], names.at(-1)], ["waiting", "connecting", "open"]);
    check(states[0].error instanceof Error && states[0].attempt === 1, "why, and the first try");
    await peer.close();
  },

  /** The hub's answers are taken in its order, though the first of two arrives last. */
  async overtaken({ connect, url, wsUrl }) {
    const topic = unique("news");
    const [first, second, arrived] = [deferred(), deferred(), deferred()];
    const fetching = async (where, options) => {
      const response = await fetch(where, options);
      const text = await response.clone().text();
      if (/"d":1[,}]/.test(text)) {
        first.resolve();
        await arrived.promise;
      } else if (/"d":2[,}]/.test(text)) second.resolve();
      return response;
    };
    const peer = await connect(url, { timeout: PATIENCE, fetch: fetching });
    const publisher = await connect(wsUrl, { timeout: PATIENCE });
    const events = await peer.subscribe(topic);
    await publisher.publish(topic, 1);
    await first.promise;
    await publisher.publish(topic, 2);
    const sum = peer.call("math.add", [1, 2]); // another connection asks, and gets the second event
    await second.promise;
    await new Promise((go) => setTimeout(go, 50)); // time to take it too early
    arrived.resolve();
    same([(await events.next()).value.data, (await events.next()).value.data], [1, 2]);
    same(await sum, 3);
    await peer.close();
    await publisher.close();
  },

  /** What was under way when a hub was killed: NQ goes on, elsewhere nobody knows what became of it. */
  async interrupted({ connect, url, say, told }) {
    const { peer } = await watched(connect, url);
    const call = peer.call("demo.countdown", [2, 1]);
    const again = peer.call("demo.countdown", [2, 1], { idempotent: true });
    call.catch(() => {});
    const stream = peer.stream("demo.countdown", [2, 1]);
    const first = isNq(peer) || peer.protocol === "lrpm-json" ? (await stream.next()).value : 2;
    same(first, 2);
    const rest = peer.protocol === "umq" ? null : rejected(gather(stream));
    say("calling");
    await told("restarted");
    if (isNq(peer)) {
      same(await call, [2, 1, 0]);
      const lost = await rest;
      same([lost.reason, lost.ran], ["lost", "unknown"]);
      check(lost.message.includes("has restarted"), lost.message);
    } else {
      const error = await rejected(call);
      same([error.reason, error.ran], ["lost", "unknown"]);
      if (rest) same((await rest).reason, "lost");
    }
    same(await again, [2, 1, 0]);
    await peer.close();
  },

  /** A method that a page serves is asked again by nobody but NQ, and its signal tells that nobody waits. */
  async serving_through({ connect, url, say, told }) {
    const { peer } = await watched(connect, url);
    const name = unique("slow.work");
    let stop = () => {};
    const stopped = new Promise((resolve) => (stop = resolve));
    await peer.register(name, (_, { signal }) => new Promise(() => signal.addEventListener("abort", stop)));
    const call = peer.call(name, null, { timeout: PATIENCE });
    call.catch(() => {});
    const job = peer.pull(unique("jobs"));
    job.catch(() => {});
    await peer.call("hub.ping");
    say("ready");
    await told("restarted");
    await stopped;
    same(await peer.call("math.add", [1, 2]), 3);
    await peer.close();
    check(["lost"].includes((await rejected(call)).reason), "it ends with the connection");
    await rejected(job);
  },

  /** Without `reconnect`, a lost connection is over. */
  async once({ connect, url, say, told, ConnectionLost }) {
    const { peer, states } = await watched(connect, url, { reconnect: false });
    const events = await peer.subscribe(unique("x"));
    say("ready");
    check((await rejected(gather(events))) instanceof ConnectionLost, "the subscription tells");
    await told("restarted");
    same(states.map(({ state }) => state), ["closed"]);
    check(states[0].error instanceof ConnectionLost, "and so does the state");
    check((await rejected(peer.call("hub.ping"))) instanceof ConnectionLost, "nothing is sent any more");
  },

  /** A hub that does not let us in is not asked again and again. */
  async refused({ connect, url, token, Refused }) {
    for (const options of [{ token: `${token}x` }, { token: "12345" }]) {
      const error = await rejected(connect(url, options));
      check(error instanceof Refused, `${error}`);
      check(!error.message.includes(options.token), "the token is not told");
    }
  },

  async let_in({ connect, url, token, identity, secret, say, told }) {
    const { peer } = await watched(connect, url, identity ? { identity, secret } : { token });
    same(await peer.call("math.add", [1, 2]), 3);
    same((await peer.call("hub.echo", "x")), "x");
    say("ready");
    await told("restarted");
    same(await peer.call("math.add", [2, 2]), 4);
    await peer.close();
  },

  /** A hub that comes back and does not know us any more ends the connection for good. */
  async shut_out({ connect, url, say, Refused }) {
    const { peer, states } = await watched(connect, url);
    await peer.subscribe(unique("x")); // over HTTP the hub is asked only while something is expected
    say("ready");
    await soon(() => peer.state === "closed");
    check(states.at(-1).error instanceof Refused, String(states.at(-1).error));
    check((await rejected(peer.call("hub.ping"))) instanceof Refused, "that is what every call hears");
  },

  /** A hub that says what makes no sense is left, and another connection opened; NQ goes on. */
  async hostile({ connect, url, say, told }) {
    const { peer, states } = await watched(connect, url);
    const call = peer.call("some.thing");
    call.catch(() => {});
    say("connected");
    const faults = await told("over");
    await soon(() => peer.state === "open");
    const errors = states.filter(({ state }) => state === "waiting").map(({ error }) => error.message);
    if (isNq(peer)) same(errors, []);
    else {
      same(errors.length, faults);
      for (const error of errors) check(error.includes("broke the protocol"), error);
    }
    const closing = peer.close();
    await rejected(call);
    await closing;
    return errors;
  },

  /** Nobody who answers with anything else than NQ is taken for a hub. */
  async no_hub({ connect, url, ConnectionLost }) {
    const error = await rejected(connect(url, { openTimeout: 2 }));
    check(error instanceof ConnectionLost, `${error}`);
    return error.message;
  },

  /** A hub that falls silent, without a word, is left after two keepalives. */
  async silent({ connect, url, say, told }) {
    const { peer, states } = await watched(connect, url, { keepalive: 0.3 });
    say("connected");
    await soon(() => states.length > 0);
    say("left");
    await told("thawed");
    await soon(() => peer.state === "open");
    same(await peer.call("math.add", [1, 2]), 3);
    const [first] = states;
    check(first?.state === "waiting" && first.error.message.includes("silent"), `${first?.error}`);
    await peer.close();
  },
};
