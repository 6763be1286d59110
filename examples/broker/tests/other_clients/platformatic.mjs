// node platformatic.mjs ADDRESS TOPIC create|produce|consume COUNT
import { Admin, Consumer, Producer, stringDeserializers, stringSerializers } from "@platformatic/kafka";

const [address, topic, action, count] = process.argv.slice(2);
const common = { clientId: "platformatic", bootstrapBrokers: [address] };

const actions = {
  async create() {
    const admin = new Admin(common);
    await admin.createTopics({ topics: [topic], partitions: 3, replicas: 1 });
    await admin.close();
  },

  async produce() {
    const producer = new Producer({ ...common, idempotent: true, serializers: stringSerializers });
    for (let begin = 0; begin < 500; begin += 50) {
      const messages = Array.from({ length: 50 }, (_, i) => ({ topic, key: `k${(begin + i) % 13}`, value: `${begin + i}` }));
      await producer.send({ acks: -1, messages });
    }
    await producer.close();
  },

  async consume() {
    const consumer = new Consumer({ ...common, groupId: topic, deserializers: stringDeserializers });
    const stream = await consumer.consume({
      topics: [topic],
      mode: "committed",
      fallbackMode: "earliest",
      autocommit: false,
    });
    let left = Number(count);
    for await (const message of stream) {
      console.log(`${message.partition} ${message.offset} ${message.key} ${message.value}`);
      await message.commit();
      if (--left === 0) break;
    }
    await consumer.close(true);
  },
};

await actions[action]();
