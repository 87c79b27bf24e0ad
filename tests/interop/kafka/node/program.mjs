// Works off commands with a Kafka client for Node.js, as programs.py describes. Its argument names the client.

import { createInterface } from 'node:readline'

const { [process.argv[2]]: module } = { kafkajs: './kafkajs.mjs', '@platformatic/kafka': './platformatic.mjs' }
const client = await import(module)

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()

function say(line) {
  process.stdout.write(line + '\n')
}

/** What a member of a group tells; hrtime is the clock that all processes of the machine share. */
const member = {
  handled: (partition, offset, value) => say(`R ${process.hrtime.bigint()} ${partition} ${offset} ${value}`),
  assigned: partitions => say(`A ${process.hrtime.bigint()} ${partitions.sort((a, b) => a - b).join(',')}`),
  ended: () => lines.next()
}

for (;;) {
  const { value: line, done } = await lines.next()
  if (done) {
    break
  }
  const command = JSON.parse(line)
  let said
  try {
    said = { answer: (await client[command.do](command, member)) ?? null }
  } catch (error) {
    console.error(error)
    said = { error: `${error.name}: ${error.message}` }
  }
  say(JSON.stringify(said, (_, value) => (typeof value === 'bigint' ? Number(value) : value)))
}
process.exit(0)
