// Sends five orders to a topic, and processes them as a worker of a queue group, in order per customer.
const path = require('node:path');
const { promisify } = require('node:util');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const [address, protos = path.join(__dirname, '../../proto')] = process.argv.slice(2);
const files = ['log', 'admin', 'queues'].map((name) => `logbroker/v1/${name}.proto`);
// Receipts have 64 bits, more than a number holds exactly, so they are passed as strings.
const { v1 } = grpc.loadPackageDefinition(loader.loadSync(files, { includeDirs: [protos], longs: String, arrays: true, keepCase: true })).logbroker;
const clients = [v1.Admin, v1.Log, v1.Queues].map((Client) => new Client(address, grpc.credentials.createInsecure()));
const [admin, log, queues] = clients;

const call = (client, method, request) => promisify(client[method].bind(client))(request);
// Each item of a call may fail on its own, and its status says why. That the topic exists is no error.
const check = ({ status }) => { if (status?.code && status.reason !== 'TOPIC_EXISTS') throw new Error(`${status.reason}: ${status.message}`); };

async function main() {
  const topic = 'orders-node', group_id = 'billing-node', worker_id = 'node-1';
  check((await call(admin, 'CreateTopics', { topics: [{ name: topic, partitions: 4 }] })).results[0]);
  await call(queues, 'CreateQueue', { group_id, topic });

  const records = [0, 1, 2, 3, 4].map((number) => ({
    key: Buffer.from(`customer-${number % 2}`), value: Buffer.from(`order ${number}`),
  }));
  check((await call(log, 'Produce', { items: [{ topic, records: { records } }] })).results[0]);

  for (let done = 0; done < 5;) {
    const asked = { group_id, worker_id, max_records: 10, max_wait_ms: 5000, plain_records: true };
    const receipts = [];
    for (const delivery of (await call(queues, 'Receive', asked)).deliveries) {
      delivery.records.forEach((record, i) => {
        console.log(`${record.key}: ${record.value}`);
        receipts.push(String(BigInt(delivery.first_receipt) + BigInt(i)));
        done++;
      });
    }
    const settle = { acks: { firsts: receipts, lasts: receipts } };
    (await call(queues, 'Settle', { group_id, worker_id, settle })).answer.failures.forEach(check);
  }
  clients.forEach((client) => client.close());
}

main().catch((error) => { console.error(error.message); process.exit(1); });
