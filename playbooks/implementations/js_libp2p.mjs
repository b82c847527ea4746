// A js-libp2p peer, which obeys lines (docs/programs.md), or with --params a script (docs/gossipsub-interop.md).
// A node's key has its number as its seed (go_libp2p.py).
import { lookup } from 'node:dns/promises'
import { readFile } from 'node:fs/promises'
import { hostname } from 'node:os'
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

const ATTEMPTS = 6
const INTEROP_PORT = 9000
const NS_PER_MS = 1e6
const PARAMETERS = { // of gossipsub-interop that this implementation has; durations are in ns there and in ms here
  D: ['D'],
  Dlo: ['Dlo'],
  Dhi: ['Dhi'],
  Dscore: ['Dscore'],
  Dout: ['Dout'],
  Dlazy: ['Dlazy'],
  GossipFactor: ['gossipFactor'],
  HistoryLength: ['mcacheLength'],
  HistoryGossip: ['mcacheGossip'],
  HeartbeatInterval: ['heartbeatInterval', NS_PER_MS],
  FanoutTTL: ['fanoutTTL', NS_PER_MS],
  PrunePeers: ['prunePeers'],
  PruneBackoff: ['pruneBackoff', NS_PER_MS],
  UnsubscribeBackoff: ['unsubcribeBackoff', NS_PER_MS],
  GraftFloodThreshold: ['graftFloodThreshold', NS_PER_MS],
  DirectConnectTicks: ['directConnectTicks'],
  OpportunisticGraftTicks: ['opportunisticGraftTicks'],
  OpportunisticGraftPeers: ['opportunisticGraftPeers'],
  IWantFollowupTime: ['gossipsubIWantFollowupMs', NS_PER_MS],
  IDontWantMessageThreshold: ['idontwantMinDataSize'],
  MaxIDontWantMessages: ['idontwantMaxMessages']
}

const view = data => new DataView(data.buffer, data.byteOffset)
const idOf = data => view(data).getBigUint64(0)

async function keyOf (number) {
  const seed = new Uint8Array(32)
  view(seed).setBigUint64(0, BigInt(number), true)
  return generateKeyPairFromSeed('Ed25519', seed)
}

async function start (number, host, port, options) {
  return createLibp2p({
    privateKey: await keyOf(number),
    addresses: { listen: [`/ip4/${host}/tcp/${port}`] },
    transports: [tcp()],
    connectionEncrypters: [noise()],
    streamMuxers: [yamux()],
    connectionMonitor: { enabled: false },
    services: {
      identify: identify(),
      pubsub: gossipsub({ allowPublishToZeroTopicPeers: true, floodPublish: false, ...options })
    }
  })
}

async function connect (peer, other, address, port) {
  const id = peerIdFromPrivateKey(await keyOf(other))
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    try {
      return await peer.dial(multiaddr(`/ip4/${address}/tcp/${port}/p2p/${id}`))
    } catch (error) {
      console.error(`connect ${other}: ${error.message}`)
      await sleep(1000)
    }
  }
}

function hearCopies (pubsub, tell) { // no event tells of later copies
  const receive = pubsub.handleReceivedMessage.bind(pubsub)
  pubsub.handleReceivedMessage = (from, message) => {
    tell(`${from}`, message)
    return receive(from, message)
  }
}

function makeMessage (id, size) {
  const data = new Uint8Array(Math.max(8, size))
  view(data).setBigUint64(0, BigInt(id))
  return data
}

async function obey () {
  const { TRELLIS_NODE: node, TRELLIS_NODES: nodes, TRELLIS_HOST: host, TRELLIS_PORT: port } = process.env
  const peer = await start(node, host, port, {})
  const { pubsub } = peer.services
  const numbers = new Map()
  for (let other = 0; other < Number(nodes); other++) {
    numbers.set(`${peerIdFromPrivateKey(await keyOf(other))}`, other)
  }
  const delivered = new Set()
  const sources = new Map() // of messages: the node that sent the first copy
  const report = (...words) => process.stdout.write(`${words.join(' ')} ts_ns=${process.hrtime.bigint()}\n`)
  hearCopies(pubsub, (from, { data }) => {
    const id = idOf(data)
    if (sources.has(id)) report('duplicate', id, `from=${numbers.get(from)}`)
    else sources.set(id, numbers.get(from))
  })
  pubsub.addEventListener('message', ({ detail }) => {
    const id = idOf(detail.data)
    if (id >> 32n !== BigInt(node) && pubsub.getTopics().includes(detail.topic) && !delivered.has(id)) {
      delivered.add(id)
      report('deliver', id, `from=${sources.get(id)}`)
    }
  })
  async function publish (id, topic, size) {
    sources.set(BigInt(id), Number(node))
    report('publish', id)
    await pubsub.publish(topic, makeMessage(id, size))
  }
  process.stdout.write('ready\n')
  for await (const line of createInterface({ input: process.stdin })) {
    const [verb, first, second, third] = line.split(' ')
    if (verb === 'connect') connect(peer, first, second, third)
    if (verb === 'subscribe') pubsub.subscribe(first)
    if (verb === 'unsubscribe') pubsub.unsubscribe(first)
    if (verb === 'publish') publish(first, second, Number(third)).catch(error => console.error(`publish: ${error.message}`))
    if (verb === 'stop') break
  }
}

async function follow (path) {
  const node = Number(hostname().replace(/^node/, ''))
  const { script } = JSON.parse(await readFile(path))
  const mine = script.flatMap(each => each.type !== 'ifNodeIDEquals' ? [each] : each.nodeID === node ? [each.instruction] : [])
  const asked = Object.entries(mine.find(each => each.type === 'initGossipSub')?.gossipSubParams ?? {})
  const known = asked.filter(([name]) => name in PARAMETERS).map(([name, value]) => [PARAMETERS[name], value])
  const options = Object.fromEntries(known.map(([[name, divisor = 1], value]) => [name, value / divisor]))
  const anonymous = { globalSignaturePolicy: 'StrictNoSign', msgIdFn: ({ data }) => data.subarray(0, 8) }
  const peer = await start(node, '0.0.0.0', INTEROP_PORT, { ...options, ...anonymous })
  const { pubsub } = peer.services
  const tell = (msg, fields) => {
    const line = { time: new Date().toISOString(), level: 'INFO', msg, ...fields }
    process.stdout.write(`${JSON.stringify(line)}\n`)
  }
  hearCopies(pubsub, (from, { topic, data }) => tell('Received Message', { from, topic, id: `${idOf(data)}` }))
  tell('PeerID', { id: `${peer.peerId}`, node_id: node })
  for (const each of mine) {
    switch (each.type) {
      case 'initGossipSub':
        break
      case 'connect':
        await Promise.all(each.connectTo.map(async other =>
          connect(peer, other, (await lookup(`node${other}`, { family: 4 })).address, INTEROP_PORT)))
        break
      case 'waitUntil':
        await sleep(Math.max(0, each.elapsedSeconds * 1000 - performance.now()))
        break
      case 'subscribeToTopic':
        pubsub.subscribe(each.topicID)
        break
      case 'setTopicValidationDelay':
        pubsub.topicValidators.set(each.topicID, () => sleep(each.delaySeconds * 1000, 'accept'))
        break
      case 'publish':
        await pubsub.publish(each.topicID, makeMessage(each.messageID, each.messageSizeBytes))
        break
      default:
        throw new Error(`${each.type}: not an instruction that this program knows`)
    }
  }
}

const option = process.argv.indexOf('--params')
await (option < 0 ? obey() : follow(process.argv[option + 1]))
process.exit(0)
