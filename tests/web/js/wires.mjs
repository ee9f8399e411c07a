// How values, names and topics are written, for tests that know how they have to be; and methods for other clients.

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
    const read = { text: wire.fromText, json: (body) => wire.unmark(wire.parse(body)) };
    const nq = (bytes) => `{"$base91":"${wire.toBase91(bytes)}"}`;
    return bodies.map(({ from, body }) =>
      attempt(() => {
        const value = read[from](body);
        return { text: wire.toText(value), json: wire.write(value), nq: wire.write(value, nq) };
      }),
    );
  },

  async base91({ given, wire }) {
    return given.map((each) => wire.toBase91(fromHex(each)));
  },

  async unbase91({ given, wire }) {
    return given.map((each) => attempt(() => toHex(wire.fromBase91(each))));
  },

  async folded({ given, wire }) {
    const cuts = { umq: undefined, nq: /[-.:/]/ };
    return given.map(({ style, text }) => attempt(() => wire.fold(text, cuts[style])));
  },

  async topics_rewritten({ given, wire }) {
    const { topics } = wire;
    return given.map(({ text, from, to, wild }) =>
      attempt(() => wire.rewriteTopic(text, topics[from], topics[to], wild)),
    );
  },

  /** Offer methods and follow a topic, until told to stop. */
  async offering({ connect, url, name, Fail, Reply, say, told }) {
    const peer = await connect(url, { timeout: 20 });
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
    const peer = await connect(url, { timeout: 20 });
    const value = await peer.call(name, body);
    await peer.close();
    return value;
  },
};
