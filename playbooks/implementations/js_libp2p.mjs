// A js-libp2p peer: docs/programs.md describes the lines. A node's key has its number as its seed (go_libp2p.py).
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'

if (!Promise.withResolvers) { // Node.js 20 has none
  Promise.withResolvers = () => {
    let resolve, reject
    const promise = new Promise((...both) => { [resolve, reject] = both })
    return { promise, resolve, reject }
  }
}
const { createLibp2p } = await import('libp2p')
const { tcp } = await import('@libp2p/tcp')
const { noise } = await import('@chainsafe/libp2p-noise')
const { yamux } = await import('@chainsafe/libp2p-yamux')
const { identify } = await import('@libp2p/identify')
const { gossipsub } = await import('@libp2p/gossipsub')
const { generateKeyPairFromSeed } = await import('@libp2p/crypto/keys')
const { peerIdFromPrivateKey } = await import('@libp2p/peer-id')
const { multiaddr } = await import('@multiformats/multiaddr')

const { TRELLIS_NODE: node, TRELLIS_HOST: host, TRELLIS_PORT: port } = process.env
const ATTEMPTS = 6
const seen = new Set()

const report = (...words) => process.stdout.write(`${words.join(' ')} ts_ns=${process.hrtime.bigint()}\n`)
const idOf = data => new DataView(data.buffer, data.byteOffset).getBigUint64(0)

async function keyOf (number) {
  const seed = new Uint8Array(32)
  new DataView(seed.buffer).setBigUint64(0, BigInt(number), true)
  return generateKeyPairFromSeed('Ed25519', seed)
}

const peer = await createLibp2p({
  privateKey: await keyOf(node),
  addresses: { listen: [`/ip4/${host}/tcp/${port}`] },
  transports: [tcp()],
  connectionEncrypters: [noise()],
  streamMuxers: [yamux()],
  connectionMonitor: { enabled: false },
  services: { identify: identify(), pubsub: gossipsub({ allowPublishToZeroTopicPeers: true, floodPublish: false }) }
})
const { pubsub } = peer.services
pubsub.addEventListener('message', ({ detail }) => {
  const id = idOf(detail.data)
  if (id >> 32n !== BigInt(node) && pubsub.getTopics().includes(detail.topic) && !seen.has(id)) {
    seen.add(id)
    report('deliver', id)
  }
})

async function connect (other, address, itsPort) {
  const id = peerIdFromPrivateKey(await keyOf(other))
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    try {
      return await peer.dial(multiaddr(`/ip4/${address}/tcp/${itsPort}/p2p/${id}`))
    } catch (error) {
      console.error(`connect ${other}: ${error.message}`)
      await sleep(1000)
    }
  }
}

async function publish (id, topic, size) {
  const data = new Uint8Array(Math.max(8, size))
  new DataView(data.buffer).setBigUint64(0, BigInt(id))
  report('publish', id)
  await pubsub.publish(topic, data)
}

process.stdout.write('ready\n')
for await (const line of createInterface({ input: process.stdin })) {
  const [verb, first, second, third] = line.split(' ')
  if (verb === 'connect') connect(first, second, third)
  if (verb === 'subscribe') pubsub.subscribe(first)
  if (verb === 'unsubscribe') pubsub.unsubscribe(first)
  if (verb === 'publish') publish(first, second, Number(third)).catch(error => console.error(`publish: ${error.message}`))
  if (verb === 'stop') break
}
process.exit(0)
