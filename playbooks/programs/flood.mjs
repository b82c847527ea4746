// A peer that floods: docs/programs.md. A frame is a message id (8 bytes), a topic (4), a length (4), a payload.
import net from "node:net";
import { createInterface } from "node:readline";

const topics = new Set(), seen = new Set(), links = new Set();

function spread(frame, source) {
  const id = frame.readBigUInt64BE(0), topic = frame.readUInt32BE(8);
  if (seen.has(id)) return console.log(`duplicate ${id}`);
  seen.add(id);
  if (!source || topics.has(topic)) console.log(`${source ? "deliver" : "publish"} ${id}`);
  for (const link of links) if (link !== source) link.write(frame);
}

function receive(link) {
  let rest = Buffer.alloc(0);
  links.add(link);
  link.on("close", () => links.delete(link)).on("error", () => {});
  link.on("data", (data) => {
    rest = Buffer.concat([rest, data]);
    for (let size; rest.length >= 16 && rest.length >= (size = 16 + rest.readUInt32BE(12)); rest = rest.subarray(size))
      spread(rest.subarray(0, size), link);
  });
}

const orders = {
  connect: (_, host, port) => receive(net.connect(Number(port), host)),
  subscribe: (topic) => topics.add(Number(topic)),
  unsubscribe: (topic) => topics.delete(Number(topic)),
  publish(id, topic, size) {
    const frame = Buffer.alloc(16 + Number(size));
    frame.writeBigUInt64BE(BigInt(id), 0);
    frame.writeUInt32BE(Number(topic), 8);
    frame.writeUInt32BE(Number(size), 12);
    frame.writeBigUInt64BE(BigInt(id), 16);
    spread(frame);
  },
  stop: () => process.exit(0),
};

net.createServer(receive).listen(Number(process.env.TRELLIS_PORT), process.env.TRELLIS_HOST, () => {
  createInterface({ input: process.stdin }).on("line", (line) => {
    const [verb, ...words] = line.split(" ");
    orders[verb](...words);
  });
  console.log("ready");
});
