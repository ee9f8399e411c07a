// What fiveways.js must do, whatever runs it and whatever protocol it speaks. Each case gets the module's own names,
// the `url` of a hub with the example application, and whatever else its test gives.

import { PATIENCE, check, gather, numbers, rejected, same, soon, unique } from "./kit.mjs";
import { trouble } from "./trouble.mjs";
import { types } from "./types.mjs";
import { wires } from "./wires.mjs";

const protocolOf = (url) => url.split("+")[0];

/** Run `use` with a connection, or several, and close them. */
async function using(connect, urls, use) {
  const peers = [];
  try {
    for (const url of urls) peers.push(await connect(url, { timeout: PATIENCE }));
    return await use(...peers);
  } finally {
    await Promise.all(peers.map((peer) => peer.close()));
  }
}

const VALUES = [
  ...[null, true, false, 0, -1, 1.5, -0.25, 1e300, 2 ** 53 - 1, NaN, Infinity, -Infinity, 2n ** 64n, -(2n ** 80n)],
  ...["", "text", "1", "true", "null", '"quoted"', " 1", "{", "[1", "line\nfeed", "é😀\u2028", "\0"],
  ...[[], {}, [[]], [1, [2, [3]]], { a: { b: [null] } }, { "": 1 }, { $base64: "no bytes" }, { $$number: 1 }],
  ...[new Uint8Array(), Uint8Array.from([0, 1, 254, 255]), { deep: [Uint8Array.from([7])] }, { __proto__x: 1 }],
  JSON.parse('{"__proto__": {"__proto__": [1], "then": 2}, "constructor": null, "toString": 3, "toJSON": 4}'),
];

export const cases = {
  ...trouble,
  ...types,
  ...wires,

  async calls({ connect, url }) {
    await using(connect, [url], async (peer) => {
      same(await peer.call("math.add", [2, 3]), 5);
      same(await peer.call("math.add", { a: 2, b: 0.5 }, { timeout: 5 }), 2.5);
      same(await peer.call("Math:add", [1, 1]), 2);
      same(await peer.call("text.shout", "hello"), "HELLO!");
      same((await Promise.all(numbers(50).map((n) => peer.call("math.add", [n, n])))).at(-1), 98);
      same(peer.state, "open");
      same(peer.protocol, { umq: "umq", lrpm: "lrpm-json", nq: "nq" }[protocolOf(url)]);
    });
  },

  async failures({ connect, url, CallError }) {
    await using(connect, [url], async (peer) => {
      const unknown = await rejected(peer.call("no.such.method"));
      check(unknown instanceof CallError, "a CallError");
      same([unknown.reason, unknown.ran, unknown.name], ["no_such_method", "no", "CallError"]);
      const bad = await rejected(peer.call("math.add", ["x"]));
      same([bad.reason, bad.ran], ["bad_arguments", "no"]);
      const raised = await rejected(peer.call("demo.countdown", [-1]));
      same([raised.reason, raised.ran], ["raised", "yes"]);
      check(raised.message.includes("cannot count down"), raised.message);
      same(raised.name, protocolOf(url) === "umq" ? "CallError" : "demo.err.negative");
      for (const name of ["", "a..b", "a*", "x\ny", "a".repeat(300)]) {
        same((await rejected(peer.call(name))).reason, "no_such_method");
      }
      for (const body of [() => 1, Symbol("x"), new Map(), "\ud800", Promise.resolve()]) {
        const error = await rejected(peer.call("hub.echo", [body]));
        same([error.reason, error.ran], ["bad_arguments", "no"]);
      }
      const loop = [];
      loop.push(loop);
      same((await rejected(peer.call("hub.echo", loop))).reason, "bad_arguments");
      same((await rejected(peer.publish("a.*", 1))).reason, "bad_arguments");
      same((await rejected(peer.subscribe("a.**"))).reason, "bad_arguments");
      same(await peer.call("math.add", [1, 2]), 3);
    });
  },

  async values({ connect, url }) {
    await using(connect, [url], async (peer) => {
      for (const value of VALUES) same(await peer.call("hub.echo", value), value);
      same(await peer.call("hub.echo", VALUES), VALUES);
      same(await peer.call("hub.echo", { left: undefined, right: 1 }), { right: 1 });
      same(await peer.call("hub.echo", [undefined]), [null]);
      same(await peer.call("hub.echo", new Date(0)), "1970-01-01T00:00:00.000Z");
      same(await peer.call("hub.echo", new Uint16Array([258]).buffer), Uint8Array.from([2, 1]));
    });
  },

  async large({ connect, url }) {
    await using(connect, [url], async (peer) => {
      const text = "ž".repeat(500_000); // a little less than 1 MiB in UTF-8
      same(await peer.call("hub.echo", text), text);
      const error = await rejected(peer.call("hub.echo", text + text));
      same([error.reason, error.ran], ["too_large", "no"]);
      same(await peer.call("math.add", [1, 2]), 3);
    });
  },

  async streams({ connect, url }) {
    await using(connect, [url], async (peer) => {
      same(await gather(peer.stream("demo.countdown", [3, 0])), [3, 2, 1, 0]);
      same(await peer.call("demo.countdown", [2, 0]), [2, 1, 0]);
      same(await gather(peer.stream("math.add", [2, 3])), [5]);
      same(await gather(peer.stream("hub.echo", [[1, 2]])), [[1, 2]]);
      same((await rejected(gather(peer.stream("demo.countdown", [-1])))).reason, "raised");
      same((await rejected(gather(peer.stream("no.such")))).reason, "no_such_method");
      for await (const part of peer.stream("demo.countdown", [100, 0.01])) if (part < 99) break;
      same(await peer.call("math.add", [1, 2]), 3);
    });
  },

  async topics({ connect, url }) {
    await using(connect, [url, url], async (one, other) => {
      const room = unique("room");
      const events = await one.subscribe(`${room}.*.temperature`);
      const plain = await one.subscribe(`${room}.Roof.temperature`);
      await other.publish(`${room}.Roof.temperature`, { degrees: 21.5 });
      await other.publish(`${room}.a_b%2Ec.temperature`, null);
      const roof = { topic: `${room}.Roof.temperature`, data: { degrees: 21.5 }, missed: 0, attachments: [] };
      same((await events.next()).value, roof);
      same((await plain.next()).value, roof);
      same((await events.next()).value.topic, `${room}.a_b%2Ec.temperature`);
      await plain.close();
      same(await plain.next(), { value: undefined, done: true });
      await other.publish(`${room}.Roof.temperature`, 1, { retain: true });
      same((await events.next()).value.data, 1);
      const late = await other.subscribe(`${room}.Roof.temperature`);
      same((await late.next()).value.data, 1);
      const ending = gather(late);
      await one.closeTopic(`${room}.Roof.temperature`);
      same(await ending, []);
      for (const n of numbers(3)) await other.publish(`${room}.x.temperature`, n);
      const seen = [];
      for await (const event of events) {
        seen.push(event.data);
        if (seen.length === 3) break;
      }
      same(seen, [0, 1, 2]);
      await other.publish(`${room}.x.temperature`, "nobody follows it");
    });
  },

  async slow({ connect, url }) {
    await using(connect, [url], async (peer) => {
      const topic = unique("slow");
      const events = await peer.subscribe(topic, { maxWaiting: 5 });
      for (const n of numbers(20)) await peer.publish(topic, n);
      await soon(async () => (await peer.call("hub.ping"), true)); // so that the last event has come as well
      const first = (await events.next()).value;
      same([first.data, first.missed], [15, 15]);
      const rest = [];
      for (let at = 0; at < 4; at += 1) rest.push((await events.next()).value);
      same(rest.map((event) => [event.data, event.missed]), [[16, 0], [17, 0], [18, 0], [19, 0]]);
    });
  },

  async serving({ connect, url, other, Fail }) {
    await using(connect, [url, other ?? url], async (callee, caller) => {
      const shop = unique("shop");
      await callee.register(`${shop}.buyThing`, async (body) => ({ bought: body }), { doc: "Buy a thing." });
      same(await caller.call(`${shop}.buy_thing`, { id: 1 }), { bought: { id: 1 } });
      same((await caller.discover(`${shop}.buy_thing`)).doc, "Buy a thing.");
      const { methods } = await caller.discover();
      check(methods.some((name) => name.toLowerCase().includes(shop)), `${shop} is listed`);
      await callee.register(`${shop}.none`, () => undefined);
      same(await caller.call(`${shop}.none`), null);
      await callee.register(`${shop}.broken`, () => {
        throw new TypeError("this {is} broken");
      });
      const broken = await rejected(caller.call(`${shop}.broken`));
      same([broken.reason, broken.ran, broken.message], ["raised", "yes", "this {is} broken"]);
      await callee.register(`${shop}.coded`, () => {
        throw new Fail("12 are sold", { name: "shop.err.sold", data: { left: 0 } });
      });
      const coded = await rejected(caller.call(`${shop}.coded`));
      same([coded.reason, coded.message], ["raised", "12 are sold"]);
      const isPlain = [url, other ?? url].some((each) => protocolOf(each) === "umq");
      if (!isPlain) same([coded.name, coded.data], ["shop.err.sold", { left: 0 }]);
      await callee.register(`${shop}.odd`, () => Symbol("x"));
      const odd = await rejected(caller.call(`${shop}.odd`));
      same(odd.reason, "raised");
      check(odd.message.includes("the method ran, but its answer cannot be sent"), odd.message);
      await callee.register(`${shop}.huge`, () => "x".repeat(2 ** 21));
      same((await rejected(caller.call(`${shop}.huge`))).reason, "raised");
      check((await rejected(callee.register(`${shop}.none`, () => 1))) instanceof TypeError, "taken");
      same((await rejected(callee.register("hub.mine", () => 1))).reason, "bad_arguments");
      await callee.unregister(`${shop}.none`);
      check(await isGone(caller, `${shop}.none`), "unregistered");
    });
  },

  async generators({ connect, url, other }) {
    await using(connect, [url, other ?? url], async (callee, caller) => {
      const log = unique("log");
      await callee.register(`${log}.tail`, async function* tail(count) {
        for (const n of numbers(count)) yield { n };
        if (count === 3) throw new Error("three is too many");
      });
      same(await caller.call(`${log}.tail`, 2), [{ n: 0 }, { n: 1 }]);
      same(await caller.call(`${log}.tail`, 0), []);
      same((await gather(caller.stream(`${log}.tail`, 700))).map(({ n }) => n), numbers(700));
      same((await rejected(caller.call(`${log}.tail`, 3))).message, "three is too many");
      same((await rejected(gather(caller.stream(`${log}.tail`, 3)))).message, "three is too many");
    });
  },

  async notes({ connect, url, other }) {
    await using(connect, [url, other ?? url], async (callee, caller) => {
      const name = unique("report.build");
      await callee.register(name, async (body, { progress }) => {
        progress({ done: 0.5 }, "half of {it}");
        progress(null, "nearly");
        return body;
      });
      const notes = [];
      const onProgress = ({ kind, value, text }) => notes.push([kind, value, text]);
      same(await caller.call(name, 2026, { onProgress }), 2026);
      const told = [["note", { done: 0.5 }, "half of {it}"], ["note", null, "nearly"]];
      const hears = [url, other ?? url].every((each) => protocolOf(each) !== "umq");
      same(notes, hears ? told : []);
    });
  },

  async cancelling({ connect, url, other }) {
    await using(connect, [url, other ?? url], async (callee, caller) => {
      const name = unique("slow.work");
      const stopped = {};
      stopped.promise = new Promise((resolve) => Object.assign(stopped, { resolve }));
      let begun = () => {};
      const started = new Promise((resolve) => (begun = resolve));
      await callee.register(name, async (_, { signal }) => {
        signal.addEventListener("abort", stopped.resolve);
        begun();
        await stopped.promise;
        return "late";
      });
      const controller = new AbortController();
      const call = caller.call(name, null, { signal: controller.signal });
      await started;
      controller.abort(new Error("the user left"));
      const error = await rejected(call);
      same([error.reason, error.ran, error.cause?.message], ["cancelled", "unknown", "the user left"]);
      if (protocolOf(other ?? url) === "umq" || protocolOf(url) === "umq") stopped.resolve();
      else await stopped.promise;
      same((await rejected(caller.call("math.add", [1, 2], { signal: controller.signal }))).reason, "cancelled");
      same(await caller.call("math.add", [1, 2], { signal: new AbortController().signal }), 3);
    });
  },

  async timeouts({ connect, url }) {
    await using(connect, [url, url], async (callee, caller) => {
      const name = unique("never.ends");
      await callee.register(name, () => new Promise(() => {}));
      const error = await rejected(caller.call(name, null, { timeout: 0.2 }));
      same([error.reason, error.ran], ["timeout", "unknown"]);
      check(error.message.includes("did not answer within 0.2 s"), error.message);
      for (const timeout of [0, -1, NaN, "1"]) {
        check((await rejected(caller.call(name, null, { timeout }))) instanceof TypeError, `${timeout} is no time`);
      }
    });
  },

  async attachments({ connect, url, other, Reply }) {
    await using(connect, [url, other ?? url], async (callee, caller) => {
      const name = unique("photo.turn");
      const turned = (bytes) => Uint8Array.from(bytes).reverse();
      await callee.register(name, (body, { attachments }) => new Reply(body, attachments.map(turned)));
      const large = Uint8Array.from({ length: 100_000 }, (_, at) => at % 251);
      const given = [Uint8Array.from([1, 2, 3]), new Uint8Array(), large];
      const reply = await caller.callReply(name, "turn", { attachments: given });
      same(reply.value, "turn");
      same(reply.attachments, given.map(turned));
      same((await caller.callReply(name)).attachments, []);
      const topic = unique("photos");
      const events = await caller.subscribe(topic);
      await callee.publish(topic, 1, { attachments: given });
      await callee.publish(topic, 2);
      same((await events.next()).value.attachments, given);
      same((await events.next()).value.data, 2);
      same((await rejected(caller.call(name, 1, { attachments: ["text"] }))).reason, "bad_arguments");
    });
  },

  async callbacks({ connect, url, other }) {
    await using(connect, [url, other ?? url], async (owner, caller) => {
      const token = await owner.callback((body) => body * 2);
      same(await caller.call(`callback.${token}`, 21), 42);
      const again = await rejected(caller.call(`callback.${token}`, 21));
      same([again.reason, again.ran], ["no_such_callback", "no"]);
    });
  },

  async variables({ connect, url }) {
    await using(connect, [url, url.replace(/^nq\+\w+(.*)\/nq/, "lrpm+ws$1/lrpm")], async (peer, reader) => {
      await peer.vars.set("language", "cs");
      same(await peer.vars.get("language"), "cs");
      if (peer.session) same(await reader.vars.get("language", { peer: peer.session }), "cs");
      await peer.vars.set("language", { name: "1" });
      same(await peer.vars.get("language"), { name: "1" });
      await peer.vars.unset("language");
      same(await rejected(peer.vars.get("language")).then((error) => error.ran, (value) => value), await unsetIs(peer));
    });
  },

  async work({ connect, url, other }) {
    await using(connect, [url, other ?? url], async (boss, worker) => {
      const queue = unique("jobs");
      same((await rejected(worker.pull(unique("nothing"), { timeout: 0.2 }))).reason, "timeout");
      same(await boss.push(queue, { image: 1 }), 1);
      const job = await worker.pull(queue);
      same(job.data, { image: 1 });
      await job.fail("not today");
      const again = await worker.pull(queue);
      same(again.data, { image: 1 });
      await again.done();
      await again.done(); // which says nothing a second time
      const waiting = worker.pull(queue, { timeout: PATIENCE });
      await boss.push(queue, "later");
      same((await waiting).data, "later");
      const controller = new AbortController();
      const given = worker.pull(queue, { signal: controller.signal });
      controller.abort();
      same((await rejected(given)).reason, "cancelled");
    });
  },

  async closing({ connect, url, ConnectionLost }) {
    const peer = await connect(url);
    const states = [];
    peer.addEventListener("state", (event) => states.push(event.detail));
    const events = await peer.subscribe(unique("x"));
    const name = unique("never");
    await peer.register(name, () => new Promise(() => {}));
    const call = rejected(peer.call(name));
    const ended = gather(events);
    await peer.close();
    await peer.close();
    same((await call).reason, "lost");
    same(await ended, []);
    same(peer.state, "closed");
    same(states, [{ state: "closed", attempt: 0, error: null, wait: 0 }]);
    check((await rejected(peer.call("hub.ping"))) instanceof ConnectionLost, "nothing is sent any more");
    await using(connect, [url], async (other) => {
      check(await isGone(other, name), "what was offered is gone with who offered it");
    });
  },

  async addresses({ connect, url, ConnectionLost }) {
    const bad = ["", "ws://localhost", "lrpm://localhost", "umq36+ws://localhost", "nq+zmq://localhost", "lrpm+ws://"];
    bad.push("lrpm+ws://user:secret@localhost", "umq+http://localhost", "lrpm+ws://localhost?encoding=cbor");
    bad.push("constructor+ws://localhost");
    for (const each of bad) {
      const error = await rejected(connect(each));
      check(error instanceof TypeError && /URL|encoding|JSON only/.test(error.message), `${each}: ${error}`);
    }
    for (const option of ["tokn", "constructor", "toString"]) {
      check((await rejected(connect(url, { [option]: "x" }))) instanceof TypeError, `an unknown option, ${option}`);
    }
    check((await rejected(connect(url, { identity: "x" }))) instanceof TypeError, "half of a login");
    const nobody = await rejected(connect(url.replace(/:\d+/, ":1"), { openTimeout: 5 }));
    check(nobody instanceof ConnectionLost, String(nobody));
    const astray = await rejected(connect(`${url.replace(/\/\w+$/, "")}/nothing`, { openTimeout: 5 }));
    check(astray instanceof ConnectionLost, String(astray));
  },
};

/** Whether nobody serves a method that was there before; a call in NQ is accepted, and waits for somebody who does. */
async function isGone(peer, name) {
  const { reason } = await rejected(peer.call(name, null, { timeout: 0.3 }));
  return peer.protocol === "nq" ? reason === "timeout" : ["no_such_method", "unavailable"].includes(reason);
}

/** What the hub says of a variable that is not set. */
async function unsetIs(peer) {
  return rejected(peer.vars.get("never_set")).then((error) => error.ran, (value) => value);
}
