// node kafkajs.mjs ADDRESS TOPIC create|produce|consume COUNT
import kafkajs from "kafkajs";

const { Kafka, Partitioners, logLevel } = kafkajs;
const [address, topic, action, count] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "kafkajs", brokers: [address], logLevel: logLevel.ERROR });

const actions = {
  async create() {
    const admin = kafka.admin();
    await admin.connect();
    await admin.createTopics({ topics: [{ topic, numPartitions: 3 }] });
    await admin.disconnect();
  },

  async produce() {
    const createPartitioner = Partitioners.DefaultPartitioner;
    const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, createPartitioner });
    await producer.connect();
    for (let begin = 0; begin < 500; begin += 50) {
      const messages = Array.from({ length: 50 }, (_, i) => ({ key: `k${(begin + i) % 13}`, value: `${begin + i}` }));
      await producer.send({ topic, acks: -1, messages });
    }
    await producer.disconnect();
  },

  async consume() {
    const consumer = kafka.consumer({ groupId: topic });
    await consumer.connect();
    await consumer.subscribe({ topic, fromBeginning: true });
    let left = Number(count);
    await new Promise((done) =>
      consumer.run({
        autoCommit: false,
        async eachMessage({ partition, message }) {
          if (left === 0) return; // the rest of a batch
          console.log(`${partition} ${message.offset} ${message.key} ${message.value}`);
          await consumer.commitOffsets([{ topic, partition, offset: `${Number(message.offset) + 1}` }]);
          if (--left === 0) done();
        },
      }),
    );
    await consumer.disconnect();
  },
};

await actions[action]();
