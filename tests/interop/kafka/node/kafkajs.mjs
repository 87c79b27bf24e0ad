import { setTimeout as rest } from 'node:timers/promises'
import { lz4Compress, lz4Decompress } from '@platformatic/wasm-utils'
import kafkajs from 'kafkajs'
import snappy from 'kafkajs-snappy'
import { ZstdCodec } from 'zstd-codec'

const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, Partitioners, logLevel } = kafkajs

const zstd = await new Promise(resolve => ZstdCodec.run(found => resolve(new found.Simple())))
const codec = (compress, decompress) => () => ({
  compress: async encoder => Buffer.from(compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(decompress(buffer))
})
CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = codec(lz4Compress, lz4Decompress)
CompressionCodecs[CompressionTypes.ZSTD] = codec(
  bytes => zstd.compress(bytes),
  bytes => zstd.decompress(bytes)
)
const codecs = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD
}
const RETRY = { initialRetryTime: 50, maxRetryTime: 500, retries: 100 }

function kafka(command) {
  return new Kafka({ brokers: [command.address], logLevel: logLevel.NOTHING, retry: RETRY })
}

export async function produce(command) {
  // The client says of a request only where the batches of its partitions begin.
  const chosen = []
  const choose = Partitioners.DefaultPartitioner()
  const producer = kafka(command).producer({
    idempotent: command.idempotent,
    createPartitioner: () => message => {
      const partition = choose(message)
      chosen.push(partition)
      return partition
    }
  })
  await producer.connect()
  const acknowledged = []
  for (let first = 0; first < command.records.length; first += command.burst) {
    const messages = command.records.slice(first, first + command.burst).map(([key, value]) => ({ key, value }))
    chosen.length = 0
    const found = await producer.send({
      topic: command.topic,
      acks: command.acks,
      compression: codecs[command.codec],
      messages
    })
    const offsets = new Map((found ?? []).map(each => [each.partition, Number(each.baseOffset)]))
    chosen.slice(-messages.length).forEach((partition, index) => {
      const offset = offsets.get(partition) ?? -1
      acknowledged.push([first + index, partition, offset])
      offsets.set(partition, offset < 0 ? -1 : offset + 1)
    })
    await rest(command.pause_ms)
  }
  await producer.disconnect()
  return acknowledged
}

/** It reads in groups only: this one is of a single member, and is deleted afterwards. */
export async function consume(command) {
  const client = kafka(command)
  const groupId = `reader-${process.pid}-${process.hrtime.bigint()}`
  const consumer = client.consumer({ groupId, maxWaitTimeInMs: 100 })
  const admin = client.admin()
  await Promise.all([consumer.connect(), admin.connect()])
  const starts =
    typeof command.from === 'number' ? await admin.fetchTopicOffsetsByTimestamp(command.topic, command.from) : []
  const found = []
  await consumer.subscribe({ topics: [command.topic], fromBeginning: command.from === 'earliest' })
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, event => reject(event.payload.error))
    consumer
      .run({
        autoCommit: false,
        eachMessage: async ({ partition, message }) => {
          found.push([partition, Number(message.offset), message.key?.toString() ?? null, message.value?.toString() ?? null])
          if (found.length >= command.count) {
            resolve()
          }
        }
      })
      .catch(reject)
    for (const { partition, offset } of starts) {
      consumer.seek({ topic: command.topic, partition, offset })
    }
  })
  await consumer.disconnect()
  await admin.deleteGroups([groupId])
  await admin.disconnect()
  return found
}

export async function group(command, member) {
  const consumer = kafka(command).consumer({
    groupId: command.group,
    sessionTimeout: command.session_ms,
    heartbeatInterval: 200,
    rebalanceTimeout: 10_000,
    maxWaitTimeInMs: 50,
    metadataMaxAge: 1000
  })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    member.assigned(payload.memberAssignment[command.topic] ?? [])
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [command.topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, commitOffsetsIfNecessary, uncommittedOffsets, isRunning, isStale }) => {
      for (const message of batch.messages) {
        if (!isRunning() || isStale()) {
          break
        }
        member.handled(batch.partition, message.offset, message.value)
        resolveOffset(message.offset)
      }
      await commitOffsetsIfNecessary(uncommittedOffsets())
    }
  })
  await member.ended()
  await consumer.disconnect()
  return 'left'
}

async function withAdmin(command, work) {
  const admin = kafka(command).admin({ retry: { retries: 0 } })
  await admin.connect()
  try {
    return await work(admin)
  } finally {
    await admin.disconnect()
  }
}

export function create(command) {
  const configEntries = Object.entries(command.configs).map(([name, value]) => ({ name, value }))
  const topic = { topic: command.topic, numPartitions: command.partitions, replicationFactor: 1, configEntries }
  return withAdmin(command, admin => admin.createTopics({ topics: [topic] }))
}

export function manage(command) {
  const name = command.topic
  const resource = { type: ConfigResourceTypes.TOPIC, name }
  return withAdmin(command, async admin => {
    const alter = (name, value) =>
      admin.alterConfigs({ resources: [{ ...resource, configEntries: [{ name, value }] }] })
    await alter('retention.ms', command.retention_ms)
    const refusal = await alter('nonsense', '1').then(
      () => 0,
      error => error.code
    )
    const described = await admin.describeConfigs({ resources: [resource] })
    await admin.createPartitions({ topicPartitions: [{ topic: name, count: command.partitions }] })
    const { topics } = await admin.fetchTopicMetadata({ topics: [name] })
    const partitions = [
      { partition: 0, offset: '2' },
      { partition: 1, offset: '-1' }
    ]
    await admin.deleteTopicRecords({ topic: name, partitions })
    const offsets = await admin.fetchTopicOffsets(name)
    const { brokers } = await admin.describeCluster()
    return {
      refusal,
      configs: Object.fromEntries(
        described.resources[0].configEntries
          .filter(each => !each.isDefault)
          .map(each => [each.configName, each.configValue])
      ),
      partitions: topics[0].partitions.length,
      low_watermarks: Object.fromEntries(
        offsets.filter(each => each.partition < 2).map(each => [each.partition, Number(each.low)])
      ),
      nodes: brokers.map(each => `${each.host}:${each.port}`)
    }
  })
}

function remove(command) {
  return withAdmin(command, admin => admin.deleteTopics({ topics: [command.topic] }))
}

export { remove as delete }
