// How values, names and topics are written, for tests that know how they have to be; and methods for other clients.

import { PATIENCE, gather, rejected } from "./kit.mjs";

const fromHex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
const toHex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

function attempt(run) {
  try {
    return { value: run() };
  } catch (error) {
    return { error: error.message };
  }
}

export const wires = {
  /** Read each body, and write the value in all encodings. */
  async bodies({ bodies, wire }) {
    const read = { text: wire.decodeText, json: (body) => wire.decodeMarkers(wire.parseJson(body)) };
    const nq = (bytes) => `{"$base91":"${wire.encodeBase91(bytes)}"}`;
    return bodies.map(({ from, body }) =>
      attempt(() => {
        const value = read[from](body);
        return { text: wire.encodeText(value), json: wire.writeJson(value), nq: wire.writeJson(value, nq) };
      }),
    );
  },

  async base91({ given, wire }) {
    return given.map((each) => wire.encodeBase91(fromHex(each)));
  },

  async unbase91({ given, wire }) {
    return given.map((each) => attempt(() => toHex(wire.decodeBase91(each))));
  },

  async folded({ given, wire }) {
    const cuts = { umq: undefined, nq: /[-.:/]/ };
    return given.map(({ style, text }) => attempt(() => wire.foldName(text, cuts[style])));
  },

  async topics_rewritten({ given, wire }) {
    const { topicStyles: topics } = wire;
    return given.map(({ text, from, to, wild }) =>
      attempt(() => wire.rewriteTopic(text, topics[from], topics[to], wild)),
    );
  },

  /** Offer methods and follow a topic, until told to stop. */
  async offering({ connect, url, name, Fail, Reply, say, told }) {
    const peer = await connect(url, { timeout: PATIENCE });
    await peer.register(`${name}.add`, ([a, b]) => a + b, { doc: "Add two numbers." });
    await peer.register(`${name}.echo`, (body) => body);
    await peer.register(`${name}.fail`, () => {
      throw new Fail("sold out", { name: "shop.err.sold_out", data: [1] });
    });
    await peer.register(`${name}.count`, async function* count(most) {
      for (let n = 0; n < most; n += 1) yield n;
    });
    await peer.register(`${name}.files`, (_, { attachments }) => new Reply(attachments.length, attachments));
    const events = await peer.subscribe(`${name}.news.*`);
    say("ready");
    const { value } = await events.next();
    await peer.publish(`${name}.seen`, [value.topic, value.data], { retain: true });
    await told("done");
    await peer.close();
  },

  /** Call what others offer. */
  async calling({ connect, url, name, body }) {
    const peer = await connect(url, { timeout: PATIENCE });
    const value = await peer.call(name, body);
    await peer.close();
    return value;
  },

  /** Call each; tell how it ended, and what was noted before. */
  async outcomes({ connect, url, names }) {
    const peer = await connect(url, { timeout: PATIENCE, reconnect: false });
    const told = [];
    for (const name of names) {
      const notes = [];
      const onProgress = ({ text, code }) => notes.push([text, code]);
      const failed = ({ reason, ran, name: own, message }) => ({ reason, ran, name: own, message });
      const ended = await peer.call(name, null, { onProgress }).then((value) => ({ value: JSON.stringify(value) }), failed);
      told.push(notes.length ? { ...ended, notes } : ended);
    }
    await peer.close();
    return told;
  },

  /** Call, stream, follow and serve, at a hub that a test speaks for; tell how often the method ran. */
  async partner({ connect, url, say, told }) {
    const peer = await connect(url, { timeout: PATIENCE });
    const call = peer.call("some.thing", "body");
    const stream = gather(peer.stream("some.stream"));
    const controller = new AbortController();
    const given = rejected(peer.call("some.cancelled", null, { signal: controller.signal }));
    say("asked");
    await told("cancel");
    controller.abort();
    const { reason } = await given;
    const values = { call: await call, stream: await stream, reason };
    let runs = 0;
    await peer.register("page.work", (body) => {
      runs += 1;
      return body;
    });
    await peer.register("page.parts", async function* parts(count) {
      for (let n = 1; n <= count; n += 1) yield n;
    });
    const events = await peer.subscribe("news.*");
    say("offered");
    const seen = [(await events.next()).value, (await events.next()).value];
    await told("done");
    const closing = peer.close();
    say("closing");
    await closing;
    return { ...values, runs, seen: seen.map(({ topic, data, missed }) => [topic, data, missed]) };
  },
};
