import { setTimeout as rest } from 'node:timers/promises'
import {
  Admin,
  compatibilityPartitioner,
  ConfigResourceTypes,
  Consumer,
  IncrementalAlterConfigOperationTypes,
  MessagesStreamFallbackModes,
  MessagesStreamModes,
  Producer,
  stringDeserializers,
  stringSerializers
} from '@platformatic/kafka'

function options(command) {
  return {
    clientId: 'program',
    bootstrapBrokers: [command.address],
    retries: 600,
    retryDelay: 100,
    timeout: 60_000
  }
}

export async function produce(command) {
  const producer = new Producer({
    ...options(command),
    serializers: stringSerializers,
    // Its default is another one for half of the keys.
    partitioner: compatibilityPartitioner,
    idempotent: command.idempotent,
    acks: command.acks,
    compression: command.codec
  })
  const acknowledged = []
  for (let first = 0; first < command.records.length; first += command.burst) {
    const chunk = command.records.slice(first, first + command.burst)
    const messages = chunk.map(([key, value]) => ({ topic: command.topic, key, value }))
    await producer.send({ messages, acks: command.acks })
    chunk.forEach((_, index) => acknowledged.push([first + index, -1, -1]))
    await rest(command.pause_ms)
  }
  await producer.close()
  return acknowledged
}

function read(stream, count, found) {
  return new Promise((resolve, reject) => {
    stream.on('error', reject)
    stream.on('data', ({ partition, offset, key, value }) => {
      found.push([partition, offset, key ?? null, value ?? null])
      if (found.length >= count) {
        resolve()
      }
    })
  })
}

/** It reads in groups only: this one is of a single member, and is deleted afterwards. */
export async function consume(command) {
  const groupId = `reader-${process.pid}-${process.hrtime.bigint()}`
  const topics = [command.topic]
  const consumer = new Consumer({
    ...options(command),
    groupId,
    deserializers: stringDeserializers,
    autocommit: false,
    maxWaitTime: 100
  })
  let place = { mode: command.from === 'earliest' ? MessagesStreamModes.EARLIEST : MessagesStreamModes.LATEST }
  if (typeof command.from === 'number') {
    const ends = (await consumer.listOffsets({ topics })).get(command.topic)
    const starts = (await consumer.listOffsets({ topics, timestamp: BigInt(command.from) })).get(command.topic)
    const offsets = starts.map((offset, partition) => ({
      topic: command.topic,
      partition,
      offset: offset < 0n ? ends[partition] : offset
    }))
    place = { mode: MessagesStreamModes.MANUAL, offsets }
  }
  const found = []
  const stream = await consumer.consume({ topics, ...place })
  await read(stream, command.count, found)
  await consumer.close(true)
  const admin = new Admin(options(command))
  await admin.deleteGroups({ groups: [groupId] })
  await admin.close()
  return found
}

export async function group(command, member) {
  const protocol =
    command.protocol === 'consumer'
      ? { groupProtocol: 'consumer' }
      : { sessionTimeout: command.session_ms, heartbeatInterval: 200, rebalanceTimeout: 10_000 }
  const consumer = new Consumer({
    ...options(command),
    groupId: command.group,
    deserializers: stringDeserializers,
    autocommit: false,
    maxWaitTime: 50,
    ...protocol
  })
  consumer.on('consumer:group:join', () => {
    member.assigned(consumer.assignments?.find(each => each.topic === command.topic)?.partitions ?? [])
  })
  const stream = await consumer.consume({
    topics: [command.topic],
    mode: MessagesStreamModes.COMMITTED,
    fallbackMode: MessagesStreamFallbackModes.EARLIEST
  })
  const handling = (async () => {
    const last = new Map()
    for await (const message of stream) {
      member.handled(message.partition, message.offset, message.value)
      last.set(message.partition, message)
      if (message.offset % 20n === 19n || stream.readableLength === 0) {
        await Promise.all([...last.values()].map(each => each.commit()))
        last.clear()
      }
    }
  })()
  handling.catch(error => console.error(error))
  await member.ended()
  await consumer.close(true)
  return 'left'
}

async function withAdmin(command, work) {
  const admin = new Admin(options(command))
  try {
    return await work(admin)
  } finally {
    await admin.close()
  }
}

export function create(command) {
  const configs = Object.entries(command.configs).map(([name, value]) => ({ name, value }))
  return withAdmin(command, async admin => {
    await admin.createTopics({ topics: [command.topic], partitions: command.partitions, replicas: 1, configs })
  })
}

export function manage(command) {
  const topic = command.topic
  const resource = { resourceType: ConfigResourceTypes.TOPIC, resourceName: topic }
  return withAdmin(command, async admin => {
    const alter = (name, value) =>
      admin.incrementalAlterConfigs({
        resources: [
          { ...resource, configs: [{ name, configOperation: IncrementalAlterConfigOperationTypes.SET, value }] }
        ]
      })
    await alter('retention.ms', command.retention_ms)
    const refusal = await alter('nonsense', '1').then(
      () => 0,
      error => error.findBy('code', 'PLT_KFK_PROTOCOL').apiCode
    )
    const [described] = await admin.describeConfigs({ resources: [resource] })
    await admin.createPartitions({ topics: [{ name: topic, count: command.partitions }] })
    const metadata = await admin.metadata({ topics: [topic], forceUpdate: true })
    const partitions = [
      { partition: 0, offset: 2n },
      { partition: 1, offset: -1n }
    ]
    const [deleted] = await admin.deleteRecords({ topics: [{ name: topic, partitions }] })
    return {
      refusal,
      configs: Object.fromEntries(
        described.configs.filter(each => each.configSource === 1).map(each => [each.name, each.value])
      ),
      partitions: metadata.topics.get(topic).partitionsCount,
      low_watermarks: Object.fromEntries(deleted.partitions.map(each => [each.partition, each.lowWatermark])),
      nodes: [...metadata.brokers.values()].map(each => `${each.host}:${each.port}`)
    }
  })
}

function remove(command) {
  return withAdmin(command, admin => admin.deleteTopics({ topics: [command.topic] }))
}

export { remove as delete }
